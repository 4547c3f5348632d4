"""Build a plan that resolves a log's trouble without losing records, or refuse. Pure."""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NoReturn

from fairlead.errors import RefusedError
from fairlead.kafka.client.reader import OffsetRange
from fairlead.kafka.protocol.types import TopicPartition
from fairlead.names import MAX_TOPIC_LENGTH
from fairlead.plan import Plan, PlanStep
from replication.operations.resolve.steps import (
    Committed,
    DeleteTopic,
    KeepBatch,
    KeepCopy,
    PauseLog,
    ResolveRun,
    RestoreGroups,
    RestoreRecords,
    Verify,
    WaitFor,
    WriteOrder,
)
from replication.overrides import Override, OverrideKind
from replication.states import LogState

KEPT_PREFIX: Final = "fairlead.kept."
_TIME: Final = "%Y%m%dT%H%M%SZ"
_TIME_LENGTH: Final = len("20260301T000000Z")
_KEPT: Final = re.compile(re.escape(KEPT_PREFIX) + r"(?P<topic>.+)\.(?P<time>\d{8}T\d{6}Z)")
_LONGEST: Final = MAX_TOPIC_LENGTH - len(KEPT_PREFIX) - _TIME_LENGTH - 1


class ResolveChoice(StrEnum):
    """A way to resolve a state."""

    SKIP = "skip"  # fill the offsets that cannot be copied and mark them
    REFILL = "refill"  # keep a copy of this replica under another name, delete it, copy it again
    RETRY = "retry"  # read it again
    RESUME = "resume"  # end a pause


WAYS: Final[dict[LogState, tuple[ResolveChoice, ...]]] = {
    LogState.BEHIND_RETENTION: (ResolveChoice.SKIP, ResolveChoice.REFILL, ResolveChoice.RETRY),
    LogState.SOURCE_TRUNCATED: (ResolveChoice.REFILL, ResolveChoice.RETRY),
    LogState.SOURCE_RECREATED: (ResolveChoice.REFILL, ResolveChoice.RETRY),
    LogState.DIVERGED: (ResolveChoice.REFILL, ResolveChoice.RETRY),
    LogState.REBUILDING: (ResolveChoice.REFILL, ResolveChoice.RETRY),
    LogState.MISPLACED: (ResolveChoice.REFILL, ResolveChoice.RETRY),
    LogState.QUARANTINED: (ResolveChoice.RETRY, ResolveChoice.SKIP, ResolveChoice.REFILL),
    LogState.UNAVAILABLE: (ResolveChoice.RETRY,),
    LogState.PAUSED: (ResolveChoice.RESUME,),
}
"""The choices for each state; the first is the default."""


@dataclass(frozen=True, slots=True)
class ResolveSource:
    """The source of one link that carries the log. ``has`` is None if the source cannot be asked or lacks the topic;
    ``why`` is the reason."""

    link: str
    site: str
    has: Mapping[int, OffsetRange] | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class TroubleFacts:
    """One log in trouble.

    Args:
        log: The log's name in the snapshot: ``topic`` or ``topic/partition``.
        cause: The replicator's cause of the state.
        link: The link in trouble, if only one is.
        here: This site's offsets, by partition; empty if it does not have the topic.
        sources: The sources of every link that may carry the log.
        held_here: The reason why this site itself writes the log now; empty if it does not.
        paused: The order that pauses the log, if any.
        joined: Partitions in which this site also has the source's oldest batch; older records here belong before it.
        running: Whether a replicator of this site runs.
        unfinished: A kept copy of this log that an interrupted run may have left.
        offending: Quarantined only: the offsets of the batch that the target refuses, at the source of
            ``offending_link``. If they end at or before the target's end, that batch is damaged at the source and
            intact here.
        goes_on: Quarantined only, where no batch offends: by link the first offset from this site's end on of which its
            source has a batch.
        topic_id: The id (hex) of this site's topic; None if it does not have it.
        groups: Offsets that this site's consumer groups have committed in the topic; Kafka deletes them with the topic.
        now: The time, for the kept copy's name.
    """

    site: str
    log: str
    cause: str = ""
    link: str | None = None
    here: Mapping[int, OffsetRange] = field(default_factory=dict)
    sources: tuple[ResolveSource, ...] = ()
    held_here: str = ""
    paused: Override | None = None
    joined: frozenset[int] = frozenset()
    running: bool = False
    unfinished: str | None = None
    offending: OffsetRange | None = None
    offending_link: str = ""
    goes_on: Mapping[str, int] = field(default_factory=dict)
    topic_id: str | None = None
    groups: tuple[Committed, ...] = ()
    by: str = ""
    now: dt.datetime = field(default_factory=lambda: dt.datetime.now(dt.UTC))

    @property
    def topic(self) -> str:
        return TopicPartition.parse(self.log).topic

    @property
    def partition(self) -> int:
        return TopicPartition.parse(self.log).partition


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvePlan(Plan[ResolveRun]):
    """The plan that resolves one log's trouble at one site."""

    site: str
    log: str
    state: LogState
    choice: ResolveChoice

    def heading(self) -> str:
        return f"{self.log} at {self.site} is {self.state}; this resolves it:"


Made = tuple[tuple[PlanStep[ResolveRun], ...], tuple[str, ...]]
"""Steps, and notes for the operator."""


def plan_resolution(
    state: LogState, facts: TroubleFacts, choice: ResolveChoice | None = None, *, shorter: bool = False
) -> ResolvePlan:
    """Build the plan that resolves a state.

    Args:
        choice: The way to resolve it; None for the default of this state.
        shorter: Refill although the sources start later than this replica. Only the kept copy then has the older
            records.

    Raises:
        RefusedError: the choice does not fit the state, or it would lose data.
    """
    ways = WAYS.get(state, ())
    if not ways:
        _refuse(facts, "it is mirrored: there is nothing to resolve", hint="fairlead status lists the logs in trouble")
    chosen = ways[0] if choice is None else choice
    if chosen not in ways:
        _refuse(
            facts,
            f"--{chosen} does not resolve {state}",
            hint="what does: "
            + ", ".join(f"--{each}" if each is not ResolveChoice.RESUME else "no option" for each in ways),
        )
    if facts.held_here and chosen is not ResolveChoice.RESUME:
        _refuse(
            facts,
            f"this site writes this log itself: {facts.held_here}",
            hint="resolve it at the other sites, which copy it: fairlead link describe",
        )
    match chosen:
        case ResolveChoice.RESUME:
            steps, notes = _resume(facts)
        case ResolveChoice.RETRY:
            steps, notes = _retry(facts)
        case ResolveChoice.SKIP if state is LogState.QUARANTINED and not facts.goes_on:
            steps, notes = _skip_batch(facts)
        case ResolveChoice.SKIP:
            steps, notes = _skip_gap(facts)
        case ResolveChoice.REFILL:
            steps, notes = _refill(state, facts, shorter=shorter)
    if not facts.running:
        notes += tuple(_forgotten(each) for each in steps if isinstance(each, RestoreGroups))
        steps = tuple(each for each in steps if not isinstance(each, WaitFor | RestoreGroups))
        notes = (*notes, f"no replicator of {facts.site} is running here: fairlead replicate --site {facts.site}")
    return ResolvePlan(site=facts.site, log=facts.log, state=state, choice=chosen, steps=steps, notes=notes)


def _retry(facts: TroubleFacts) -> Made:
    order = _order_for(facts, OverrideKind.RETRY, log=facts.log)
    return (WriteOrder(order), WaitFor(facts.log, ())), ()


def _resume(facts: TroubleFacts) -> Made:
    paused = facts.paused
    if paused is None:
        _refuse(facts, "no order pauses it", hint="fairlead status shows whether the replicator has read the orders")
    if paused.log is None:
        what = f"stream {paused.stream}" if paused.stream else f"link {paused.link}" if paused.link else "the site"
        option = f" --stream {paused.stream}" if paused.stream else ""
        _refuse(
            facts,
            f"the pause is of {what} as a whole, not of this log",
            hint=f"fairlead link resume {repr(paused.link) if paused.link else 'LINK'}{option}",
        )
    order = _order_for(facts, OverrideKind.RESUME, link=paused.link, log=paused.log)
    return (WriteOrder(order), WaitFor(facts.log, ())), ()


def _refill(state: LogState, facts: TroubleFacts, *, shorter: bool) -> Made:
    there = [each for each in _reachable(facts) if each.has]
    if facts.offending is not None and facts.offending.end <= _end_of(facts):
        _refuse(
            facts,
            f"the source's batch at offset {facts.offending.start} is damaged, and this site's copy of it is not",
            hint="--skip continues after it and keeps this site's copy",
        )
    if not there:
        why = "; ".join(f"{each.site}: {each.why}" for each in facts.sources) or "no link carries it"
        _refuse(
            facts,
            f"no source has it ({why}), so this replica is the only copy",
            hint="repeat the command when a source is back",
        )
    notes: list[str] = []
    extents = tuple(sorted((number, each) for number, each in facts.here.items() if each.start < each.end))
    older: list[tuple[int, OffsetRange]] = []  # records that only this site has, from before the sources' start
    for number, each in extents:
        notes += _missing_after(state, facts, there, number, each, shorter=shorter)
        if number in facts.joined and not shorter:
            older.append((number, OffsetRange(each.start, _first(there, number))))
    if len(facts.here) > 1:
        notes.append(f"all {len(facts.here)} partitions of {facts.topic} are kept and copied again")
    logs = tuple(str(TopicPartition(facts.topic, number)) for number in sorted(facts.here)) or (facts.log,)
    pause = _order_for(facts, OverrideKind.PAUSE, log=facts.topic, reason=resolving(state))
    steps: list[PlanStep[ResolveRun]] = []
    if facts.paused is None or facts.paused.log != facts.topic or facts.paused.link is not None:
        steps.append(PauseLog(pause, logs, facts.running))
    if extents:
        kept = facts.unfinished or kept_name(facts.topic, facts.now)
        steps += [KeepCopy(facts.topic, kept, extents), Verify(facts.topic, kept, extents)]
    if facts.here:
        steps.append(DeleteTopic(facts.topic))
    if older:
        kept = facts.unfinished or kept_name(facts.topic, facts.now)
        steps.append(RestoreRecords(facts.topic, kept, len(facts.here), tuple(older)))
    steps.append(WriteOrder(_order_for(facts, OverrideKind.RETRY, log=facts.topic)))
    steps.append(WriteOrder(_order_for(facts, OverrideKind.RESUME, log=facts.topic)))
    ends = {number: max(has.end for each in there if (has := (each.has or {}).get(number))) for number in _all(there)}
    steps.append(WaitFor(facts.log, tuple(sorted(ends.items()))))
    if facts.groups and facts.here:
        steps.append(RestoreGroups(facts.topic, facts.groups))
    return tuple(steps), tuple(notes)


def _missing_after(
    state: LogState, facts: TroubleFacts, there: list[ResolveSource], number: int, each: OffsetRange, *, shorter: bool
) -> list[str]:
    """Return notes about records that the refilled log will lack; refuse if that needs ``shorter``."""
    has = [found for source in there if (found := (source.has or {}).get(number))]
    log = TopicPartition(facts.topic, number)
    if not has:
        return [f"no source has {log}: its offsets {each.start}..{each.end - 1} will be in the kept copy only"]
    start, stop = min(found.start for found in has), max(found.end for found in has)
    notes = []
    if start > each.start and (shorter or number not in facts.joined):
        if not shorter and state is not LogState.BEHIND_RETENTION:
            _refuse(
                facts,
                f"no source has offsets {each.start}..{min(start, each.end) - 1} of {log} any more: "
                "the replica would begin later than it does now",
                hint="--shorter accepts that; only the kept copy then has those records",
            )
        notes.append(f"{log} will begin at offset {start}; {each.start}..{min(start, each.end) - 1} in the kept copy")
    if stop < each.end:
        notes.append(f"the source ends at {stop}: {max(stop, each.start)}..{each.end - 1} of {log} in the kept copy")
    return notes


def _forgotten(step: RestoreGroups) -> str:
    said = ", ".join(f"{each.group} at offset {each.offset} of partition {each.partition}" for each in step.committed)
    return f"deleting {step.topic} deletes groups' offsets: {said}; a running replicator would restore them"


def resolving(state: LogState) -> str:
    """Return the reason to write into a refill's pause. It identifies an interrupted refill (``resolved_by``)."""
    return f"resolving {state}"


def resolved_by(paused: Override | None) -> LogState | None:
    """Return the state whose refill was interrupted under this pause; None for an ordinary pause."""
    if paused is None:
        return None
    return next((state for state in WAYS if paused.reason == resolving(state)), None)


def _first(sources: list[ResolveSource], number: int) -> int:
    """Return the oldest offset that any source has in a partition."""
    return min(has.start for each in sources if (has := (each.has or {}).get(number)))


def _all(sources: list[ResolveSource]) -> set[int]:
    return {number for each in sources for number in each.has or {}}


def _skip_gap(facts: TroubleFacts) -> Made:
    """Resolve ``behind-retention`` or a hole that is not believed: fill from this site's end to where a source goes
    on."""
    end = _end_of(facts)
    there = _reachable(facts)
    starts = []
    for source in there:
        has = (source.has or {}).get(facts.partition)
        if has is None:
            continue
        start = facts.goes_on.get(source.link, has.start)
        if start > end:
            starts.append(start)
        elif end < has.end:
            _refuse(
                facts,
                f"{source.site} still has offset {end}: nothing needs to be skipped",
                hint="--retry copies it from there",
            )
    if not starts:
        _refuse(facts, f"no source begins after offset {end}, where this site ends", hint="--retry")
    stop = min(starts)
    order = _order_for(facts, OverrideKind.SKIP, log=facts.log, start=end, stop=stop)
    notes = [f"offsets {end}..{stop - 1} are lost at every source that can be asked; they become marked fillers here"]
    if stop - end >= 1_000_000:
        notes.append(f"the fillers take about {(stop - end) // 1_000_000} MB of this site's disk")
    return (WriteOrder(order), WaitFor(facts.log, ((facts.partition, stop),))), tuple(notes)


def _skip_batch(facts: TroubleFacts) -> Made:
    """Resolve ``quarantined``: keep the bytes of the batch that cannot be copied, then fill its offsets."""
    end = _end_of(facts)
    batch = facts.offending
    source = next((each for each in facts.sources if each.link == facts.offending_link), None)
    has = (source.has or {}).get(facts.partition) if source is not None else None
    begins = has.start if has is not None else end
    if batch is None or source is None or not (batch.start <= max(end, begins) and end <= batch.end):
        _refuse(
            facts,
            f"the batch at offset {end} cannot be read at any source, so its bytes cannot be kept",
            hint="repeat the command when the source is back; or --retry when the cause is gone",
        )
    is_last = end < batch.end and has is not None and batch.end >= has.end
    steps = (
        KeepBatch(TopicPartition.parse(facts.log), source.site, source.link, batch, kept_name(facts.topic, facts.now)),
        WriteOrder(_order_for(facts, OverrideKind.SKIP, log=facts.log, start=batch.start, stop=batch.end)),
        WaitFor(facts.log, () if is_last else ((facts.partition, batch.end),)),
    )
    notes = []
    if batch.start < end:
        notes.append(f"offsets {batch.start}..{end - 1} stay as they are here")
    if end < batch.end:
        when = f", at the latest with the next record of {source.site}" if is_last else ""
        notes.append(f"offsets {end}..{batch.end - 1} become marked fillers here{when}")
    others = [
        each
        for each in facts.sources
        if each.link != source.link and facts.partition in (each.has or {facts.partition})
    ]
    notes += [f"{each.site} may have it whole: {each.why or 'it has the log too'}" for each in others]
    return steps, tuple(notes)


def _reachable(facts: TroubleFacts) -> list[ResolveSource]:
    """Return the sources that can be asked and have the topic.

    Raises:
        RefusedError: there is none.
    """
    found = [each for each in facts.sources if each.has is not None]
    if not found:
        why = "; ".join(f"{each.site}: {each.why}" for each in facts.sources) or "no link carries it"
        _refuse(facts, f"no source answers ({why})", hint="repeat the command when one is back")
    return found


def _end_of(facts: TroubleFacts) -> int:
    """Return the log's end at this site.

    Raises:
        RefusedError: the site does not have the log.
    """
    here = facts.here.get(facts.partition)
    if here is None:
        _refuse(facts, "it does not exist at this site", hint="--retry")
    return here.end


def _order_for(
    facts: TroubleFacts,
    kind: OverrideKind,
    *,
    log: str,
    link: str | None = None,
    reason: str = "fairlead link resolve",
    start: int | None = None,
    stop: int | None = None,
) -> Override:
    """Return an order with the time and the user of the facts."""
    topic_id = facts.topic_id if kind is OverrideKind.SKIP else None
    return Override(kind, facts.now, facts.by, reason, link, log=log, start=start, stop=stop, topic_id=topic_id)


def _refuse(facts: TroubleFacts, why: str, *, hint: str) -> NoReturn:
    """Raise ``RefusedError`` about this log."""
    raise RefusedError(f"{facts.log} at {facts.site}: {why}", hint=hint, log=facts.log, site=facts.site)


def kept_name(topic: str, now: dt.datetime) -> str:
    """Return a name for the kept copy of ``topic``; a very long name is cut and gets a hash."""
    if len(topic) > _LONGEST:
        mark = hashlib.sha256(topic.encode()).hexdigest()[:12]
        topic = f"{topic[: _LONGEST - len(mark) - 1]}-{mark}"
    return f"{KEPT_PREFIX}{topic}.{now.astimezone(dt.UTC).strftime(_TIME)}"


def kept_copies(topic: str, topics: Iterable[str]) -> list[str]:
    """Return the kept copies of a topic among ``topics``, newest first."""
    wanted = _KEPT.fullmatch(kept_name(topic, dt.datetime.min.replace(year=1000, tzinfo=dt.UTC)))
    found = []
    for each in topics:
        match = _KEPT.fullmatch(each)
        if match and wanted and match["topic"] == wanted["topic"]:
            found.append((match["time"], each))
    return [name for _, name in sorted(found, reverse=True)]
