"""How ``link resolve`` ends each error state of a log, and what it refuses because data would be lost. No I/O."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import RefusedError
from fairlead.kafka.client.reader import OffsetRange
from fairlead.names import MAX_TOPIC_LENGTH
from replication.operations.resolve.plan import (
    WAYS,
    ResolveChoice,
    ResolvePlan,
    ResolveSource,
    TroubleFacts,
    kept_copies,
    kept_name,
    plan_resolution,
    resolved_by,
    resolving,
)
from replication.operations.resolve.steps import (
    Committed,
    DeleteTopic,
    KeepBatch,
    KeepCopy,
    PauseLog,
    RestoreGroups,
    RestoreRecords,
    Verify,
    WaitFor,
    WriteOrder,
)
from replication.overrides import Override, OverrideKind, Overrides
from replication.states import REMEDY, LogState, remedy

NOW = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
KEPT = "fairlead.kept.s.alpha.a.20260301T120000Z"
TOPIC = "s.alpha.a"


def source(*extents: tuple[int, int], site: str = "alpha") -> ResolveSource:
    return ResolveSource(f"{site}->beta", site, {n: OffsetRange(*each) for n, each in enumerate(extents)})


def facts(**changes: object) -> TroubleFacts:
    made = TroubleFacts(
        site="beta",
        log=TOPIC,
        cause="because",
        here={0: OffsetRange(0, 20)},
        sources=(source((0, 30)),),
        running=True,
        by="me",
        now=NOW,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def kinds(plan: ResolvePlan) -> list[str]:
    return [type(step).__name__ for step in plan.steps]


def orders(plan: ResolvePlan) -> list[Override]:
    return [step.order for step in plan.steps if isinstance(step, WriteOrder | PauseLog)]


REFILLED = ["PauseLog", "KeepCopy", "Verify", "DeleteTopic", "WriteOrder", "WriteOrder", "WaitFor"]


@pytest.mark.parametrize(
    "state", [LogState.DIVERGED, LogState.MISPLACED, LogState.SOURCE_RECREATED, LogState.SOURCE_TRUNCATED]
)
def test_another_history_is_kept_then_made_again(state: LogState) -> None:
    """A diverged log is copied aside, then replicated anew."""
    plan = plan_resolution(state, facts())
    assert kinds(plan) == REFILLED
    assert plan.steps[1] == KeepCopy(TOPIC, KEPT, ((0, OffsetRange(0, 20)),))
    assert plan.steps[2] == Verify(TOPIC, KEPT, ((0, OffsetRange(0, 20)),))
    assert plan.steps[3] == DeleteTopic(TOPIC)
    assert plan.steps[-1] == WaitFor(TOPIC, ((0, 30),))
    assert [each.kind for each in orders(plan)] == [OverrideKind.PAUSE, OverrideKind.RETRY, OverrideKind.RESUME]


def test_every_state_but_mirroring_has_a_way_out_that_its_remedy_names() -> None:
    """Every error state has a way to end it, and its hint names that."""
    assert set(WAYS) == set(LogState) - {LogState.MIRRORING}
    for state, ways in WAYS.items():
        text = remedy(state, "s.a", "beta")
        assert "fairlead link resolve s.a --site beta" in text
        assert "LOG" not in text
        for way in ways:
            if way is not ResolveChoice.RESUME and (state, way) not in UNNAMED:
                assert f"--{way}" in text, (state, way)
    assert set(REMEDY) == set(LogState)


UNNAMED = {
    (LogState.QUARANTINED, ResolveChoice.REFILL),
    (LogState.MISPLACED, ResolveChoice.RETRY),
}  # possible, but seldom right


def test_after_all_orders_of_a_refill_the_log_is_followed_and_looked_at_anew() -> None:
    """After all orders of a refill, the log is followed and checked again."""
    held = Overrides()
    plan = plan_resolution(LogState.DIVERGED, facts())
    for order in orders(plan):
        held.apply(order)
    assert held.paused("alpha->beta", "s", TOPIC) is None
    assert held.retries(TOPIC) == NOW


@given(st.sampled_from(sorted(WAYS)), st.sampled_from([None, *ResolveChoice]), st.booleans(), st.booleans(), st.data())
def test_nothing_is_deleted_that_was_not_copied_and_compared_just_before(
    state: LogState, choice: ResolveChoice | None, shorter: bool, running: bool, data: st.DataObject
) -> None:
    """Nothing is deleted that was not copied and compared just before."""

    def extents() -> Mapping[int, OffsetRange]:
        pairs = st.tuples(st.integers(0, 9), st.integers(0, 9)).map(
            lambda each: OffsetRange(each[0], each[0] + each[1])
        )
        return data.draw(st.dictionaries(st.integers(0, 2), pairs, max_size=3))

    sources = tuple(
        ResolveSource(f"{site}->beta", site, extents() if data.draw(st.booleans()) else None, "away")
        for site in ("a", "b")
    )
    here = extents()
    known = facts(here=here, sources=sources, running=running, held_here=data.draw(st.sampled_from(["", "promoted"])))
    try:
        plan = plan_resolution(state, known, choice, shorter=shorter)
    except RefusedError as error:
        assert error.hint
        return
    assert all(step.describe() for step in plan.steps)
    for at, step in enumerate(plan.steps):
        if isinstance(step, DeleteTopic):
            assert not known.held_here
            assert any(each.has for each in sources)
            kept = [(n, each) for n, each in sorted(here.items()) if each.start < each.end]
            if kept:
                verified = plan.steps[at - 1]
                assert isinstance(verified, Verify)
                assert list(verified.extents) == kept
                copied = plan.steps[at - 2]
                assert isinstance(copied, KeepCopy)
                assert (copied.kept, copied.extents) == (verified.kept, verified.extents)
            if not shorter and state is not LogState.BEHIND_RETENTION:
                for n, each in kept:
                    starts = [source.has[n].start for source in sources if source.has and n in source.has]
                    assert not starts or min(starts) <= each.start


def test_a_skip_goes_from_the_end_here_to_the_first_start_there() -> None:
    """A skip reaches from this copy's end to the first start of a source."""
    known = facts(sources=(source((25, 40)), source((30, 50), site="gamma")), topic_id="5f")
    plan = plan_resolution(LogState.BEHIND_RETENTION, known)
    (order,) = orders(plan)
    assert (order.kind, order.log, order.start, order.stop) == (OverrideKind.SKIP, TOPIC, 20, 25)
    assert order.topic_id == "5f"
    assert plan.steps[-1] == WaitFor(TOPIC, ((0, 25),))
    assert "20..24 are lost" in plan.notes[0]


def test_what_some_source_still_has_is_not_skipped() -> None:
    """Offsets that some source still has are not skipped."""
    with pytest.raises(RefusedError, match="gamma still has offset 20") as caught:
        plan_resolution(LogState.BEHIND_RETENTION, facts(sources=(source((25, 40)), source((10, 22), site="gamma"))))
    assert "--retry" in caught.value.hint


def test_a_skip_of_a_batch_keeps_its_bytes_first() -> None:
    """Skipping a batch saves its bytes first."""
    known = facts(offending=OffsetRange(20, 25), offending_link="alpha->beta")
    plan = plan_resolution(LogState.QUARANTINED, known, ResolveChoice.SKIP)
    assert kinds(plan) == ["KeepBatch", "WriteOrder", "WaitFor"]
    first = plan.steps[0]
    assert isinstance(first, KeepBatch)
    assert (first.site, first.extent, first.kept) == ("alpha", OffsetRange(20, 25), KEPT)
    assert plan.notes == ("offsets 20..24 become marked fillers here",)
    with pytest.raises(RefusedError, match="its bytes cannot be kept"):
        plan_resolution(LogState.QUARANTINED, facts(), ResolveChoice.SKIP)


def test_the_first_batch_of_a_source_that_begins_later_is_skipped() -> None:
    known = facts(sources=(source((25, 40)),), offending=OffsetRange(25, 30), offending_link="alpha->beta")
    plan = plan_resolution(LogState.QUARANTINED, known, ResolveChoice.SKIP)
    assert [(order.start, order.stop) for order in orders(plan)] == [(25, 30)]
    assert plan.notes == ("offsets 20..29 become marked fillers here",)


def test_what_is_whole_here_and_damaged_at_the_source_stays() -> None:
    """A range that is intact here and damaged at the source stays."""
    known = facts(offending=OffsetRange(15, 20), offending_link="alpha->beta", topic_id="5f")
    plan = plan_resolution(LogState.QUARANTINED, known, ResolveChoice.SKIP)
    assert [order.topic_id for order in orders(plan)] == ["5f"]
    assert plan.notes == ("offsets 15..19 stay as they are here",)
    assert [(order.start, order.stop) for order in orders(plan)] == [(15, 20)]
    assert plan.steps[-1] == WaitFor(TOPIC, ((0, 20),))
    with pytest.raises(RefusedError, match="is damaged, and this site's copy of it is not"):
        plan_resolution(LogState.QUARANTINED, known, ResolveChoice.REFILL)


def test_a_skip_tells_who_else_may_have_the_batch() -> None:
    """The plan of a skip names other sources that may have the batch."""
    known = facts(
        offending=OffsetRange(20, 25),
        offending_link="alpha->beta",
        sources=(source((0, 30)), ResolveSource("gamma->beta", "gamma", None, "it is away")),
    )
    plan = plan_resolution(LogState.QUARANTINED, known, ResolveChoice.SKIP)
    assert plan.notes[-1] == "gamma may have it whole: it is away"


def test_a_hole_in_the_middle_of_a_ships_log_is_skipped() -> None:
    """No batch offends: the ship has no records from this copy's end to offset 1,000,000,000."""
    far = 1_000_000_000
    known = facts(sources=(source((0, far + 5)),), goes_on={"alpha->beta": far}, topic_id="5f")
    plan = plan_resolution(LogState.QUARANTINED, known, ResolveChoice.SKIP)
    assert kinds(plan) == ["WriteOrder", "WaitFor"]
    assert [(order.kind, order.start, order.stop) for order in orders(plan)] == [(OverrideKind.SKIP, 20, far)]
    assert "999 MB" in plan.notes[-1]
    both = (source((0, far + 5)), source((0, 30), site="gamma"))
    known = facts(sources=both, goes_on={"alpha->beta": far, "gamma->beta": 20})
    with pytest.raises(RefusedError, match="gamma still has offset 20"):
        plan_resolution(LogState.QUARANTINED, known, ResolveChoice.SKIP)


def test_a_skip_of_the_last_batch_does_not_wait_for_fillers() -> None:
    """They have the term of what follows, so they come with the source's next record."""
    known = facts(offending=OffsetRange(20, 30), offending_link="alpha->beta")
    plan = plan_resolution(LogState.QUARANTINED, known, ResolveChoice.SKIP)
    assert plan.steps[-1] == WaitFor(TOPIC, ())
    assert "next record of alpha" in plan.notes[-1]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"sources": ()}, "no link carries it"),
        ({"sources": (ResolveSource("alpha->beta", "alpha", None, "it is away"),)}, "alpha: it is away"),
        ({"held_here": "its name says so"}, "this site writes this log itself"),
        ({"sources": (source((5, 30)),)}, r"no source has offsets 0\.\.4"),
    ],
)
def test_a_refill_that_would_lose_data_is_refused(changes: dict[str, object], why: str) -> None:
    """A refill that would lose data is refused."""
    with pytest.raises(RefusedError, match=why) as caught:
        plan_resolution(LogState.DIVERGED, facts(**changes))
    assert caught.value.hint
    assert caught.value.fields == {"log": TOPIC, "site": "beta"}


def test_a_later_beginning_has_to_be_asked_for_and_is_said() -> None:
    """A refill that begins at a later offset needs a confirmation, and the plan says so."""
    known = facts(sources=(source((5, 30)),))
    plan = plan_resolution(LogState.DIVERGED, known, shorter=True)
    assert kinds(plan) == REFILLED
    assert plan.notes == (f"{TOPIC} will begin at offset 5; 0..4 in the kept copy",)
    behind = facts(sources=(source((25, 30)),))  # here the chosen way implies it
    assert kinds(plan_resolution(LogState.BEHIND_RETENTION, behind, ResolveChoice.REFILL)) == REFILLED


def test_what_only_this_site_has_is_given_back_where_it_joins() -> None:
    """Records that only this site has are restored if they join the source's records."""
    known = facts(sources=(source((5, 30)), source((8, 40), site="gamma")), joined=frozenset({0}))
    plan = plan_resolution(LogState.MISPLACED, known)
    assert kinds(plan) == [*REFILLED[:4], "RestoreRecords", *REFILLED[4:]]
    assert plan.steps[4] == RestoreRecords(TOPIC, KEPT, 1, ((0, OffsetRange(0, 5)),))
    assert plan.notes == ()
    assert kinds(plan_resolution(LogState.MISPLACED, known, shorter=True)) == REFILLED


def test_a_source_with_less_is_said() -> None:
    """The plan says if a source has fewer records than this site."""
    plan = plan_resolution(LogState.SOURCE_TRUNCATED, facts(sources=(source((0, 8)),)))
    assert plan.notes == (f"the source ends at 8: 8..19 of {TOPIC} in the kept copy",)
    assert plan.steps[-1] == WaitFor(TOPIC, ((0, 8),))


def test_all_partitions_go_together() -> None:
    """All partitions of a topic are handled together."""
    known = facts(log=f"{TOPIC}/1", here={0: OffsetRange(0, 9), 1: OffsetRange(3, 5), 2: OffsetRange(4, 4)})
    known = replace(known, sources=(source((0, 9), (3, 7), (0, 0)),))
    plan = plan_resolution(LogState.DIVERGED, known)
    pause, keep = plan.steps[0], plan.steps[1]
    assert isinstance(pause, PauseLog)
    assert pause.logs == (TOPIC, f"{TOPIC}/1", f"{TOPIC}/2")
    assert pause.order.log == TOPIC
    assert isinstance(keep, KeepCopy)
    assert keep.extents == ((0, OffsetRange(0, 9)), (1, OffsetRange(3, 5)))
    assert any("all 3 partitions" in note for note in plan.notes)


def test_an_interrupted_refill_goes_on() -> None:
    """An interrupted refill can be continued."""
    paused = orders(plan_resolution(LogState.MISPLACED, facts()))[0]
    assert resolved_by(paused) is LogState.MISPLACED
    assert resolved_by(None) is None
    assert resolved_by(Override(kind=OverrideKind.PAUSE, at=NOW, by="me", log=TOPIC)) is None
    again = plan_resolution(LogState.MISPLACED, facts(paused=paused, unfinished="fairlead.kept.x"))
    assert kinds(again) == REFILLED[1:]
    assert isinstance(again.steps[0], KeepCopy)
    assert again.steps[0].kept == "fairlead.kept.x"
    deleted = plan_resolution(LogState.MISPLACED, facts(paused=paused, here={}))
    assert kinds(deleted) == ["WriteOrder", "WriteOrder", "WaitFor"]


def test_how_far_groups_have_read_is_committed_again() -> None:
    """Consumer groups' committed offsets are restored."""
    groups = (Committed("readers", 0, 7),)
    plan = plan_resolution(LogState.DIVERGED, facts(groups=groups))
    assert plan.steps[-1] == RestoreGroups(TOPIC, groups)
    alone = plan_resolution(LogState.DIVERGED, facts(groups=groups, running=False))
    assert RestoreGroups not in {type(step) for step in alone.steps}
    assert "readers at offset 7" in alone.notes[-2]


def test_with_nobody_replicating_there_is_nothing_to_wait_for() -> None:
    """If nothing replicates the log, the plan waits for nothing."""
    plan = plan_resolution(LogState.DIVERGED, facts(running=False))
    assert kinds(plan) == REFILLED[:-1]
    assert "fairlead replicate --site beta" in plan.notes[-1]
    pause = plan.steps[0]
    assert isinstance(pause, PauseLog)
    assert not pause.wait


def test_a_pause_ends_at_the_scope_at_which_it_was_ordered() -> None:
    """A pause is ended for the same scope for which it was ordered."""
    pause = Override(kind=OverrideKind.PAUSE, at=NOW, by="me", log=TOPIC, link="alpha->beta")
    (order,) = orders(plan_resolution(LogState.PAUSED, facts(paused=pause)))
    assert (order.kind, order.log, order.link) == (OverrideKind.RESUME, TOPIC, "alpha->beta")
    for scope in ({"link": "alpha->beta"}, {"stream": "s"}, {}):
        wide = Override(kind=OverrideKind.PAUSE, at=NOW, by="me", **scope)  # type: ignore[arg-type]
        with pytest.raises(RefusedError, match="as a whole, not of this log"):
            plan_resolution(LogState.PAUSED, facts(paused=wide))


def test_a_choice_that_does_not_fit_is_refused_with_those_that_do() -> None:
    """A choice that does not fit the state is refused, and the error lists those that do."""
    with pytest.raises(RefusedError, match="--skip does not resolve diverged") as caught:
        plan_resolution(LogState.DIVERGED, facts(), ResolveChoice.SKIP)
    assert caught.value.hint == "what does: --refill, --retry"
    with pytest.raises(RefusedError, match="nothing to resolve"):
        plan_resolution(LogState.MIRRORING, facts())


def test_the_plan_for_a_program_says_what_the_plan_for_a_person_says() -> None:
    """The plan in JSON says the same as the plan in text."""
    plan = plan_resolution(LogState.DIVERGED, facts())
    shown = json.loads(json.dumps(plan.to_builtins()))
    assert [each["does"] for each in shown["steps"]] == [step.describe() for step in plan.steps]
    assert shown["steps"][1]["extents"] == [[0, [0, 20]]]
    assert shown["steps"][0]["order"]["reason"] == resolving(LogState.DIVERGED)


@given(st.text("abcdefghij.-_", min_size=1, max_size=MAX_TOPIC_LENGTH), st.datetimes(timezones=st.just(dt.UTC)))
def test_names_of_kept_copies_are_legal_and_found_again(topic: str, when: dt.datetime) -> None:
    """Names of saved copies are legal topic names and are found again."""
    name = kept_name(topic, when)
    assert len(name) <= MAX_TOPIC_LENGTH
    if when.year >= 1000:
        older = kept_name(topic, when - dt.timedelta(days=1)) if when.year > 1001 else None
        others = [topic, f"{name}x", kept_name(f"{topic}x"[-100:], when)]
        found = kept_copies(topic, [*([older] if older else []), name, *others])
        assert found[0] == name
        if older:
            assert found[1] == older
