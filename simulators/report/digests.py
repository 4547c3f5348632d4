"""Digest against bulk: what the ships said by satellite, beside the readings that arrived later.

A digest gives the newest reading of a box, so at the time that it names, the box's log must have the same values. The
comparing is pure; ``read_digests`` reads the logs with the sizes of their batches.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import extents, readable
from fairlead.kafka.convention import is_data, received_ms, time_ms
from fairlead.kafka.protocol.batch import split
from fairlead.kafka.protocol.errors import broker_error
from fairlead.kafka.protocol.record import Record
from fairlead.kafka.protocol.types import TP
from fairlead.records import UNREADABLE, decoder
from fairlead.records.digest import Digest, DigestBox, decode_digest
from fairlead.records.reading import Reading, milliseconds
from simulators.fleet.plan import VoyagePlan
from simulators.fleet.timetable import Timetable

_KELVIN: Final = 0.005  # a digest has hundredths of a degree
_reading = decoder(Reading)


class DigestFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The digests of one passage.

    Args:
        bytes: Of their batches in Kafka, as a link copies them.
        told: How often a digest tells of a box; ``equal``: how often the box's log has this reading, with the same
            set point, temperatures and power.
        sunk: How often a digest tells of a reading that was lost for good with the ship.
        kelvin_apart: The largest difference of a temperature, between a digest and the reading of that time.
    """

    ship: str
    start: str
    end: str
    digests: int
    bytes: int
    told: int
    equal: int
    kelvin_apart: float
    sunk: int = 0

    @property
    def ok(self) -> bool:
        """Whether every reading that a digest tells of is there and the same, or sank with the ship."""
        return self.equal + self.sunk == self.told

    @property
    def passage(self) -> str:
        return f"{self.ship}, {self.start} to {self.end}"


class StoredDigest(NamedTuple):
    """A digest as it is stored: ``size`` is its batch's. None: it cannot be read."""

    log: str
    size: int
    digest: Digest | None


async def read_digests(cluster: Cluster) -> list[StoredDigest]:
    """Read all digests of all ships that the cluster has, up to the logs' present ends.

    Raises:
        BrokerError: a log cannot be read.
    """
    logs = [topic for topic in await cluster.topics(refresh=True) if topic.startswith("ships.")]
    return [found for log in sorted(logs) if log.endswith(".digest") async for found in _digests_of(cluster, log)]


async def _digests_of(cluster: Cluster, log: str) -> AsyncIterator[StoredDigest]:
    extent = (await extents(cluster, [TP(log)]))[TP(log)]
    position = extent.start
    while position < extent.end:
        answer = (await cluster.fetch({TP(log): position}, partition_max_bytes=1 << 20))[TP(log)]
        if answer.error_code:
            raise broker_error(answer.error_code, TP(log))
        for view in split(answer.records):
            position = view.header.next_offset
            for record in filter(is_data, readable(answer.records, view)):
                digest = None
                with contextlib.suppress(*UNREADABLE):
                    digest = decode_digest(record.value or b"")
                yield StoredDigest(log, view.stop - view.start, digest)


Times = dict[str, dict[int, list[Reading]]]
"""Readings by container and time (milliseconds since 1970)."""


def told_times(digests: Iterable[StoredDigest]) -> Times:
    """Return the containers and times that digests tell of, without readings."""
    times: Times = {}
    for stored in digests:
        for box in stored.digest.boxes if stored.digest is not None else ():
            times.setdefault(box.equipment_reference, {})[milliseconds(box.reading_date_time)] = []
    return times


def add_readings(times: Times, records_of_log: Mapping[str, Sequence[Record]]) -> None:
    """Add the readings of these times, from the records of the containers' logs."""
    for log, records in records_of_log.items():
        of_box = times.get(log.partition(".")[2])
        for record in records if of_box is not None else ():
            known = of_box.get(min(time_ms(record), received_ms(record))) if of_box is not None else None
            if known is not None:
                with contextlib.suppress(*UNREADABLE):
                    known.append(_reading.decode(record.value or b""))


def digest_figures(
    plan: VoyagePlan, digests: Sequence[StoredDigest], times: Times, sunk: Collection[str] = ()
) -> tuple[DigestFigures, ...]:
    """Return the figures of every passage whose ship has sent a digest. One that cannot be read counts as one that
    tells of a box which has no such reading.

    Args:
        sunk: Ships that were lost with their clusters. Of readings that are nowhere else, their digests say the last.
    """
    figures = []
    for ship, table in sorted(plan.timetables.items()):
        own = [each for each in digests if each.log == f"ships.{table.imo}.digest"]
        for (start, departs), (end, arrives) in _passages(table):
            sent = [d for d in own if d.digest is None or departs <= d.digest.as_of_date_time < arrives]
            if sent:
                figures.append(_of_passage(ship, start, end, sent, times, lost=ship in sunk))
    return tuple(figures)


def _passages(table: Timetable) -> Iterable[tuple[tuple[str, dt.datetime], tuple[str, dt.datetime]]]:
    """Return from where and when to where and when, for each passage."""
    calls = pairwise(table.calls)
    return (((one.port, one.departs), (other.port, other.arrives)) for one, other in calls)


def _of_passage(
    ship: str, start: str, end: str, sent: Sequence[StoredDigest], times: Times, *, lost: bool
) -> DigestFigures:
    told = equal = sunk = 0
    most = 0.0
    for stored in sent:
        boxes = stored.digest.boxes if stored.digest is not None else ()
        told += len(boxes) if stored.digest is not None else 1
        for box in boxes:
            readings = times[box.equipment_reference][milliseconds(box.reading_date_time)]
            equal += any(_equal(box, reading) for reading in readings)
            sunk += lost and not readings
            most = max(most, min((_kelvin_apart(box, reading) for reading in readings), default=0.0))
    return DigestFigures(
        ship=ship,
        start=start,
        end=end,
        digests=len(sent),
        bytes=sum(stored.size for stored in sent),
        told=told,
        equal=equal,
        kelvin_apart=most,
        sunk=sunk,
    )


def _temperatures(box: DigestBox, reading: Reading) -> Iterable[tuple[float | None, float | None]]:
    measured = reading.measurements
    return (
        (box.setpoint_temperature, reading.setpoints.temperature),
        (box.supply_temperature, measured.supply_temperature),
        (box.return_temperature, measured.return_temperature),
    )


def _kelvin_apart(box: DigestBox, reading: Reading) -> float:
    pairs = _temperatures(box, reading)
    return max((abs(a - b) for a, b in pairs if a is not None and b is not None), default=0.0)


def _equal(box: DigestBox, reading: Reading) -> bool:
    return (
        all((a is None) == (b is None) for a, b in _temperatures(box, reading))
        and _kelvin_apart(box, reading) <= _KELVIN
        and box.is_powered == reading.is_powered
        and box.is_connected_to_power_source == reading.is_connected_to_power_source
    )
