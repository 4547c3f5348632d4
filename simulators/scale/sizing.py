"""Count a whole voyage without brokers: records, bytes over each link, storage at each site, day by day. Pure.

A fleet of more than ``MODELLED`` boxes is modelled by ``MODELLED`` boxes of the same mix; counts that boxes cause are
multiplied, and the result says so. Per day is the average over the voyage, the peak is the fullest day. Bytes over a
link are those on the wire, bytes at a site those in its logs.

A site fetches a record over the link that has it first: by cable rather than by satellite, by satellite rather than at
the next berth. If a link carries a stream ``aboard``, its logs follow custody and are counted when a box is loaded. A
ship's digests count as bytes, not as records. Not counted: empty fetch requests, strays, dead letters, alerts, the
customers' feeds and tables, and records that are sent again after a failure.
"""

from __future__ import annotations

import bisect
import datetime as dt
import heapq
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from edge.alerts.digest import INTERVAL_S, WHOLE_EVERY
from fairlead.kafka.protocol.codecs import Codec
from fairlead.names import parse_log
from fairlead.records import decoder
from fairlead.records.event import Event
from simulators.fleet.plan import VoyagePlan
from simulators.fleet.planner import SHIP_TAKES
from simulators.network.weather import carrier_of
from simulators.scale.costs import (
    BENCHMARKED,
    BRIDGE_CPU,
    CABLE_SHARE,
    DATA_SHARE,
    DIGEST_BOX,
    REPLICATOR_CPU,
    Cost,
    custody_bytes,
    message_bytes,
    overhead,
)
from simulators.steps import MessageKind, Publish
from simulators.voyage.voyage import Voyage
from topologies.model import Link, SiteKind, Topology


@dataclass(frozen=True, slots=True)
class LinkSize:
    """Traffic over a link, per day on average and on its fullest day. Bytes are those on the wire.

    ``fixed_bytes_per_day`` is the part that does not grow with the number of boxes, such as ships' positions.
    """

    name: str
    carrier: str
    records_per_day: float
    bytes_per_day: float
    bytes_peak_day: float
    fixed_bytes_per_day: float
    rate: int | None  # bytes per second
    share_of_rate: float | None  # share of a day's capacity at this rate, on the fullest day


@dataclass(frozen=True, slots=True)
class SiteSize:
    """Storage and CPU of a site. ``kept_bytes``: in its logs at the end of the voyage, after retention."""

    name: str
    published_per_day: float
    stored_records_per_day: float
    stored_bytes_per_day: float
    stored_bytes_peak_day: float
    kept_bytes: float
    logs: float
    bridge_cores: float
    replicator_cores: float


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a fleet. ``factor`` is how many boxes each modelled one stands for."""

    scenario: str
    topology: str
    seed: int
    containers: int
    modelled: int
    factor: float
    days: float
    reading_interval_minutes: float
    records: dict[str, float]  # by kind
    most_aboard: dict[str, float]
    links: tuple[LinkSize, ...]
    sites: tuple[SiteSize, ...]
    costs: tuple[Cost, ...]
    notes: tuple[str, ...]


_COST = {"cable": 1, "satellite": 100, "berth": 10_000}


@dataclass(frozen=True, slots=True)
class Hop:
    """One link that a record crosses; ``late`` when it or a link before it is at a berth."""

    link: Link
    late: bool


def hops(topology: Topology, log: str, origin: str, berth: str | None) -> tuple[Hop, ...]:
    """Return the links that carry a record of ``log`` from ``origin`` to all sites that take it, nearest site first.

    Args:
        berth: For a ship, the port at which it lies or calls next; its links at other berths do not count.
    """
    name = parse_log(log)
    if name is None:
        return ()
    reached: dict[str, int] = {}
    found: list[Hop] = []
    heap: list[tuple[int, str, int, Link | None, bool]] = [(0, origin, 0, None, False)]
    number = 0
    while heap:
        cost, site, _, link, late = heapq.heappop(heap)
        if site in reached:
            continue
        reached[site] = cost
        if link is not None:
            found.append(Hop(link, late))
        for onward in topology.links_from(site):
            if onward.to in reached or not topology.takes(onward, name) or onward.streams.get(name.stream) == "aboard":
                continue
            if onward.when == "berthed" and (site != origin or onward.to != berth):
                continue
            number += 1
            step = _COST[carrier_of(onward, topology)]
            heapq.heappush(heap, (cost + step, onward.to, number, onward, late or onward.when == "berthed"))
    return tuple(found)


MODELLED = 5_000  # boxes; modelling a voyage of weeks takes some ten seconds
_DAY = dt.timedelta(days=1)
_event = decoder(Event)


@dataclass(slots=True)
class _Days:
    """Records, and bytes by day and stream."""

    records: float = 0.0
    bytes: dict[tuple[int, str], float] = field(default_factory=lambda: defaultdict(float))
    fixed: float = 0.0  # bytes that boxes do not cause

    def add(self, day: int, stream: str, records: float, size: float, *, fixed: bool = False) -> None:
        self.records += records
        self.bytes[day, stream] += size
        if fixed:
            self.fixed += size

    @property
    def total(self) -> float:
        return sum(self.bytes.values())

    @property
    def peak(self) -> float:
        by_day: dict[int, float] = defaultdict(float)
        for (day, _), size in self.bytes.items():
            by_day[day] += size
        return max(by_day.values(), default=0.0)


class Sizer:
    """Counts the messages of one plan; call ``result`` when all are counted.

    Args:
        containers: How many boxes the fleet has; the plan may have fewer.
    """

    def __init__(self, plan: VoyagePlan, containers: int) -> None:
        self._plan, self._topology = plan, plan.topology
        self._containers = containers
        self._factor = containers / len(plan.boxes)
        self._links: dict[str, _Days] = defaultdict(_Days)
        self._sites: dict[str, _Days] = {name: _Days() for name in plan.topology.sites}
        self._logs: dict[str, set[str]] = defaultdict(set)
        self._box_logs: dict[str, set[str]] = defaultdict(set)
        self._published: dict[str, float] = defaultdict(float)
        self._fetched: dict[str, float] = defaultdict(float)
        self._kinds: dict[str, float] = defaultdict(float)
        self._payloads: dict[MessageKind, tuple[int, int]] = {}  # messages and bytes
        self._stored: dict[MessageKind, int] = defaultdict(int)  # bytes in logs
        self._overhead: dict[MessageKind, int] = {}
        self._custody: dict[Codec, tuple[int, int]] = {}
        self._ships = {name for name, site in plan.topology.sites.items() if site.kind is SiteKind.SHIP}
        self._told = told_by_reading(plan.scenario.reading_interval)
        self._boxes: dict[str, tuple[int, int]] = {}  # records and bytes of each container's log so far
        self._ways: dict[tuple[str, str, str | None], tuple[Hop, ...]] = {}
        tables = plan.timetables.items()
        self._departures = {name: [call.departs for call in table.calls] for name, table in tables}

    def stored(self, message: Publish) -> int:
        """Return the bytes that a message takes in a log. A ship's bridge compresses it."""
        if message.site in self._ships:
            return message_bytes(message, Codec.ZSTD)
        extra = self._overhead.get(message.kind)
        if extra is None:
            extra = self._overhead[message.kind] = overhead(message)
        return len(message.payload) + extra

    def count(self, message: Publish, size: int) -> None:
        """Count one message of the voyage, which takes ``size`` bytes in a log."""
        log, kind = message.log, message.kind
        if log is None or kind is MessageKind.REPEAT:
            return
        weight = self._factor if kind in (MessageKind.READING, MessageKind.BOOKING) or message.moves_log else 1.0
        count, so_far = self._payloads.get(kind, (0, 0))
        self._payloads[kind] = (count + 1, so_far + len(message.payload))
        self._stored[kind] += size
        self._published[message.site] += weight
        self._kinds[kind] += weight
        by_box = kind in (MessageKind.READING, MessageKind.BOOKING) or message.moves_log is not None
        of_box = kind is MessageKind.READING
        self._record(log, message.site, message.sim_time, size, weight, of_box=of_box, fixed=not by_box)
        if message.moves_log:
            self._move(message, message.moves_log)
        if of_box and message.site in self._ships:
            digest = f"ships.{self._topology.sites[message.site].imo}.digest"
            size = round(DIGEST_BOX.value * self._told)
            self._record(digest, message.site, message.sim_time, size, weight, of_box=False, records=0.0)

    def _move(self, message: Publish, log: str) -> None:
        site, time = message.site, message.sim_time
        codec = Codec.ZSTD if site in self._ships else Codec.NONE
        if codec not in self._custody:
            self._custody[codec] = custody_bytes(log, site, message.key, time, codec)
        marker, entry = self._custody[codec]
        self._kinds["marker"] += self._factor
        self._kinds["custody entry"] += self._factor
        self._record(log, site, time, marker, self._factor, of_box=True)
        self._record(f"custody.{site}", site, time, entry, self._factor, of_box=False)
        if message.detail == "LOAD":
            self._take_aboard(message, log)

    def _take_aboard(self, message: Publish, log: str) -> None:
        """Count the log that travels to the ship with a loaded box."""
        ship = self._topology.ship_with(str(_event.decode(message.payload).payload.vessel_imo_number))
        stream = log.partition(".")[0]
        wanted = (link for link in self._topology.links_from(message.site) if link.to == ship)
        link = next((link for link in wanted if link.streams.get(stream) == "aboard"), None)
        if link is None or ship is None:
            return
        records, size = (self._factor * value for value in self._boxes[log])
        day = self._day(message.sim_time)
        self._links[link.name].add(day, stream, records, size)
        self._store(ship, log, day, records, size, of_box=True)
        self._fetched[ship] += records

    def _record(
        self,
        log: str,
        site: str,
        time: dt.datetime,
        size: int,
        weight: float,
        *,
        of_box: bool,
        fixed: bool = False,
        records: float | None = None,
    ) -> None:
        """Count bytes of a log at its site and on their way. ``weight``: how often. ``records``: ``weight`` of them by
        default."""
        count = weight if records is None else records
        if of_box:
            so_many, so_far = self._boxes.get(log, (0, 0))
            self._boxes[log] = (so_many + 1, so_far + size)
        day, stream = self._day(time), log.partition(".")[0]
        berth, there = self._berth(site, time)
        key = (log if stream == "ships" else stream, site, berth)  # links take some logs of a ship and not others
        found = self._ways.get(key)
        if found is None:
            found = self._ways[key] = hops(self._topology, log, site, berth)
        self._store(site, log, day, count, size * weight, of_box=of_box)
        for way in found:
            when = max(day, there) if way.late else day
            self._links[way.link.name].add(when, stream, count, size * weight, fixed=fixed)
            self._store(way.link.to, log, when, count, size * weight, of_box=of_box)
            self._fetched[way.link.to] += count

    def _store(self, site: str, log: str, day: int, records: float, size: float, *, of_box: bool) -> None:
        self._sites[site].add(day, log.partition(".")[0], records, size)
        (self._box_logs if of_box else self._logs)[site].add(log)

    def _day(self, time: dt.datetime) -> int:
        return (time - self._plan.starts) // _DAY

    def _berth(self, site: str, time: dt.datetime) -> tuple[str | None, int]:
        """Return the port at which a ship lies or calls next, and the day from which it is there."""
        departures = self._departures.get(site)
        if departures is None:
            return None, 0
        calls = self._plan.timetables[site].calls
        call = calls[min(bisect.bisect_right(departures, time), len(calls) - 1)]
        return call.port, self._day(call.arrives)

    def result(self) -> Size:
        plan = self._plan
        days = (plan.ends - plan.starts) / _DAY
        seconds = days * 86_400
        costs = [*BENCHMARKED]
        for kind, (count, size) in sorted(self._payloads.items()):
            costs.append(Cost(f"payload, {kind}", round(size / count, 1), "B", "measured here", f"{count} of them"))
            where = "fairlead.kafka encodes the bridge's records, each alone in its batch; a ship compresses"
            extra = round((self._stored[kind] - size) / count, 1)
            costs.append(Cost(f"in a log beyond it, {kind}", extra, "B", "measured here", where))
        if self._custody:
            known = next(iter(self._custody.values()))
            for name, value in zip(("marker of a move", "custody entry of a move"), known, strict=True):
                costs.append(Cost(name, value, "B", "measured here", "fairlead.kafka encodes an example"))
        return Size(
            scenario=plan.scenario.name,
            topology=plan.topology.name,
            seed=plan.seed,
            containers=self._containers,
            modelled=len(plan.boxes),
            factor=round(self._factor, 4),
            days=round(days, 2),
            reading_interval_minutes=plan.scenario.reading_interval / dt.timedelta(minutes=1),
            records={str(kind): round(count) for kind, count in sorted(self._kinds.items())},
            most_aboard={name: round(count) for name, count in self._most_aboard().items()},
            links=tuple(self._link(link, days) for link in self._topology.directed_links()),
            sites=tuple(self._site(name, days, seconds) for name in self._topology.sites),
            costs=tuple(costs),
            notes=tuple(self._notes()),
        )

    def _link(self, link: Link, days: float) -> LinkSize:
        found = self._links[link.name]
        carrier = carrier_of(link, self._topology)
        share = (DATA_SHARE if carrier == "satellite" else CABLE_SHARE).value
        peak = found.peak / share
        return LinkSize(
            name=link.name,
            carrier=carrier,
            records_per_day=round(found.records / days, 1),
            bytes_per_day=round(found.total / share / days),
            bytes_peak_day=round(peak),
            fixed_bytes_per_day=round(found.fixed / share / days),
            rate=link.rate,
            share_of_rate=round(peak / (link.rate * 86_400), 4) if link.rate else None,
        )

    def _site(self, name: str, days: float, seconds: float) -> SiteSize:
        found, site = self._sites[name], self._topology.sites[name]
        kept = sum(
            size
            for (day, stream), size in found.bytes.items()
            if (days - day) * _DAY <= max(site.retention_of(stream), _DAY)
        )
        return SiteSize(
            name=name,
            published_per_day=round(self._published[name] / days, 1),
            stored_records_per_day=round(found.records / days, 1),
            stored_bytes_per_day=round(found.total / days),
            stored_bytes_peak_day=round(found.peak),
            kept_bytes=round(kept),
            logs=round(len(self._logs[name]) + len(self._box_logs[name]) * self._factor),
            bridge_cores=round(self._published[name] / seconds * BRIDGE_CPU.value / 1e6, 6),
            replicator_cores=round(self._fetched[name] / seconds * REPLICATOR_CPU.value / 1e6, 6),
        )

    def _most_aboard(self) -> dict[str, float]:
        """Return the most boxes that each ship carries at any time."""
        changes: dict[str, list[tuple[dt.datetime, int]]] = {name: [] for name in self._plan.timetables}
        for box in self._plan.boxes:
            for move in box.moves:
                if move.code == "LOAD" and move.to in changes:
                    changes[move.to].append((move.time, 1))
                elif move.code == "DISC":
                    changes[move.site].append((move.time, -1))
        most = {}
        for name, steps in changes.items():
            aboard = top = 0
            for _, step in sorted(steps):
                aboard += step
                top = max(top, aboard)
            most[name] = top * self._factor
        return most

    def _notes(self) -> list[str]:
        notes = []
        if self._factor > 1:
            notes.append(
                f"extrapolated: {len(self._plan.boxes):,} of {self._containers:,} boxes were modelled; what boxes "
                f"cause (readings, bookings, moves, custody) is multiplied by {self._factor:g}. Ships' positions and "
                "weather, arrivals and departures are not."
            )
        notes.append(
            "extrapolated: bytes on the wire are record batches divided by the share measured on one thin line, "
            "or between two brokers; "
            "CPU is the cost of one measured bridge and replicator at a size of their own, on one machine."
        )
        for name, count in self._most_aboard().items():
            if count > SHIP_TAKES:
                notes.append(
                    f"{name} would carry {count:,.0f} boxes, the largest ships take some {SHIP_TAKES:,}: read its "
                    f"lines as those of {-(-count // SHIP_TAKES):.0f} ships"
                )
        return notes


def told_by_reading(interval: dt.timedelta) -> float:
    """Return in how many digests a box is told for each of its readings: a digest every 15 minutes has the boxes that
    changed, and every 24th all of them (``edge.alerts.digest``)."""
    seconds = interval.total_seconds()
    changed = min(1.0, seconds / INTERVAL_S)
    return changed + seconds / (INTERVAL_S * WHOLE_EVERY) * max(0.0, 1 - INTERVAL_S / seconds)


def modelled(containers: int, lots: int) -> int:
    """Return how many boxes to model for a fleet of ``containers`` in ``lots``."""
    return max(lots, min(containers, MODELLED))


def size(voyage: Voyage, containers: int, on_progress: Callable[[int], None] = lambda _: None) -> Size:
    """Run the model of a voyage to its end, count its messages, and return the fleet's size.

    Args:
        on_progress: Called after every 5,000 messages with the number counted so far.
    """
    return sizes(voyage, [containers], on_progress)[0]


def sizes(voyage: Voyage, containers: Sequence[int], on_progress: Callable[[int], None] = lambda _: None) -> list[Size]:
    """Do as ``size`` for several fleets of the same mix, in one run of the model."""
    sizers = [Sizer(voyage.plan, count) for count in containers]
    done = 0
    for step in voyage.steps():
        if isinstance(step, Publish):
            stored = sizers[0].stored(step) if step.log is not None else 0
            for sizer in sizers:
                sizer.count(step, stored)
            done += 1
            if done % 5_000 == 0:
                on_progress(done)
    return [sizer.result() for sizer in sizers]
