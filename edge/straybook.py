"""All strays that this site can see: its own, and those in its copies of other sites' strays logs.

The holder of a log drains what every site has kept for it. So the index of every strays log is kept, of all logs: any
of them may come here. What an earlier holder has drained is told by the newest marker of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from typing import Final

from edge import records
from edge.strays import StrayIndex, Strays, readable
from fairlead.custody import CustodyView
from fairlead.wire.record import Record

NOTHING: Final[Mapping[str, int]] = {}


class StrayBook:
    """The indexes of all strays logs here.

    Args:
        own: This site's own strays.
        others: Topics of the other sites' strays logs.
        on_stray: Told each log for which another site's stray has come.
    """

    def __init__(
        self, own: Strays, others: tuple[str, ...], view: CustodyView, *, on_stray: Callable[[str], None]
    ) -> None:
        self.own = own
        self._view = view
        self._others = {topic: StrayIndex() for topic in others}
        self._on_stray = on_stray

    def indexes(self) -> Iterator[tuple[str, StrayIndex]]:
        """Every strays log with its index, this site's own first."""
        yield self.own.log, self.own.index
        yield from self._others.items()

    def wait_for(self, log: str) -> bool:
        """Whether readings of this log wait in any strays log."""
        return self.own.wait_for(log) or any(index.has(log) for index in self._others.values())

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

    def take(self, topic: str, record: Record, at_start: bool) -> None:
        """A record of another site's strays log, there at start or as it comes."""
        index = self._others[topic]
        index.end = max(index.end, record.offset + 1)
        stray = readable(record)
        if stray is None or stray.event:
            return  # an event waits for the site that keeps it
        if record.offset < (floor := self.floor(stray.log, topic)):
            index.passed(stray.log, floor)
            return
        identity = records.identity(stray.payload)
        if identity is not None:
            index.add(stray.log, record.offset, identity, records.received_ms(record))
            if not at_start:
                self._on_stray(stray.log)

    def floor(self, log: str, topic: str) -> int:
        """The offset before which the strays of a log in one strays log are drained, as its newest marker says."""
        grant = self._view.grant(log)
        return grant.drained.get(topic, 0) if grant is not None else 0

    def is_put_back(self, log: str) -> bool:
        """Whether less of a log's strays is drained, as its newest marker says, than was said before: a seizure has cut
        off the markers that said so. Its own entry need not be here yet."""
        return any(index.done(log) > self.floor(log, topic) for topic, index in self.indexes())

    def look_again(self, log: str, topic: str, found: list[Record]) -> None:
        """Learn the strays of one log in one strays log anew, from its records between ``floor`` and ``index.end``.

        Needed after a seizure: what the lost holder had drained is drained no more.
        """
        index = dict(self.indexes())[topic]
        floor = self.floor(log, topic)
        index.forget(log)
        for record in found:
            stray = readable(record)
            if stray is None or stray.event or stray.log != log or not floor <= record.offset < index.end:
                continue
            identity = records.identity(stray.payload)
            if identity is not None:
                index.add(log, record.offset, identity, records.received_ms(record))
