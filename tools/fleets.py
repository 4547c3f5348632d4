"""Whole fleets, from the model of a voyage and a few measured costs: brokers, replicators, memory, disk, satellites.

One row for each number of boxes, all from one run of the model (``sizing.sizes``). A fleet has as many ships as carry
its boxes, ``SHIP_TAKES`` each at most. What boxes cause at sea is divided among the ships; what all ships get from
headquarters is not. ``predict`` is the part of the model that a copy of some logs can check. Pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from replication.replicator import MEMORY
from simulators.fleet.planner import SHIP_TAKES
from simulators.scale.costs import (
    CABLE_SHARE,
    LOG_ON_DISK,
    LOGS_PER_BROKER,
    REPLICATOR_BASE,
    REPLICATOR_CPU,
    REPLICATOR_IDLE,
    REPLICATOR_LOG,
    REPLICATOR_START,
    Cost,
)
from simulators.scale.sizing import LinkSize, Size

DAYS_KEPT: Final = 365  # for which disk is computed
MEMORY_EACH: Final = 1e9  # bytes of a replicator's process; more logs make more replicators
COPIES: Final = 3  # brokers that keep each log, in the second column of brokers
DAY: Final = 86_400
USED: Final[tuple[Cost, ...]] = (
    LOGS_PER_BROKER,
    LOG_ON_DISK,
    REPLICATOR_BASE,
    REPLICATOR_LOG,
    REPLICATOR_CPU,
    REPLICATOR_IDLE,
    REPLICATOR_START,
    CABLE_SHARE,
)


@dataclass(frozen=True, slots=True)
class SatelliteSize:
    """One direction of one ship's satellite link. Bytes are those on the wire, ``rate`` is in bytes a second.

    Args:
        fullest_day: From the ship, on the day of its call. To the ship, if all ships of the fleet call on one day.
    """

    bytes_per_day: float
    rate: int
    fullest_day: float

    @property
    def minutes_per_day(self) -> float:
        """Minutes for which the link is busy."""
        return self.bytes_per_day / self.rate / 60

    @property
    def share(self) -> float:
        """Part of the rate that is used, on average."""
        return self.bytes_per_day / self.rate / DAY

    @property
    def fullest_share(self) -> float:
        """Part of the rate that is used on the fullest day; above 1 the link is late."""
        return self.fullest_day / self.rate / DAY


@dataclass(frozen=True, slots=True)
class FleetSize:
    """One fleet at its headquarters, which have every log, and its fullest ship.

    Args:
        ships: How many carry the boxes.
        logs: At headquarters.
        brokers: At headquarters, with one copy of each log.
        brokers_copied: The same with ``COPIES`` copies.
        replicators: At headquarters, with ``MEMORY_EACH`` each.
        replicator_bytes: Memory of one replicator that follows all logs and catches up.
        replicator_cores: Of headquarters' replicators, standing by and copying.
        records_per_day: Stored at headquarters.
        stored_per_day: Their bytes.
        fetched_per_day: Bytes over all links to headquarters.
        disk: Bytes for one copy of ``DAYS_KEPT`` days.
        aboard: Most boxes of the fullest ship.
    """

    boxes: int
    ships: int
    logs: float
    brokers: int
    brokers_copied: int
    replicators: int
    replicator_bytes: float
    replicator_cores: float
    records_per_day: float
    stored_per_day: float
    fetched_per_day: float
    disk: float
    aboard: float
    from_ship: SatelliteSize
    to_ship: SatelliteSize

    @property
    def memory_of_all(self) -> float:
        """Memory of all replicators at headquarters; each has a process and ``--memory`` of its own."""
        return self.replicator_bytes + (self.replicators - 1) * replicator_bytes(0)


def fleet(size: Size, headquarters: str, ship: str) -> FleetSize:
    """Return the size of a fleet with these headquarters; ``ship`` has the most boxes.

    Raises:
        LookupError: no satellite link between the two has a rate.
    """
    site = next(each for each in size.sites if each.name == headquarters)
    up, down = _satellite(size, ship, headquarters), _satellite(size, headquarters, ship)
    own = _ships(size.most_aboard[ship])
    ships = sum(_ships(count) for count in size.most_aboard.values())
    more = ships / len(size.most_aboard)  # how often each modelled ship's positions come
    cores = site.replicator_cores + site.logs * REPLICATOR_IDLE.value / 1e6
    memory = replicator_bytes(site.logs)
    each = MEMORY_EACH - replicator_bytes(0)  # left for logs
    return FleetSize(
        boxes=size.containers,
        ships=ships,
        logs=site.logs,
        brokers=brokers(site.logs),
        brokers_copied=brokers(site.logs, COPIES),
        replicators=max(1, math.ceil(site.logs * REPLICATOR_LOG.value / each)),
        replicator_bytes=memory,
        replicator_cores=cores,
        records_per_day=site.stored_records_per_day,
        stored_per_day=site.stored_bytes_per_day,
        fetched_per_day=sum(link.bytes_per_day for link in size.links if _target(link) == headquarters),
        disk=site.stored_bytes_per_day * DAYS_KEPT + site.logs * LOG_ON_DISK.value,
        aboard=size.most_aboard[ship] / own,
        from_ship=SatelliteSize(
            (up.bytes_per_day - up.fixed_bytes_per_day) / own + up.fixed_bytes_per_day,
            _rate(up),
            up.bytes_peak_day / own,
        ),
        to_ship=SatelliteSize(
            down.bytes_per_day + down.fixed_bytes_per_day * (more - 1), _rate(down), down.bytes_peak_day
        ),
    )


def brokers(logs: float, copies: int = 1) -> int:
    """Return how many brokers a site needs for its logs; at least as many as there are copies."""
    return max(copies, math.ceil(logs * copies / LOGS_PER_BROKER.value))


def replicator_bytes(logs: float, behind: float = math.inf) -> float:
    """Return the memory of a replicator that follows these logs and is ``behind`` by so many bytes, of which
    ``--memory`` are in flight or wait at most."""
    return REPLICATOR_BASE.value * 1e6 + logs * REPLICATOR_LOG.value + min(behind, MEMORY)


@dataclass(frozen=True, slots=True)
class Prediction:
    """What copying some logs costs: bytes in the copy, on the wire and on the target's disk, memory and CPU."""

    stored_bytes: float
    wire_bytes: float
    disk_bytes: float
    memory_bytes: float
    cpu_seconds: float


def predict(logs: int, records: int, record_bytes: float) -> Prediction:
    """Return what a first copy costs.

    Args:
        record_bytes: Of one record in its log (``costs.stored_bytes``).
    """
    stored = records * record_bytes
    return Prediction(
        stored_bytes=stored,
        wire_bytes=stored / CABLE_SHARE.value,
        disk_bytes=stored + logs * LOG_ON_DISK.value,
        memory_bytes=replicator_bytes(logs, stored),
        cpu_seconds=REPLICATOR_START.value + records * REPLICATOR_CPU.value / 1e6,
    )


def _ships(aboard: float) -> int:
    return max(1, math.ceil(aboard / SHIP_TAKES))


def _satellite(size: Size, source: str, target: str) -> LinkSize:
    for link in size.links:
        if link.name == f"{source}->{target}" and link.rate is not None:
            return link
    raise LookupError(f"no link from {source} to {target} has a rate")


def _target(link: LinkSize) -> str:
    return link.name.partition("->")[2].partition(":")[0]


def _rate(link: LinkSize) -> int:
    return link.rate or 0
