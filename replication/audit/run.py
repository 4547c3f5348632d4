"""Run the full and the quick audit."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Mapping
from threading import Event
from typing import Final, TypeVar

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.endpoint import KafkaEndpoint
from replication.audit.marks import Marks
from replication.audit.ranges import Common, carried
from replication.audit.records import CHUNK, AuditSites, AuditVerdict, Comparison
from replication.audit.result import Audit, AuditDifference, OnProgress
from replication.audit.stored import BatchComparison, QuickComparison
from topologies.model import Topology

T = TypeVar("T")
AT_ONCE: Final = 1_000  # logs whose batches are in memory at a time


async def compare_records(
    topology: Topology,
    a: KafkaEndpoint,
    b: KafkaEndpoint,
    *,
    streams: Collection[str] | None = None,
    rate: int | None = None,
    marks: Marks | None = None,
    resume: bool = False,
    on_progress: OnProgress | None = None,
    chunk: int = CHUNK,
) -> Audit:
    """Compare every record that both sites have, as a consumer sees it, without the replicator's code.

    Args:
        a, b: The sites, as users that may read the logs.
        streams: Only these streams; None for all of the topology.
        rate: Bytes per second to read from each site at most, counted before compression.
        marks: Keeps the progress, even if the audit ends early.
        resume: Skip the offsets that ``marks`` has from an earlier audit.
        chunk: Number of offsets per digest; a chunk that differs is read again to find the difference.

    Raises:
        FairleadError: a site cannot be read.
    """

    def work(stop: Event) -> Audit:
        audit = _Running("full", a, b, marks, resume, on_progress)
        with audit:
            sites = AuditSites(a, b, rate=rate, stop=stop)
            logs = audit.make_plan(sites, topology, streams)
            for verdict in Comparison(sites, chunk=chunk, on_equal=audit.marks.mark_equal).verdicts(logs):
                audit.found(verdict)
        return audit.result

    return await _in_thread(work, Event())


async def compare(
    topology: Topology,
    a: KafkaEndpoint,
    b: KafkaEndpoint,
    *,
    streams: Collection[str] | None = None,
    rate: int | None = None,
    marks: Marks | None = None,
    resume: bool = False,
    on_progress: OnProgress | None = None,
) -> Audit:
    """Compare offsets and CRCs of stored batches, and records only where the batches differ.

    The arguments and errors are those of ``compare_records``, but ``rate`` counts bytes as they are stored.
    """
    stop = Event()
    audit = _Running("quick", a, b, marks, resume, on_progress)
    with audit:
        sites = await _in_thread(lambda stop: AuditSites(a, b, rate=rate, stop=stop), stop)
        logs = deque(await _in_thread(lambda _: audit.make_plan(sites, topology, streams), stop))
        async with (
            await Cluster.open(a, client_id="fairlead-audit") as at_a,
            await Cluster.open(b, client_id="fairlead-audit") as at_b,
        ):
            stored = QuickComparison((at_a, at_b), sites.paces, on_equal=audit.marks.mark_equal)
            while logs:
                some = [logs.popleft() for _ in range(min(AT_ONCE, len(logs)))]
                alike, moved = await stored.compare(some)
                starts = await asyncio.to_thread(sites.inquiries.starts, [log.tp for log in moved])
                logs += [log._replace(start=min(log.stop, max(log.start, starts[log.tp]))) for log in moved]
                await _settle(audit, sites, stored, alike, stop)
    return audit.result


class _Running:
    """An audit in progress. A context manager that saves the marks."""

    def __init__(
        self,
        mode: str,
        a: KafkaEndpoint,
        b: KafkaEndpoint,
        marks: Marks | None,
        resume: bool,
        on_progress: OnProgress | None,
    ) -> None:
        self.result = Audit(a.site, b.site, mode)
        self.marks = marks or Marks()
        self.marks.load(mode, a.site, b.site, resume=resume)
        self._on_progress = on_progress
        self._of = 0

    def __enter__(self) -> _Running:
        self.marks.save()  # replace the file of an earlier audit at once
        return self

    def __exit__(self, *_: object) -> None:
        self.marks.save()

    def make_plan(self, sites: AuditSites, topology: Topology, streams: Collection[str] | None) -> list[Common]:
        """Find the common logs; return the ranges that are left to compare."""
        plan = sites.inquiries.plan(topology, streams)
        result = self.result
        result.behind = plan.behind
        result.apart = [str(tp) for tp in plan.apart]
        result.only_a, result.only_b = ([str(tp) for tp in only] for only in (plan.only_a, plan.only_b))
        result.missing_a = [str(tp) for tp in carried(topology, result.b, result.a, plan.only_b)]
        result.missing_b = [str(tp) for tp in carried(topology, result.a, result.b, plan.only_a)]
        logs = [self.marks.resumed(log) for log in plan.common]
        result.resumed = sum(one != other for one, other in zip(logs, plan.common, strict=True))
        self._of = len(logs)
        return logs

    def found(self, verdict: AuditVerdict) -> None:
        result = self.result
        result.compared += 1
        result.records += verdict.records
        result.compacted += verdict.compacted
        if verdict.difference is not None:
            result.differences.append(verdict.difference)
        if self._on_progress:
            self._on_progress(result.compared, self._of)


async def _settle(
    audit: _Running, sites: AuditSites, stored: QuickComparison, logs: Mapping[Common, BatchComparison], stop: Event
) -> None:
    """Compare records in the ranges where the batches differ, and record the verdicts."""
    doubtful = {log: each for log, each in logs.items() if each.ranges}
    verdicts = await _in_thread(lambda _: _by_records(sites, doubtful), stop) if doubtful else {}
    for log, each in logs.items():
        audit.result.batches += each.batches
        verdict = verdicts.get(log, AuditVerdict(log, 0))
        difference = verdict.difference
        for pair in each.strict if difference is None else ():
            if not await stored.faithful(pair, log.tp):
                difference = AuditDifference(str(log.tp), pair.a.base, pair.a.as_json(), pair.b.as_json())
                break
        if difference is None:
            audit.result.rebuilt += each.unlike
            audit.marks.mark_equal(log, log.stop)
        else:
            audit.marks.mark_equal(log, each.compared_to)
        audit.found(AuditVerdict(log, each.records, difference, verdict.compacted))


def _by_records(sites: AuditSites, logs: Mapping[Common, BatchComparison]) -> dict[Common, AuditVerdict]:
    """Compare ranges of many logs by records, one range of each log at a time."""
    compacted = sites.inquiries.compacted({log.tp.topic for log in logs})
    left = {
        # The record that explains a missing one may be anywhere after it, so the rest of a compacted log is one range.
        log: deque([(each.ranges[0][0], log.stop)] if log.tp.topic in compacted else map(tuple, each.ranges))
        for log, each in logs.items()
    }
    found: dict[Common, AuditVerdict] = {}
    while left:
        now = {log.tp: log for log in left}
        ranges = []
        for log, of_log in left.items():
            start, stop = of_log.popleft()
            ranges.append(log._replace(start=start, stop=stop))
        for verdict in Comparison(sites).verdicts(ranges):
            log = now[verdict.log.tp]
            found[log] = verdict
            if verdict.difference is not None:
                left[log].clear()
        left = {log: of_log for log, of_log in left.items() if of_log}
    return found


async def _in_thread(work: Callable[[Event], T], stop: Event) -> T:
    """Run blocking work in a thread; on cancellation set ``stop`` and wait until the thread has ended."""
    task = asyncio.ensure_future(asyncio.to_thread(work, stop))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # retrieve ``Stopped``, so that asyncio does not log it
        raise
