"""From a log's state and the facts to the steps that resolve it, or a refusal with its reason. Pure functions.

No plan deletes anything before it has been copied and compared. What is refused: to touch a log that this site writes
itself, to leave a site without a log because no source can give it back, to give up a history that only this site has
(unless that is asked for; where it joins what the sources have, it is given back), and to skip records that some source
still has.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from fairlead.wire.types import TopicPartition
from replication.orders import Order, OrderKind
from replication.resolve.facts import Extent, Facts, Source, kept_name
from replication.resolve.parts import Made, end_of, order_for, reachable, refuse
from replication.resolve.skipping import skip_batch, skip_gap
from replication.resolve.steps import (
    DeleteTopic,
    GiveBack,
    KeepCopy,
    PauseLog,
    RestoreGroups,
    Step,
    Verify,
    WaitFor,
    WriteOrder,
)
from replication.states import LogState


class Choice(StrEnum):
    """The ways out."""

    SKIP = "skip"  # fill the offsets that cannot be copied and mark them
    REFILL = "refill"  # keep this replica under another name, delete it, let it be made again
    RETRY = "retry"  # look at it anew
    RESUME = "resume"  # end a pause


WAYS: Final[dict[LogState, tuple[Choice, ...]]] = {
    LogState.BEHIND_RETENTION: (Choice.SKIP, Choice.REFILL, Choice.RETRY),
    LogState.SOURCE_TRUNCATED: (Choice.REFILL, Choice.RETRY),
    LogState.SOURCE_RECREATED: (Choice.REFILL, Choice.RETRY),
    LogState.DIVERGED: (Choice.REFILL, Choice.RETRY),
    LogState.REBUILDING: (Choice.REFILL, Choice.RETRY),
    LogState.MISPLACED: (Choice.REFILL, Choice.RETRY),
    LogState.QUARANTINED: (Choice.RETRY, Choice.SKIP, Choice.REFILL),
    LogState.UNAVAILABLE: (Choice.RETRY,),
    LogState.PAUSED: (Choice.RESUME,),
}
"""What resolves each state; the first is what happens when nothing is chosen."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be done, in order, and what a person should know before saying yes."""

    site: str
    log: str
    state: LogState
    choice: Choice
    steps: tuple[Step, ...]
    notes: tuple[str, ...] = ()


def plan_resolution(state: LogState, facts: Facts, choice: Choice | None = None, *, shorter: bool = False) -> Plan:
    """The plan that resolves a state.

    Args:
        choice: None for the usual way out of this state.
        shorter: Refill although the sources begin later than this replica; what is older is then in the kept copy only.

    Raises:
        RefusedError: the choice does not fit the state, or it would lose data; the reason is in it.
    """
    ways = WAYS.get(state, ())
    if not ways:
        refuse(facts, "it is mirrored: there is nothing to resolve", hint="fairlead status lists the logs in trouble")
    chosen = ways[0] if choice is None else choice
    if chosen not in ways:
        refuse(
            facts,
            f"--{chosen} does not resolve {state}",
            hint=f"what does: {', '.join(f'--{each}' if each is not Choice.RESUME else 'no option' for each in ways)}",
        )
    if facts.held_here and chosen is not Choice.RESUME:
        refuse(
            facts,
            f"this site writes this log itself: {facts.held_here}",
            hint="let the other sites follow: resolve it there; fairlead link describe",
        )
    match chosen:
        case Choice.RESUME:
            steps, notes = _resume(facts)
        case Choice.RETRY:
            steps, notes = _retry(facts)
        case Choice.SKIP if state is LogState.QUARANTINED:
            steps, notes = skip_batch(facts)
        case Choice.SKIP:
            steps, notes = skip_gap(facts)
        case Choice.REFILL:
            steps, notes = _refill(state, facts, shorter=shorter)
    if not facts.running:
        notes += tuple(_forgotten(each) for each in steps if isinstance(each, RestoreGroups))
        steps = tuple(each for each in steps if not isinstance(each, WaitFor | RestoreGroups))
        notes = (*notes, f"no replicator of {facts.site} is running here: fairlead replicate --at {facts.site}")
    return Plan(facts.site, facts.log, state, chosen, steps, notes)


def _retry(facts: Facts) -> Made:
    order = order_for(facts, OrderKind.RETRY, log=facts.log)
    return (WriteOrder(order), WaitFor(facts.log, ())), ()


def _resume(facts: Facts) -> Made:
    paused = facts.paused
    if paused is None:
        refuse(facts, "no order pauses it", hint="fairlead status shows whether the replicator has read the orders")
    if paused.log is None:
        what = f"stream {paused.stream}" if paused.stream else f"link {paused.link}" if paused.link else "the site"
        option = f" --stream {paused.stream}" if paused.stream else ""
        refuse(
            facts,
            f"{what} as a whole is paused, not this log",
            hint=f"fairlead link resume {repr(paused.link) if paused.link else 'LINK'}{option}",
        )
    order = order_for(facts, OrderKind.RESUME, link=paused.link, log=paused.log)
    return (WriteOrder(order), WaitFor(facts.log, ())), ()


def _refill(state: LogState, facts: Facts, *, shorter: bool) -> Made:
    there = [each for each in reachable(facts) if each.has]
    if facts.offending is not None and facts.offending.stop <= end_of(facts):
        refuse(
            facts,
            f"the source's batch at offset {facts.offending.start} is damaged, and what is here is whole",
            hint="--skip goes on behind it, and leaves it here as it is",
        )
    if not there:
        why = "; ".join(f"{each.site}: {each.why}" for each in facts.sources) or "no link carries it"
        refuse(
            facts,
            f"no source can give it back ({why})",
            hint="when a source is back, run this again; until then this replica is all there is",
        )
    notes: list[str] = []
    extents = tuple(sorted((number, each) for number, each in facts.here.items() if not each.is_empty))
    older: list[tuple[int, Extent]] = []  # what only this site has, and belongs before what the sources have
    for number, each in extents:
        notes += _missing_after(state, facts, there, number, each, shorter=shorter)
        if number in facts.joined and not shorter:
            older.append((number, Extent(each.start, _first(there, number))))
    if len(facts.here) > 1:
        notes.append(f"all {len(facts.here)} partitions of {facts.topic} are kept and made again")
    logs = tuple(str(TopicPartition(facts.topic, number)) for number in sorted(facts.here)) or (facts.log,)
    pause = order_for(facts, OrderKind.PAUSE, log=facts.topic, reason=resolving(state))
    steps: list[Step] = []
    if facts.paused is None or facts.paused.log != facts.topic or facts.paused.link is not None:
        steps.append(PauseLog(pause, logs, facts.running))
    if extents:
        kept = facts.unfinished or kept_name(facts.topic, facts.now)
        steps += [KeepCopy(facts.topic, kept, extents), Verify(facts.topic, kept, extents)]
    if facts.here:
        steps.append(DeleteTopic(facts.topic))
    if older:
        kept = facts.unfinished or kept_name(facts.topic, facts.now)
        steps.append(GiveBack(facts.topic, kept, len(facts.here), tuple(older)))
    steps.append(WriteOrder(order_for(facts, OrderKind.RETRY, log=facts.topic)))
    steps.append(WriteOrder(order_for(facts, OrderKind.RESUME, log=facts.topic)))
    ends = {number: max(has.stop for each in there if (has := (each.has or {}).get(number))) for number in _all(there)}
    steps.append(WaitFor(facts.log, tuple(sorted(ends.items()))))
    if facts.groups and facts.here:
        steps.append(RestoreGroups(facts.topic, facts.groups))
    return tuple(steps), tuple(notes)


def _missing_after(
    state: LogState, facts: Facts, there: list[Source], number: int, each: Extent, *, shorter: bool
) -> list[str]:
    """What the refilled log will not have; refuses when that was not asked for."""
    has = [found for source in there if (found := (source.has or {}).get(number))]
    log = TopicPartition(facts.topic, number)
    if not has:
        return [f"no source has {log}: its offsets {each.start}..{each.stop - 1} will be in the kept copy only"]
    start, stop = min(found.start for found in has), max(found.stop for found in has)
    notes = []
    if start > each.start and (shorter or number not in facts.joined):
        if not shorter and state is not LogState.BEHIND_RETENTION:
            refuse(
                facts,
                f"no source has offsets {each.start}..{min(start, each.stop) - 1} of {log} any more: "
                "the replica would begin later than it does now",
                hint="--shorter accepts that; those records are then in the kept copy only",
            )
        notes.append(f"{log} will begin at offset {start}; {each.start}..{min(start, each.stop) - 1} in the kept copy")
    if stop < each.stop:
        notes.append(f"the source ends at {stop}: {max(stop, each.start)}..{each.stop - 1} of {log} in the kept copy")
    return notes


def _forgotten(step: RestoreGroups) -> str:
    said = ", ".join(f"{each.group} at offset {each.offset} of partition {each.partition}" for each in step.committed)
    return f"Kafka forgets with {step.topic} how far groups have read: {said}; with a replicator running it is restored"


def resolving(state: LogState) -> str:
    """The reason of a pause that a refill gives: an interrupted refill is recognised by it."""
    return f"resolving {state}"


def resolved_by(paused: Order | None) -> LogState | None:
    """The state whose refill was interrupted under this pause; None when it is an ordinary pause."""
    if paused is None:
        return None
    return next((state for state in WAYS if paused.reason == resolving(state)), None)


def _first(sources: list[Source], number: int) -> int:
    """The oldest offset that any source has."""
    return min(has.start for each in sources if (has := (each.has or {}).get(number)))


def _all(sources: list[Source]) -> set[int]:
    return {number for each in sources for number in each.has or {}}
