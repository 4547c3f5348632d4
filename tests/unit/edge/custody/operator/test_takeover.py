"""Taking over all logs of a lost ship: what is planned where, what is left and why, and that a second run continues."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from edge.custody.operator.takeover import (
    AwaitAnswers,
    TakeoverPlan,
    TakeoverRequest,
    TakeoverRun,
    WriteOrders,
    build_takeover,
    carry_out_takeover,
    check_takeover,
    describe_unanswered,
    look_at_takeover,
)
from fairlead.errors import FairleadError, RefusedError, UnavailableError, UnknownNameError
from fairlead.kafka.client.reader import OffsetRange
from fairlead.names import container_check_digit
from fairlead.records.custody import CustodyEntry, CustodyOrder, LedgerEntry, RefusalEntry
from tests.support import ledgers as samples
from tests.support.edge.ledgers_in_memory import Answer, FakeLedgers
from tests.support.edge.samples import topology

ASHORE = ("tokyo", "sydney", "head")


def box(n: int) -> str:
    ten = f"BIGU{n:06d}"
    return f"containers.{ten}{container_check_digit(ten)}"


LOGS = [box(n) for n in range(6)]


def entry(term: int, marker: int, to: str | None, event: Any = "HAND", **more: Any) -> CustodyEntry:
    """Return a grant that is believed: it quotes no marker."""
    return samples.entry(term, marker, to, event, marker_batch=b"", **more)


def loaded(log: str) -> list[LedgerEntry]:
    return [entry(1, 0, "tokyo", "GTIN", log=log), entry(2, 10, "star", "LOAD", log=log)]


def seized(order: CustodyOrder) -> LedgerEntry:
    """What the seizing bridge writes."""
    return entry(
        18, 30, order.to_site, "SEIZURE", log=order.log, by=order.to_site, from_site="star", event_id=order.order_id
    )


def refused(order: CustodyOrder) -> LedgerEntry:
    return RefusalEntry(
        log=order.log,
        order_id=order.order_id,
        code="RefusedError",
        reason=f"{order.log} has moved since the order was given: from term 2 to term 3, held by sydney",
        refused_date_time=order.ordered_date_time,
        refused_by=order.at_site,
    )


def fleet(answer: Answer = seized, logs: list[str] = LOGS) -> FakeLedgers:
    """Sites ashore that all know that the ship holds the logs; Sydney has the longest copies."""
    entries = [each for log in logs for each in loaded(log)]
    ends = {"tokyo": 20, "sydney": 30, "head": 30}
    copies = {(site, log): OffsetRange(0, end) for site, end in ends.items() for log in logs}
    return FakeLedgers({site: list(entries) for site in ASHORE}, copies, away={"star"}, answer=answer)


def plan(ledgers: FakeLedgers, at: str | None = None, holder: str = "star") -> TakeoverPlan:
    request = TakeoverRequest(holder, at, "ann", "sank")
    return build_takeover(asyncio.run(look_at_takeover(topology(), ledgers, request)))


def carry_out(ledgers: FakeLedgers, made: TakeoverPlan, wait: float = 5.0) -> TakeoverRun:
    run = TakeoverRun(ledgers, wait)
    asyncio.run(carry_out_takeover(made, run))
    return run


def into_ledgers(ledgers: FakeLedgers) -> None:
    """Replicate what the bridges wrote to every site's ledgers."""
    for site in ASHORE:
        ledgers.entries[site] += [each for each in ledgers.written if each not in ledgers.entries[site]]


def test_all_logs_of_a_ship_are_one_plan_at_one_site() -> None:
    ledgers = fleet()
    made = plan(ledgers, "sydney")
    write, wait = made.steps
    assert isinstance(write, WriteOrders) and isinstance(wait, AwaitAnswers)
    assert [order.log for order in write.orders] == LOGS == [order.log for order in wait.orders]
    assert {(each.kind, each.at_site, each.to_site, each.term, each.reason) for each in write.orders} == {
        ("seize", "sydney", "sydney", 2, "sank")
    }
    lines = [text for text, _ in made.lines()]
    assert lines[0] == "star holds 6 logs: 6 to take over"
    assert lines[1] == "1. append 6 orders to fairlead.custody at sydney: seize, because: sank"
    run = carry_out(ledgers, made)
    assert [each.log for each in run.seized] == LOGS and not run.unanswered and not run.refused


def test_without_a_site_each_log_goes_where_its_copy_is_longest_and_of_equal_ones_to_the_last_holder() -> None:
    ledgers = fleet()
    ledgers.copies_of["tokyo", LOGS[0]] = OffsetRange(0, 31)  # the longest
    ledgers.copies_of["tokyo", LOGS[1]] = OffsetRange(0, 30)  # as long as any, and it loaded the box
    made = plan(ledgers)
    assert {order.log: order.at_site for order in made.orders} == {
        **dict.fromkeys(LOGS[:2], "tokyo"),
        **dict.fromkeys(LOGS[2:], "sydney"),
    }
    assert [step.site for step in made.steps if isinstance(step, WriteOrders)] == ["tokyo", "sydney"]


def test_a_named_site_with_shorter_copies_is_told() -> None:
    notes = " / ".join(plan(fleet(), "tokyo").notes)
    assert "for 6 logs another site ashore has a longer copy, by up to 10 records" in notes


def test_a_second_run_after_an_interruption_writes_nothing_again_and_counts_what_was_done() -> None:
    """The first run is killed when all orders are written and half of them are carried out."""
    half = set(LOGS[:3])
    ledgers = fleet(lambda order: seized(order) if order.log in half else None)
    first = plan(ledgers, "sydney")
    run = carry_out(ledgers, first, wait=0.0)
    assert [each.log for each in run.unanswered] == LOGS[3:]
    assert describe_unanswered(run).startswith("3 orders stand without an answer, for example seize")
    into_ledgers(ledgers)

    second = plan(ledgers, "sydney")
    assert (dict(second.already), second.standing) == ({"sydney": 3}, 3)
    assert [type(step) for step in second.steps] == [AwaitAnswers]
    assert [order.order_id for order in second.orders] == [order.order_id for order in first.orders[3:]]
    assert second.heading() == "star holds 3 logs: 3 to take over; taken over already: sydney 3"
    ledgers.written += [seized(order) for order in second.orders]  # the bridge runs again
    assert len(carry_out(ledgers, second).seized) == 3 and len(ledgers.given) == 6
    into_ledgers(ledgers)

    third = plan(ledgers, "sydney")
    assert third.is_empty and third.heading() == "star holds no log; taken over already: sydney 6"


def test_a_first_run_that_wrote_half_of_its_orders_is_continued() -> None:
    ledgers = fleet(lambda order: None)
    first = plan(ledgers, "sydney")
    asyncio.run(ledgers.append("sydney", first.orders[:2]))
    second = plan(ledgers, "sydney")
    (write,) = (step for step in second.steps if isinstance(step, WriteOrders))
    assert [order.log for order in write.orders] == LOGS[2:] and second.standing == 2
    # An order that had been sent when the plan was made is written twice, under one id, which a bridge ignores.
    assert [order.order_id for order in write.orders] == [order.order_id for order in first.orders[2:]]


def test_orders_that_stand_at_another_site_are_never_given_a_second_time_elsewhere() -> None:
    """Two seizures that do not know of each other would split the log."""
    ledgers = fleet(lambda order: None)
    asyncio.run(ledgers.append("tokyo", plan(ledgers, "tokyo").orders))
    assert {order.at_site for order in plan(ledgers).orders} == {"tokyo"}
    made = plan(ledgers, "sydney")
    assert made.is_empty and len(made.left) == 6
    assert "stands at tokyo" in made.left[0].why


def test_a_refused_order_can_be_given_again() -> None:
    ledgers = fleet(refused)
    first = plan(ledgers, "sydney")
    run = carry_out(ledgers, first)
    assert len(run.refused) == 6 and not run.seized and "held by sydney" in run.refused[0].reason
    into_ledgers(ledgers)
    second = plan(ledgers, "sydney")
    assert second.standing == 0
    assert {order.order_id for order in second.orders}.isdisjoint(order.order_id for order in first.orders)


def test_logs_that_moved_meanwhile_are_not_touched() -> None:
    """One was seized by another site, one was discharged by the ship that had come back."""
    ledgers = fleet()
    other = entry(18, 30, "tokyo", "SEIZURE", log=LOGS[0], by="tokyo", from_site="star")
    back = entry(3, 40, "sydney", "DISC", log=LOGS[1], by="star")
    ledgers.entries["head"] += [other, back]
    made = plan(ledgers, "sydney")
    assert [order.log for order in made.orders] == LOGS[2:] and dict(made.already) == {"tokyo": 1}


@pytest.mark.parametrize(
    ("copies", "entries", "why"),
    [
        ({("sydney", LOGS[0]): None}, [], "sydney has no copy of it"),
        ({("sydney", LOGS[0]): OffsetRange(11, 20)}, [], "no marker of any term"),
        (
            {},
            [entry(3, 40, "tokyo", log=LOGS[0], by="star"), entry(4, 50, "star", log=LOGS[0])],
            "know term 2 and not yet term 4",
        ),
        ({}, [entry(32760, 40, "star", log=LOGS[0], by="tokyo")], "too close to the last"),
        ({}, [entry(2, 9, "star", log=LOGS[0], event_id="another")], "granted in more than one way"),
    ],
)
def test_a_log_that_cannot_be_taken_over_is_named_and_stops_no_other(
    copies: dict[tuple[str, str], Any], entries: list[LedgerEntry], why: str
) -> None:
    ledgers = fleet()
    for key, extent in copies.items():
        ledgers.copies_of.pop(key)
        if extent is not None:
            ledgers.copies_of[key] = extent
    ledgers.entries["head"] += entries
    made = plan(ledgers, "sydney")
    assert [each.log for each in made.left] == [LOGS[0]] and why in made.left[0].why
    assert [order.log for order in made.orders] == LOGS[1:]
    assert any(note.startswith(f"left with star: 1 log, for example {LOGS[0]}") for note in made.notes)


def test_a_log_without_any_copy_ashore_is_left() -> None:
    ledgers = fleet()
    for site in ASHORE:
        del ledgers.copies_of[site, LOGS[0]]
    made = plan(ledgers)
    assert [(each.log, "no site ashore" in each.why) for each in made.left] == [(LOGS[0], True)]


def test_a_ship_without_logs_has_an_empty_plan() -> None:
    made = plan(fleet(logs=[]))
    assert made.is_empty and made.heading() == "star holds no log" and not made.left


def test_a_holder_that_answers_and_sites_that_do_not_are_told() -> None:
    ledgers = fleet()
    ledgers.away = {"head"}
    notes = " / ".join(plan(ledgers).notes)
    assert "star answers; it can grant its logs itself" in notes
    assert "head does not answer (head is away)" in notes
    with pytest.raises(UnavailableError, match="head is away"):
        plan(ledgers, "head")
    ledgers.away = set(ASHORE)
    with pytest.raises(UnavailableError, match="none of these sites"):
        plan(ledgers)


@pytest.mark.parametrize(
    ("request_", "kind", "what"),
    [
        (TakeoverRequest("star", "nowhere", "ann", "sank"), UnknownNameError, "no site 'nowhere'"),
        (TakeoverRequest("tokyo", "star", "ann", "sank"), RefusedError, "star is a ship"),
        (TakeoverRequest("tokyo", "tokyo", "ann", "sank"), RefusedError, "take them over itself"),
        (TakeoverRequest("star", "tokyo", "ann", " "), RefusedError, "needs a reason"),
    ],
)
def test_requests_that_are_refused_before_any_site_is_asked(
    request_: TakeoverRequest, kind: type[FairleadError], what: str
) -> None:
    with pytest.raises(kind) as error:
        check_takeover(topology(), request_)
    assert what in error.value.what and error.value.hint


def test_a_holder_that_nobody_knows() -> None:
    with pytest.raises(UnknownNameError, match="no site 'sta'"):
        plan(fleet(), holder="sta")


def test_a_site_that_left_the_topology_can_be_taken_over() -> None:
    ledgers = fleet()
    for site in ASHORE:
        ledgers.entries[site] = [entry(1, 0, "tokyo", "GTIN", log=LOGS[0]), entry(2, 10, "old-star", log=LOGS[0])]
    assert [order.log for order in plan(ledgers, "sydney", holder="old-star").orders] == [LOGS[0]]


def test_a_ledger_that_cannot_be_read_for_a_while_is_read_again() -> None:
    """The site's Kafka restarts while the command waits."""
    ledgers = fleet()
    made = plan(ledgers, "sydney")
    ledgers.trouble = UnavailableError("sydney is away")
    said: list[str] = []

    def tell(text: str) -> None:
        said.append(text)
        if text.startswith("sydney: 0 of 6 seized"):
            ledgers.trouble = None

    run = TakeoverRun(ledgers, 5.0, tell)
    asyncio.run(carry_out_takeover(made, run))
    assert len(run.seized) == 6 and said[-1].startswith("sydney: 6 of 6 seized")
