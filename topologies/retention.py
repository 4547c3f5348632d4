"""Say which sites keep a log longer than another site, and whether their confirmations can reach it. Pure.

A site deletes records by age only if every site that gets them from here and keeps them longer has confirmed that it
has them. A site confirms by the ends of its logs, as records of ``ends.<site>``, which links carry like any other log.
"Gets them from here" follows the links onward from site to site: a record may have left for a site that keeps it no
longer, and still be on its way to one that does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from fairlead.names import LogName
from topologies.model import ENDS, InsertPoint, Link, Selection, SiteKind, Topology


class Keepers(NamedTuple):
    """The sites that keep a log longer than another site: ``always``, and ``if_holder``: only while they hold it."""

    always: frozenset[str]
    if_holder: frozenset[str]

    def wanted(self, holder: str | None) -> frozenset[str]:
        """Return the sites that must have a record before it is deleted. ``holder``: the site that holds the log."""
        return self.always | {holder} if holder is not None and holder in self.if_holder else self.always


NOBODY: Final = Keepers(frozenset(), frozenset())


class Unheard(NamedTuple):
    """A site that keeps a stream longer than ``site``, where its confirmations never arrive."""

    site: str
    stream: str
    keeper: str


class KeeperGraph:
    """The links of a topology, as ways of records and of confirmations."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._onward: dict[str, list[Link]] = {name: [] for name in topology.sites}
        for link in topology.directed_links():
            self._onward[link.from_].append(link)

    def keepers(self, site: str, log: LogName) -> Keepers:
        """Return the sites that get a log from ``site`` and keep it longer.

        A link that carries the log only ``aboard`` makes its target a keeper only while the target holds the log. The
        log may go on from there to others.
        """
        if log.stream == ENDS or log.stream not in self._topology.streams:
            return NOBODY
        takes = self._topology.takes
        return self._longer(site, log.stream, lambda link: link.streams[log.stream] if takes(link, log) else None)

    def awaited(self, site: str) -> frozenset[str]:
        """Return the sites that keep any stream longer than ``site`` and get it from there."""
        return frozenset(keeper for stream in self._topology.streams for keeper in self._stream_keepers(site, stream))

    def unheard(self) -> tuple[Unheard, ...]:
        """Return the sites whose confirmations have no way to a site that waits for them before it deletes."""
        hearers = {keeper: self._hearers(keeper) for keeper in self._topology.sites}
        return tuple(
            Unheard(site, stream, keeper)
            for site in self._topology.sites
            for stream in self._topology.streams
            for keeper in sorted(self._stream_keepers(site, stream))
            if site not in hearers[keeper]
        )

    def confirmed_streams(self, site: str) -> frozenset[str]:
        """Return the streams whose ends ``site`` publishes: those that it keeps longer than a site that waits for it.

        Streams are looked at as a whole, so that a stream may be published of which some logs need not be.
        """
        hearers = self._hearers(site)
        return frozenset(
            stream
            for stream in self._topology.streams
            if any(site in self._stream_keepers(other, stream) for other in hearers)
        )

    def _stream_keepers(self, site: str, stream: str) -> frozenset[str]:
        """Return the sites that get any log of a stream from ``site`` and keep it longer; rather too many."""
        if stream == ENDS:
            return frozenset()
        sites = self._topology.sites
        moves = self._topology.streams[stream].insert_point is InsertPoint.MOVES

        def selection(link: Link) -> Selection | None:
            # A ship gives only its own logs of a stream that does not move, so nothing goes on through it.
            through_ship = sites[link.from_].kind is SiteKind.SHIP and link.from_ != site
            return None if through_ship and not moves else link.streams.get(stream)

        found = self._longer(site, stream, selection)
        return found.always | found.if_holder

    def _hearers(self, site: str) -> set[str]:
        """Return the sites that the confirmations of ``site`` reach."""
        own = LogName(ENDS, site)
        takes = self._topology.takes
        whole, _ = self._reached(site, lambda link: link.streams[ENDS] if takes(link, own) else None)
        return whole - {site}

    def _longer(self, site: str, stream: str, selection: Callable[[Link], Selection | None]) -> Keepers:
        sites = self._topology.sites
        kept = sites[site].retention_of(stream)
        longer = {name for name, spec in sites.items() if name != site and spec.retention_of(stream) > kept}
        if not longer:
            return NOBODY
        whole, aboard = self._reached(site, selection)
        return Keepers(frozenset(whole & longer), frozenset((aboard - whole) & longer))

    def _reached(self, site: str, selection: Callable[[Link], Selection | None]) -> tuple[set[str], set[str]]:
        """Return the sites that logs reach from ``site``: over links that carry them always, and ``aboard``."""
        whole: set[str] = set()
        aboard: set[str] = set()
        seen, left = {site}, [site]
        while left:
            for link in self._onward[left.pop()]:
                chosen = selection(link)
                if chosen is None:
                    continue
                (aboard if chosen == "aboard" else whole).add(link.to)
                if link.to not in seen:
                    seen.add(link.to)
                    left.append(link.to)
        return whole, aboard
