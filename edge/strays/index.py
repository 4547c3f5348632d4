"""All strays that this site can see: its own, and those in its copies of other sites' strays logs.

The holder of a log drains what every site has kept for it. So the index of every strays log is kept, of all logs: any
of them may come here. What an earlier holder has drained is told by the newest marker of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Final

from edge.strays.store import KeptReading, StrayIndex, Strays, kept_reading, of_box
from fairlead.custody.view import CustodyView
from fairlead.kafka.protocol.record import Record

NOTHING: Final[Mapping[str, int]] = {}


class StrayBook:
    """The indexes of all strays logs here.

    Args:
        own: This site's own strays.
        others: Topics of the other sites' strays logs.
        trusted: Whether what a site has kept for a log may get into it, by the site's strays log and the log.
    """

    def __init__(
        self,
        own: Strays,
        others: tuple[str, ...],
        view: CustodyView,
        *,
        trusted: Callable[[str, str], bool] = lambda _strays, _log: True,
    ) -> None:
        self.own = own
        self._trusted = trusted
        self._view = view
        self._others = {topic: StrayIndex() for topic in others}

    def indexes(self) -> Iterator[tuple[str, StrayIndex]]:
        """Every strays log with its index, this site's own first."""
        yield self.own.log, self.own.index
        yield from self._others.items()

    def wait_for(self, log: str) -> bool:
        """Whether readings of this log wait in any strays log, and may get into it."""
        return self.own.wait_for(log) or any(
            index.has(log) and self._trusted(topic, log) for topic, index in self._others.items()
        )

    def may_drain(self, strays: str, log: str) -> bool:
        """Whether what a strays log has for a log may get into it: this site's own always."""
        return strays == self.own.log or self._trusted(strays, log)

    def logs(self) -> Set[str]:
        """Every log with readings that wait."""
        return set().union(*(index.logs() for _, index in self.indexes()))

    def drained(self, log: str) -> dict[str, int]:
        """What the next marker of a log has to say: per strays log, the offset before which all is drained."""
        grant = self._view.grant(log)
        marks = dict(grant.drained) if grant is not None else {}
        for topic, index in self.indexes():
            mark = index.mark(log)
            if mark is not None:
                marks[topic] = max(mark, marks.get(topic, 0))
        return marks

    def passed_on(self, log: str, drained: Mapping[str, int]) -> None:
        """A log has a new marker: what it says to be drained waits no longer."""
        for topic, index in self.indexes():
            index.drained(log, upto=drained.get(topic, 0))

    def add_record(self, topic: str, record: Record) -> str | None:
        """Take in a record of another site's strays log; returns the log for which a stray waits now, if any."""
        self._others[topic].end = max(self._others[topic].end, record.offset + 1)
        stray = of_box(topic, record, self.own.is_box_log)
        if stray is not None and (kept := kept_reading(record, stray)) is not None:
            return stray.log if self.learn(topic, stray.log, kept) else None
        return None

    def learn(self, topic: str, log: str, kept: KeptReading) -> bool:
        """Take in a reading in another site's strays log; False when it is drained already.

        An event waits for the site that keeps it.
        """
        index = self._others[topic]
        index.end = max(index.end, kept.offset + 1)
        if kept.offset < (floor := self.floor(log, topic)):
            index.passed(log, floor)
            return False
        index.add(log, *kept)
        return True

    def floor(self, log: str, topic: str) -> int:
        """The offset before which the strays of a log in one strays log are drained, as its newest marker says."""
        grant = self._view.grant(log)
        return grant.drained.get(topic, 0) if grant is not None else 0

    def is_put_back(self, log: str) -> bool:
        """Whether less of a log's strays is drained, as its newest marker says, than was said before: a seizure has cut
        off the markers that said so. Its own entry need not be here yet."""
        return any(index.done(log) > self.floor(log, topic) for topic, index in self.indexes())

    def look_again(self, log: str, topic: str, found: Iterable[KeptReading]) -> None:
        """Learn the strays of one log in one strays log anew: all that are between ``floor`` and ``index.end``.

        Needed after a seizure: what the lost holder had drained is drained no more.
        """
        index = dict(self.indexes())[topic]
        floor = self.floor(log, topic)
        index.forget(log)
        for kept in found:
            if floor <= kept.offset < index.end:
                index.add(log, *kept)
