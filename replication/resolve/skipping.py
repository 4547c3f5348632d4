"""Plans that let offsets go: filled and marked here, so that what follows keeps its own. Pure."""

from __future__ import annotations

from replication.orders import OrderKind
from replication.resolve.facts import Facts, kept_name, parse_tp
from replication.resolve.parts import Made, end_of, order_for, reachable, refuse
from replication.resolve.steps import KeepBatch, WaitFor, WriteOrder


def skip_gap(facts: Facts) -> Made:
    """Behind retention: fill from this site's end to where the source begins now."""
    end = end_of(facts)
    there = reachable(facts)
    for source in there:
        has = (source.has or {}).get(facts.partition)
        if has is not None and has.start <= end < has.stop:
            refuse(
                facts,
                f"{source.site} still has offset {end}: nothing needs to be skipped",
                hint="--retry, and it is copied from there",
            )
    starts = [has.start for each in there if (has := (each.has or {}).get(facts.partition)) and has.start > end]
    if not starts:
        refuse(facts, f"no source begins after offset {end}, where this site ends", hint="--retry")
    stop = min(starts)
    order = order_for(facts, OrderKind.SKIP, log=facts.log, start=end, stop=stop)
    note = f"offsets {end}..{stop - 1} are lost at every source that can be asked; they become marked fillers here"
    return (WriteOrder(order), WaitFor(facts.log, ((facts.partition, stop),))), (note,)


def skip_batch(facts: Facts) -> Made:
    """Quarantined: fill the offsets of the batch that cannot be copied, after its bytes are kept."""
    end = end_of(facts)
    batch = facts.offending
    if batch is None or not batch.start <= end <= batch.stop:
        refuse(
            facts,
            f"the batch at offset {end} cannot be read at any source, so its bytes cannot be kept",
            hint="when the source is back, or --retry when the cause is gone",
        )
    source = next(each for each in facts.sources if each.link == facts.offending_link)
    steps = (
        KeepBatch(parse_tp(facts.log), source.site, source.link, batch, kept_name(facts.topic, facts.now)),
        WriteOrder(order_for(facts, OrderKind.SKIP, log=facts.log, start=batch.start, stop=batch.stop)),
        WaitFor(facts.log, ((facts.partition, batch.stop),)),
    )
    notes = []
    if batch.start < end:
        notes.append(f"offsets {batch.start}..{end - 1} stay as they are here")
    if end < batch.stop:
        notes.append(f"offsets {end}..{batch.stop - 1} become marked fillers here")
    others = [
        each
        for each in facts.sources
        if each.link != source.link and facts.partition in (each.has or {facts.partition})
    ]
    notes += [f"{each.site} may have it whole: {each.why or 'it has the log, too'}" for each in others]
    return steps, tuple(notes)
