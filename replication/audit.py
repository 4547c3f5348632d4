"""Are two sites' logs equal? Quick proof by what is stored: the lists of (offset, CRC) of all batches.

CRCs travel unchanged, so two copies are equal when these lists are, and no record has to be decoded. A batch of an
ordinary client is compared by the CRC that every replica of it has (``content.canonical_crc``). Only the offsets that
both sites have are compared; retention is each site's own. A copy that had to be rebuilt (holes of compaction, aborted
transactions) differs here although readers see the same: the full audit by records settles that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from fairlead.endpoint import KafkaEndpoint
from fairlead.errors import FairleadError
from fairlead.names import parse_log
from fairlead.wire.batch import HEADER_BYTES, Header, split
from fairlead.wire.cluster import Cluster
from fairlead.wire.errors import OFFSET_OUT_OF_RANGE, BrokerError, broker_error
from fairlead.wire.types import TopicPartition
from replication.content import canonical_crc
from topologies.model import Topology

AT_ONCE: Final = 200  # logs whose batches are in memory at a time
ANSWER_BYTES: Final = 16 << 20
LOG_BYTES: Final = 1 << 20


class Batch(NamedTuple):
    """One stored batch, as it counts for equality and as it is shown."""

    base: int
    stop: int
    crc: int
    header: Header

    @property
    def identity(self) -> tuple[int, int, int]:
        return self.base, self.stop, self.crc

    def as_json(self) -> dict[str, int]:
        """The header's fields by name."""
        return {**self.header._asdict(), "crc": self.crc}


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference of one log: what each site has there; None where it has nothing."""

    log: str
    offset: int
    a: dict[str, Any] | None
    b: dict[str, Any] | None

    def as_json(self) -> dict[str, Any]:
        return {"log": self.log, "offset": self.offset, "a": self.a, "b": self.b}


@dataclass(slots=True)
class Audit:
    """The result. ``ok`` when every offset that both sites have holds the same."""

    a: str
    b: str
    compared: int = 0
    batches: int = 0
    records: int = 0
    behind: int = 0  # logs of which one site has less; no difference, but not everything
    apart: list[str] = field(default_factory=list)  # logs of which the sites have no offset in common: not compared
    only_a: list[str] = field(default_factory=list)
    only_b: list[str] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.differences

    def as_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "a": self.a,
            "b": self.b,
            "logs_compared": self.compared,
            "logs_differing": len(self.differences),
            "logs_behind": self.behind,
            "apart": self.apart,
            "batches": self.batches,
            "records": self.records,
            "only_a": self.only_a,
            "only_b": self.only_b,
            "differences": [each.as_json() for each in self.differences],
        }


class Common(NamedTuple):
    """Offsets that both sites have of one log: ``start`` to ``stop - 1``."""

    log: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Which logs to compare over which offsets, which have none in common, and which only one site has."""

    common: tuple[Common, ...]
    apart: tuple[str, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    behind: int


OnProgress = Callable[[int, int], None]
"""Called with logs done and logs in all."""


async def compare(
    topology: Topology,
    a: KafkaEndpoint,
    b: KafkaEndpoint,
    *,
    streams: Collection[str] | None = None,
    on_progress: OnProgress | None = None,
) -> Audit:
    """Compare all logs that two sites have in common, by their stored batches.

    Args:
        a, b: The sites, as users that may read the logs.
        streams: Only these streams; None for all of the topology.

    Raises:
        FairleadError: a site cannot be read.
    """
    audit = Audit(a.site, b.site)
    async with await Cluster.open(a, client_id="fairlead-audit") as at_a:
        async with await Cluster.open(b, client_id="fairlead-audit") as at_b:
            plan = await plan_audit(topology, at_a, at_b, streams)
            audit.only_a, audit.only_b, audit.behind = list(plan.only_a), list(plan.only_b), plan.behind
            audit.apart = list(plan.apart)
            for start in range(0, len(plan.common), AT_ONCE):
                some = plan.common[start : start + AT_ONCE]
                here, there = await _batches(at_a, some), await _batches(at_b, some)
                for each in some:
                    _compare_log(audit, each.log, here[each.log], there[each.log])
                if on_progress:
                    on_progress(start + len(some), len(plan.common))
    return audit


async def plan_audit(topology: Topology, a: Cluster, b: Cluster, streams: Collection[str] | None) -> Plan:
    """Find the logs of both sites and the offsets they have in common."""
    at_a, at_b = await _logs(topology, a, streams), await _logs(topology, b, streams)
    both = [TopicPartition(topic) for topic in sorted(at_a & at_b)]
    starts_a, ends_a = await a.start_offsets(both), await a.end_offsets(both)
    starts_b, ends_b = await b.start_offsets(both), await b.end_offsets(both)
    common: list[Common] = []
    apart: list[str] = []
    behind = 0
    for tp in both:
        start = max(_number(starts_a[tp]), _number(starts_b[tp]))
        end_a, end_b = _number(ends_a[tp]), _number(ends_b[tp])
        behind += end_a != end_b
        if start < min(end_a, end_b) or max(end_a, end_b) == 0:
            common.append(Common(tp.topic, start, min(end_a, end_b)))
        else:
            apart.append(tp.topic)
    return Plan(tuple(common), tuple(apart), tuple(sorted(at_a - at_b)), tuple(sorted(at_b - at_a)), behind)


async def _logs(topology: Topology, cluster: Cluster, streams: Collection[str] | None) -> set[str]:
    wanted = set(topology.streams) if streams is None else set(streams)
    found = set()
    for topic in await cluster.topics(refresh=True):
        name = parse_log(topic)
        if name is not None and name.stream in wanted:
            found.add(topic)
    return found


def _number(found: int | BrokerError) -> int:
    if isinstance(found, BrokerError):
        raise found
    return found


async def _batches(cluster: Cluster, logs: Sequence[Common]) -> dict[str, list[Batch]]:
    """All whole batches inside the common offsets, of many logs per Fetch."""
    out: dict[str, list[Batch]] = {each.log: [] for each in logs}
    stops = {TopicPartition(each.log): each for each in logs}
    left = {tp: each.start for tp, each in stops.items() if each.start < each.stop}
    while left:
        answer = await cluster.fetch(left, max_wait_ms=0, max_bytes=ANSWER_BYTES, partition_max_bytes=LOG_BYTES)
        before = dict(left)
        for tp, part in answer.items():
            if part.error_code == OFFSET_OUT_OF_RANGE:
                raise FairleadError(
                    f"{tp} was shortened while it was compared", hint="run the audit again", log=str(tp)
                )
            if part.error_code:
                raise broker_error(part.error_code, tp)
            if len(part.records) >= HEADER_BYTES:
                position = _collect(part.records, stops[tp], out[tp.topic])
                if position >= stops[tp].stop:
                    del left[tp]
                else:
                    left[tp] = max(left[tp], position)
        # Logs that got their share go to the end: the broker fills an answer in the order of the request.
        left = {tp: at for tp, at in left.items() if at == before[tp]} | left
    return out


def _collect(records: memoryview, wanted: Common, into: list[Batch]) -> int:
    """Take over the batches that lie within the wanted offsets; returns how far they reach."""
    reached = wanted.start
    for start, stop, header in split(records):
        reached = header.next_offset
        if header.base_offset >= wanted.start and reached <= wanted.stop:
            crc = canonical_crc(records[start:stop], header)
            into.append(Batch(header.base_offset, reached, crc, header))
        if reached >= wanted.stop:
            break
    return reached


def _compare_log(audit: Audit, log: str, a: Sequence[Batch], b: Sequence[Batch]) -> None:
    audit.compared += 1
    audit.batches += min(len(a), len(b))
    audit.records += sum(each.header.count for each in a)
    difference = first_difference(log, a, b)
    if difference is not None:
        audit.differences.append(difference)


def first_difference(log: str, a: Sequence[Batch], b: Sequence[Batch]) -> Difference | None:
    """The first batch that is not the same on both sides; None when all are."""
    for one, other in zip(a, b, strict=False):
        if one.identity != other.identity:
            return Difference(log, min(one.base, other.base), one.as_json(), other.as_json())
    if len(a) == len(b):
        return None
    longer = (a if len(a) > len(b) else b)[min(len(a), len(b))]
    missing = len(a) < len(b)
    return Difference(log, longer.base, None if missing else longer.as_json(), longer.as_json() if missing else None)
