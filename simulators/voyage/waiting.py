"""Wait for the real system: at a voyage's barriers, and at its end until every open link has carried everything.

Both compare log ends at the sites, not what the replicators report. Kafka has no call that waits for a log's end, so
ends are polled, many logs in one request.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from fairlead.custody.ledger import read_ledgers
from fairlead.custody.view import CustodyView
from fairlead.errors import FairleadError, UnavailableError
from fairlead.home import run_folder
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.clusters import Clusters
from fairlead.kafka.protocol.types import TopicPartition
from fairlead.names import parse_log
from fairlead.records.custody import CustodyEntry
from simulators.network.controller import Pair
from simulators.steps import BarrierKind, VoyageBarrier
from simulators.voyage.player import BarrierTimeout
from topologies.endpoints import EndpointResolver
from topologies.ledger_trust import sifted
from topologies.model import InsertPoint, Link, SiteKind, Topology
from topologies.users import ADMIN

INTERVAL = 0.1  # seconds between two polls at a barrier
SETTLING_INTERVAL = 0.2  # seconds between two polls of all logs of all links
GIVE_WAY = 10.0  # seconds without progress after which a barrier that may need a cut link is given up

log = logging.getLogger(__name__)


class AheadOfShip(msgspec.Struct, frozen=True, kw_only=True):
    """How much of what was known before a ship arrived its next port had. Figures are records, markers included.

    ``ashore``: what sites with a link to the port had; ``own``: the logs that the ship sends home at sea (alerts,
    positions, custody); ``boxes``: the logs of the boxes aboard, as the ship had them, most of which wait for the
    berth. Each with what the port had of it. ``seconds``: wall time in which the last of the first two came, while
    simulated time stood still. ``cut``: the sites of a link on the way that was cut. ``missing``: one log that the port
    lacked.
    """

    ship: str
    port: str
    at: dt.datetime
    ashore: int
    ashore_here: int
    own: int
    own_here: int
    boxes: int
    boxes_here: int
    seconds: float
    cut: tuple[str, str] | None = None
    missing: str = ""

    @property
    def complete(self) -> bool:
        return self.ashore_here == self.ashore and self.own_here == self.own


def ends_ahead(
    topology: Topology, port: str, ship: str, ends: Mapping[str, Mapping[str, int]]
) -> tuple[dict[str, int], dict[str, int], set[Pair]]:
    """Return the log ends that a port should have before a ship berths, by log: those of sites ashore, and the ship's;
    and the pairs of sites over whose links these records come.

    Only links that are always open count: those that lead to the port from ashore, and those that lead from the ship
    to the port, or to a site whose logs reach the port.

    Args:
        ends: Log ends by site.
    """
    always = [link for link in topology.directed_links() if link.when == "always"]
    here = [link for link in always if link.to == port and topology.sites[link.from_].kind is not SiteKind.SHIP]
    ashore: dict[str, int] = {}
    own: dict[str, int] = {}
    ways: set[Pair] = set()
    for link in here:
        for log, end in ends[link.from_].items():
            if _carries(topology, link, log):
                ashore[log] = max(end, ashore.get(log, 0))
                ways.add(frozenset((link.from_, link.to)))
    for link in always:
        for log, end in ends[ship].items() if link.from_ == ship else ():
            if topology.fixed_holder(log) == ship and _carries(topology, link, log):
                onward = [] if link.to == port else [each for each in here if _carries(topology, each, log)]
                if link.to == port or onward:
                    own[log] = end
                    ways |= {frozenset((each.from_, each.to)) for each in (link, *onward)}
    return {log: end for log, end in ashore.items() if log not in own}, own, ways


class Waiter:
    """Waits until a barrier's condition holds at the sites; while a site does not answer, it asks again.

    Args:
        timeout: Seconds without any progress after which a barrier fails.
        check: Called at every poll; raises if a worker that the voyage needs has ended.
        cut: Returns the pairs of sites whose link the scenario cuts now.
        sunk: Returns the sites that are lost; nobody asks them.
        left_over: Returns what is left of the topology now, in a scenario that loses a site.
    """

    def __init__(
        self,
        topology: Topology,
        clusters: Clusters,
        *,
        timeout: float = 60.0,
        check: Callable[[], None] = lambda: None,
        cut: Callable[[], Collection[Pair]] = tuple,
        sunk: Callable[[], Collection[str]] = tuple,
        left_over: Callable[[], Topology] | None = None,
    ) -> None:
        self._whole = topology
        self._left_over = left_over
        self._clusters = clusters
        self._timeout = timeout
        self._check = check
        self._cut = cut
        self.arrivals: list[AheadOfShip] = []
        self._sunk = sunk

    @property
    def _topology(self) -> Topology:
        return self._whole if self._left_over is None else self._left_over()

    async def wait(self, barrier: VoyageBarrier) -> None:
        """Wait until the barrier's condition holds. At an arrival, add to ``arrivals`` what the port has; that the port
        lacks something fails the report and not the voyage.

        Raises:
            BarrierTimeout: no progress for ``timeout`` seconds; the message names what is missing.
        """
        await self._until(barrier)
        if barrier.kind is BarrierKind.ARRIVAL:
            self.arrivals.append(await self._ahead(barrier))

    async def _ahead(self, barrier: VoyageBarrier) -> AheadOfShip:
        """Measure what a port has before a ship arrives. Wait for the rest while it comes: at most ``timeout`` seconds
        without progress, or ``GIVE_WAY`` seconds while a link on the way is cut."""
        port, ship = barrier.site, barrier.peer
        ends = await self._ends_of_sites()
        ashore, own, ways = ends_ahead(self._topology, port, ship, ends)
        boxes = {f"{self._topology.container_stream(number)}.{number}" for number in barrier.containers}
        began = moved_at = time.monotonic()
        there, before = ends[port], -1
        while True:
            here = {log: min(end, there.get(log, 0)) for log, end in (ashore | own).items()}
            lacking = [log for log, end in (ashore | own).items() if here[log] < end]
            now, total = time.monotonic(), sum(here.values())
            if total > before:
                before, moved_at = total, now
            cut = ways & set(self._cut())
            if not lacking or now - moved_at > (GIVE_WAY if cut else self._timeout):
                break
            self._check()
            await asyncio.sleep(INTERVAL)
            try:
                there = await _ends(await self._clusters.at(port), here)
            except FairleadError as error:
                if not error.retriable:
                    raise
        at_ship = {log: ends[ship].get(log, 0) for log in boxes}
        return AheadOfShip(
            ship=ship,
            port=port,
            at=barrier.sim_time,
            ashore=sum(ashore.values()),
            ashore_here=sum(here[log] for log in ashore),
            own=sum(own.values()),
            own_here=sum(here[log] for log in own),
            boxes=sum(at_ship.values()),
            boxes_here=sum(min(end, ends[port].get(log, 0)) for log, end in at_ship.items()),
            seconds=round(moved_at - began, 1),
            cut=min(((first, second) for first, second in map(sorted, cut)), default=None),
            missing=f"{lacking[0]}: {here[lacking[0]]} of {(ashore | own)[lacking[0]]}" if lacking else "",
        )

    async def _ends_of_sites(self) -> dict[str, dict[str, int]]:
        """Return every log's end by site, without lost sites.

        While a site does not answer, ask again, at most ``timeout`` seconds.
        """
        began, sites = time.monotonic(), [site for site in self._topology.sites if site not in self._sunk()]
        while True:
            try:
                return {site: await _all_ends(await self._clusters.at(site)) for site in sites}
            except FairleadError as error:
                if not error.retriable or time.monotonic() - began > self._timeout:
                    raise
            self._check()
            await asyncio.sleep(INTERVAL)

    async def _until(self, barrier: VoyageBarrier) -> None:
        """Wait until the barrier's condition holds, or until it gives way to a link that the scenario cuts.

        Raises:
            BarrierTimeout: no progress for ``timeout`` seconds; the message names what is missing.
        """
        moved_at = time.monotonic()
        before: list[str] = []
        while True:
            try:
                missing = await self._missing(barrier)
            except FairleadError as error:
                if not error.retriable:
                    raise
                missing = [error.what]  # no progress, even if each poll gives another error
            else:
                if not missing:
                    return
                if missing != before:
                    before, moved_at = missing, time.monotonic()
            self._check()
            now = time.monotonic()
            theirs = {barrier.site, barrier.peer}
            if barrier.gives_way and now - moved_at > GIVE_WAY and any(theirs & pair for pair in self._cut()):
                log.warning("a link is cut, going on without: %s; %s", barrier.description, missing[0])
                return
            if now - moved_at > self._timeout:
                raise BarrierTimeout(
                    f"waited {self._timeout:.0f} s for: {barrier.description}; still missing {len(missing)}, for "
                    f"example {missing[0]}",
                    hint="look at 'fairlead status' and the workers' logs in the state folder",
                    barrier=barrier.kind.value,
                    missing=missing[:20],
                )
            await asyncio.sleep(INTERVAL)

    async def _missing(self, barrier: VoyageBarrier) -> list[str]:
        match barrier.kind:
            case BarrierKind.RECORDED:
                return await self._missing_records(barrier.site, barrier.log_ends)
            case BarrierKind.CUSTODY:
                return await self._missing_custody(barrier.site, barrier.containers) or await self._missing_records(
                    barrier.site, barrier.log_ends
                )
            case BarrierKind.DEPARTURE:
                return (
                    await self._missing_custody(barrier.peer, barrier.containers)
                    or await self._missing_records(barrier.peer, barrier.log_ends)
                    or await self._missing_records(barrier.site, barrier.log_ends)
                )
            case BarrierKind.ARRIVAL:
                return await self._missing_records(barrier.peer, barrier.log_ends)
            case BarrierKind.FINISHED:
                return await self._missing_anywhere(barrier.log_ends)

    async def _missing_records(self, site: str, log_ends: Mapping[str, int]) -> list[str]:
        ends = await _ends(await self._clusters.at(site), log_ends)
        return [f"{log} at {site}: {ends[log]} of {end}" for log, end in log_ends.items() if ends[log] < end]

    async def _missing_anywhere(self, log_ends: Mapping[str, int]) -> list[str]:
        longest = dict.fromkeys(log_ends, 0)
        for site in self._topology.sites.keys() - set(self._sunk()):
            for log, end in (await _ends(await self._clusters.at(site), log_ends)).items():
                longest[log] = max(longest[log], end)
        return [f"{log}: {longest[log]} of {end}" for log, end in log_ends.items() if longest[log] < end]

    async def _missing_custody(self, site: str, containers: Collection[str]) -> list[str]:
        """Return the logs of which ``site`` is not the holder by its ledgers, or whose newest marker it lacks."""
        if not containers:
            return []
        view = await self.custody(site)
        logs = {f"{self._topology.container_stream(number)}.{number}" for number in containers}
        foreign = [f"custody of {log} at {site}" for log in sorted(logs) if view.holder(log) != site]
        return foreign or await self._missing_records(site, {log: (view.marker(log) or 0) + 1 for log in logs})

    async def custody(self, site: str) -> CustodyView:
        """Return the custody view of this site's ledgers now."""
        cluster = await self._clusters.at(site)
        view = CustodyView()
        for entry in sifted(self._whole, await read_ledgers(cluster, site)).entries:
            if isinstance(entry, CustodyEntry):
                view.apply(entry)
        return view


async def _ends(cluster: Cluster, logs: Collection[str]) -> dict[str, int]:
    """Return end offsets; 0 for a log that does not exist (yet)."""
    there = await cluster.topics(refresh=True)
    known = [TopicPartition(log) for log in logs if log in there]
    found = await cluster.end_offsets(known)
    ends = {tp.topic: end for tp, end in found.items() if isinstance(end, int)}
    return {log: ends.get(log, 0) for log in logs}


STATUS_SECONDS = 10.0  # a running replicator writes its status file each second


class NotSettled(UnavailableError):
    """A target lacks records that an open link carries."""


async def wait_until_settled(
    topology: Topology,
    resolver: EndpointResolver,
    folder: Path,
    *,
    patience: float,
    check: Callable[[], None] = lambda: None,
    sunk: Collection[str] = (),
) -> None:
    """Wait until, over every link that its policy does not close, the target has all of the source's records.

    Args:
        folder: State folder; the replicators' status files there name the closed links.
        patience: Seconds without any progress after which this fails.
        check: Called at each poll; raises if a replicator was given up.
        sunk: Sites that are lost; their links are left out.

    Raises:
        NotSettled: a log is still behind; the message names one.
    """
    async with Clusters(lambda site: resolver.kafka(site, ADMIN), client_id="fairlead-voyage") as clusters:
        before: dict[str, int] = {}
        since = time.monotonic()
        while behind := await behind_of(topology, clusters, folder, sunk):
            check()
            now = time.monotonic()
            if behind != before:
                before, since = behind, now
            if now - since > patience:
                example = next(iter(behind))
                raise NotSettled(
                    f"{sum(behind.values())} records in {len(behind)} logs are still missing after {patience:.0f} s, "
                    f"for example {example}",
                    hint="look at 'fairlead status'",
                    behind=behind,
                )
            await asyncio.sleep(SETTLING_INTERVAL)
    await wait_for_status(topology, folder, sunk=sunk)


async def wait_for_status(
    topology: Topology, folder: Path, patience: float = STATUS_SECONDS, *, sunk: Collection[str] = ()
) -> None:
    """Wait until the replicators' status files show no lag over open links, at most ``patience`` seconds. The report
    takes its figures from these files, which are written a moment after the records arrive."""
    end = time.monotonic() + patience
    while True:
        late = [
            link for link in reported_links(topology, folder, sunk) if link["state"] != "closed" and link.get("lag")
        ]
        if not late or time.monotonic() >= end:
            return
        await asyncio.sleep(SETTLING_INTERVAL)


async def behind_of(topology: Topology, clusters: Clusters, folder: Path, sunk: Collection[str] = ()) -> dict[str, int]:
    """Return the number of missing records by log and link, without closed links and those of lost sites."""
    ends = {site: await _all_ends(await clusters.at(site)) for site in topology.sites if site not in sunk}
    closed = {link["name"] for link in reported_links(topology, folder) if link["state"] == "closed"}
    out = {}
    for link in topology.directed_links():
        if link.name in closed or link.from_ in sunk or link.to in sunk:
            continue
        there = ends[link.to]
        for topic, end in ends[link.from_].items():
            if _carries(topology, link, topic) and there.get(topic, 0) < end:
                out[f"{topic} over {link.name}"] = end - there.get(topic, 0)
    return out


def _carries(topology: Topology, link: Link, topic: str) -> bool:
    """Return whether the target must have the log; False for a stream ``aboard`` the link, which follows custody."""
    log = parse_log(topic)
    if log is None or not topology.takes(link, log) or topology.fixed_holder(topic) == link.to:
        return False
    return link.streams[log.stream] != "aboard"


def reported_links(topology: Topology, folder: Path, sunk: Collection[str] = ()) -> Iterator[dict[str, Any]]:
    """Yield every link of the topology in the replicators' status files, without those of lost sites."""
    known = {link.name for link in topology.directed_links() if not {link.from_, link.to} & set(sunk)}
    for site in topology.sites:
        file = run_folder(folder, site) / f"replicator.{site}.json"
        if file.exists():
            links = json.loads(file.read_text(encoding="utf-8"))["links"]
            yield from (link for link in links if link["name"] in known)


async def _all_ends(cluster: Cluster) -> dict[str, int]:
    topics = [TopicPartition(topic) for topic in await cluster.topics(refresh=True) if parse_log(topic)]
    found = await cluster.end_offsets(topics)
    return {tp.topic: end for tp, end in found.items() if isinstance(end, int)}


async def container_logs(cluster: Cluster, topology: Topology) -> list[str]:
    """Return this cluster's logs of streams whose insert point moves with the container."""
    names = []
    for topic in await cluster.topics():
        log = parse_log(topic)
        stream = topology.streams.get(log.stream) if log else None
        if stream is not None and stream.insert_point is InsertPoint.MOVES:
            names.append(topic)
    return sorted(names)
