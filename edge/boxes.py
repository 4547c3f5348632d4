"""The lane of a container's log: appends while this site holds the log, keeps strays while it does not."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from edge import records
from edge.history import HistoryLane
from edge.holdings import Custody, Holdings
from edge.lane import Entry, Outcome, Sink
from edge.messages import Identity
from edge.repeats import Repeats, Verdict
from edge.straybook import StrayBook
from edge.tails import DEEP, Tails
from fairlead.wire.errors import BrokerError, Conflict, FatalBrokerError, Fenced, Misplaced

log = logging.getLogger(__name__)


class Drained(Entry[Identity]):
    """A stray on its way into its log: it is safe already, so a refused append loses nothing."""


class Drain(Protocol):
    """Brings the strays of a log into it; called with nothing else under way in the lane."""

    async def drain(self, lane: BoxLane) -> None: ...

    async def look_again(self, log: str) -> None:
        """Find the strays of a log anew."""


class BoxLane(HistoryLane):
    """One container's lane. What it may do follows from ``Holdings``, asked again before every batch.

    Args:
        on_lost: Told when appending is refused for good.
    """

    __slots__ = ("_book", "_copy", "_drain", "_draining", "_holdings", "_looked", "_on_lost", "_strays")

    def __init__(
        self,
        topic: str,
        sink: Sink,
        tails: Tails,
        holdings: Holdings,
        book: StrayBook,
        drain: Drain,
        *,
        on_lost: Callable[[str], None],
        settle: Callable[[Entry[Identity], Outcome], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        super().__init__(topic, sink, tails, settle=settle, fail=fail)
        self._holdings = holdings
        self._book = book
        self._strays = book.own
        self._drain = drain
        self._on_lost = on_lost
        self._draining = False
        self._looked = 0  # term of this site's in which the strays were looked for anew
        self._copy: Repeats | None = None  # what this site's copy of a log held elsewhere has

    def term(self) -> int | None:
        return self._holdings.term(self.log)

    def ready(self) -> bool:
        term = self._holdings.term(self.log)
        return term > 0 and term == self._looked and super().ready() and not self._book.wait_for(self.log)

    async def prepare(self) -> None:
        if self._holdings.state(self.log) is not Custody.HELD:
            return
        try:
            await super().prepare()
        except BrokerError as error:
            self.lose(error)
            return
        await self._look_again()
        if not self._draining and self._book.wait_for(self.log):
            await self.drain()

    async def _look_again(self) -> None:
        """After a seizure less may be drained than before, in every later term of the log: before anything is appended,
        the next marker above all, the strays are looked for anew."""
        term = self._holdings.term(self.log)
        if self._looked != term:
            if self.log in self._holdings.view.seized() or self._book.is_put_back(self.log):
                await self._drain.look_again(self.log)
            self._looked = term

    async def drain(self) -> None:
        """Bring what was kept for this log into it, before anything newer."""
        self._draining = True
        try:
            await self._drain.drain(self)
        finally:
            self._draining = False

    async def divert(self, entry: Entry[Identity]) -> bool:
        if self._holdings.state(self.log) is Custody.HELD:
            return False
        if entry.redelivered and await self._copy_has(entry.key):
            self.finish(entry, Outcome.REPEAT)  # stored before the box was given away, but not acknowledged then
        elif self._holdings.state(self.log) is Custody.HELD:  # it came while the copy was looked at
            await self.prepare()
            return await self.divert(entry)
        else:
            self._strays.keep(self.log, entry)
        return True

    async def _copy_has(self, identity: Identity) -> bool:
        """Whether this site's copy of the log has a reading already."""
        copy = self._copy
        if copy is None:
            copy = self._copy = Repeats()  # which may be unloaded while it is filled
            with contextlib.suppress(BrokerError):  # there need be no copy
                for record in (await self._tails.read(self.log, DEEP)).records:
                    if (found := records.identity_of(record)) is not None:
                        copy.add(found)
        return copy.check(identity) is Verdict.REPEAT

    def unload(self) -> None:
        super().unload()
        self._copy = None

    async def refused(self, error: Exception, entries: Sequence[Entry[Identity]]) -> bool:
        """Appending to this log is over until somebody looks: its readings are kept as strays, in order."""
        if not isinstance(error, Fenced | Misplaced | Conflict | FatalBrokerError):
            return False
        self.lose(error)
        for entry in entries:
            if not isinstance(entry, Drained):
                self._strays.keep(self.log, entry)
        return True

    def lose(self, error: Exception) -> None:
        """Appending is refused for good, though the ledger says that this site holds the log."""
        self._holdings.broke(self.log)
        self.unload()
        self._on_lost(self.log)
        log.error(
            "%s: this site can no longer append (%s); its readings are kept in %s", self.log, error, self._strays.log
        )
