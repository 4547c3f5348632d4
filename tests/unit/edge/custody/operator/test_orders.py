"""Grants and seizures by hand: which ones the ledgers rule out, and what is planned, shown and done."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Any

import pytest

from edge.custody.operator import execute
from edge.custody.operator.execute import CustodyRun, OrderRefusedError, OrderStandsError, carry_out
from edge.custody.operator.plan import (
    CustodyPlan,
    CustodyRequest,
    build,
    check_names,
    look_at_grant,
    look_at_seizure,
    named_log,
)
from fairlead.custody.history import UnknownLogError
from fairlead.custody.ledger import Missing
from fairlead.errors import ConfigurationError, FairleadError, RefusedError, UnavailableError, UnknownNameError
from fairlead.kafka.client.reader import OffsetRange
from fairlead.records.custody import CustodyOrder, LedgerEntry, RefusalEntry
from tests.support.edge.ledgers_in_memory import FakeLedgers, carried_out
from tests.support.edge.samples import BOX, topology
from tests.support.edge.samples import BOX_LOG as LOG
from tests.support.ledgers import entry
from topologies.model import Site, SiteKind, Topology

ASK = ("head", "tokyo", "sydney", "star")
AT_TOKYO = entry(1, 0, "tokyo", "GTIN", log=LOG)
ON_SHIP = entry(2, 10, "star", "LOAD", log=LOG)
EVERYWHERE: dict[str, list[LedgerEntry]] = {site: [AT_TOKYO, ON_SHIP] for site in ASK}
COPY = {("sydney", LOG): OffsetRange(0, 30)}


def sites() -> Topology:
    made = topology()
    return made.model_copy(update={"sites": {**made.sites, "ducks-hq": Site(kind=SiteKind.CUSTOMER)}})


def plan_grant(ledgers: FakeLedgers, to: str = "sydney", log: str = LOG) -> CustodyPlan:
    facts = look_at_grant(sites(), ledgers, CustodyRequest(log, to, "ann", "by hand"), ASK)
    return build(asyncio.run(facts))


def plan_seizure(ledgers: FakeLedgers, at: str = "sydney", reason: str = "sank") -> CustodyPlan:
    return build(asyncio.run(look_at_seizure(sites(), ledgers, CustodyRequest(LOG, at, "ann", reason))))


def test_a_grant_is_ordered_at_the_holder() -> None:
    plan = plan_grant(FakeLedgers(EVERYWHERE))
    assert (plan.site, plan.holder, plan.term) == ("star", "star", 2)
    order = plan.order
    assert (order.kind, order.log, order.to_site, order.term) == ("grant", LOG, "sydney", 2)
    assert (order.ordered_by, order.reason) == ("ann", "by hand")
    told = [text for text, _ in plan.lines()]
    assert told == [
        f"{LOG} is held by star in term 2",
        f"1. append to fairlead.custody at star: grant {LOG} to sydney, because: by hand",
        "2. wait until the bridge of star has carried it out or refused it, by its ledger custody.star",
    ]


def test_the_holder_is_followed_where_the_ledger_that_was_asked_is_behind() -> None:
    """If the ledger that was asked is out of date, the order still goes to the log's present holder."""
    ledgers = FakeLedgers({"head": [AT_TOKYO], "tokyo": [AT_TOKYO, ON_SHIP], "star": [AT_TOKYO, ON_SHIP]})
    assert plan_grant(ledgers).site == "star"
    assert ledgers.asked == ["head", "tokyo", "star"]
    ledgers = FakeLedgers({"tokyo": [AT_TOKYO]}, away={"head"})  # one site is away, so the next one is asked
    assert plan_grant(ledgers).site == "tokyo"


@pytest.mark.parametrize(
    ("entries", "to", "what", "hint"),
    [
        (EVERYWHERE, "star", "star holds it already, since term 2", "--to SITE"),
        ({"head": [AT_TOKYO, entry(2, 9, None, "GTOT", log=LOG)]}, "sydney", "left the system", "GTIN"),
        ({"head": [entry(2, 9, "old-star", log=LOG)]}, "sydney", "no site of that name", "custody seize"),
        ({"head": [AT_TOKYO, ON_SHIP], "star": []}, "sydney", "star itself knows no term", "star has the entry"),
        ({"head": [AT_TOKYO, ON_SHIP], "star": [AT_TOKYO]}, "sydney", "star itself knows term 1", "star has the entry"),
        (
            {"head": [AT_TOKYO, entry(1, 0, "sydney", "GTIN", log=LOG, event_id="x")]},
            "star",
            "granted in 2 ways",
            "fairlead audit",
        ),
        ({"head": [RefusalEntry(
            log=LOG, order_id="o", code="c", reason="r", refused_date_time=AT_TOKYO.event_date_time, refused_by="tokyo"
        )]}, "star", "no ledger names its holder", "gate-in"),
    ],
)  # fmt: skip
def test_grants_that_the_ledger_rules_out(entries: dict[str, Any], to: str, what: str, hint: str) -> None:
    """Grants that the ledgers rule out are refused with the reason and a hint."""
    with pytest.raises(RefusedError) as error:
        plan_grant(FakeLedgers({"tokyo": [], "sydney": entries.get("head", []), **entries}), to)
    assert what in error.value.what and hint in error.value.hint
    assert error.value.fields["log"] == LOG


def test_a_log_that_nobody_knows_and_sites_that_do_not_answer() -> None:
    """An unknown log, and sites that do not answer, are errors."""
    with pytest.raises(UnknownLogError, match="no ledger at head"):
        plan_grant(FakeLedgers(EVERYWHERE), log=f"{LOG}9")
    with pytest.raises(UnavailableError, match="none of these sites"):
        plan_grant(FakeLedgers({}, away=set(ASK)))
    with pytest.raises(UnavailableError, match="star is away"):
        plan_grant(FakeLedgers(EVERYWHERE, away={"star"}))


@pytest.mark.parametrize(
    ("log", "to", "kind", "what"),
    [
        (LOG, "sidney", UnknownNameError, "no site 'sidney'"),
        (LOG, "ducks-hq", RefusedError, "customer's site"),
        ("events.tokyo", "sydney", RefusedError, "only tokyo may ever write to it"),
        ("events.nowhere", "sydney", RefusedError, "never moves"),
        (f"kontainers.{BOX}", "sydney", UnknownNameError, "no stream 'kontainers'"),
    ],
)
def test_names_are_checked_before_any_site_is_asked(log: str, to: str, kind: type[FairleadError], what: str) -> None:
    with pytest.raises(kind) as error:
        check_names(sites(), "grant", log, to)
    assert what in error.value.what and error.value.hint


def test_a_container_number_stands_for_its_log() -> None:
    """A container number is accepted in place of its log's name."""
    assert named_log(topology(), BOX) == LOG
    assert named_log(topology(), "anything.else") == "anything.else"
    with pytest.raises(ConfigurationError, match="CSQU") as error:
        named_log(topology(), "CSQU3054383")
    assert "BIGU" in error.value.hint


def test_a_seizure_is_ordered_at_the_seizing_site() -> None:
    plan = plan_seizure(FakeLedgers(EVERYWHERE, COPY, away={"star"}))
    assert (plan.site, plan.holder, plan.order.kind, plan.order.to_site) == ("sydney", "star", "seize", "sydney")
    (note,) = plan.notes
    assert "continues at offset 30" in note
    told = [text for text, _ in plan.lines()]
    assert told[1].endswith(f"at sydney: seize {LOG}, because: sank") and told[-1].startswith("note: ")


def test_what_to_know_before_a_seizure() -> None:
    """The plan of a seizure warns of everything the operator should know first."""
    future = entry(2, 40, "star", log=LOG, event_date_time=dt.datetime.now(dt.UTC) + dt.timedelta(days=1))
    ledgers = FakeLedgers({"sydney": [AT_TOKYO, future]}, COPY, missing=(Missing("custody.tokyo", 0, 3),))
    notes = " / ".join(plan_seizure(ledgers).notes)
    assert "does not reach term 2" in notes and "star answers" in notes
    assert "damaged or missing" in notes and "dated in the future" in notes
    gone = plan_seizure(FakeLedgers({"sydney": [AT_TOKYO, entry(2, 9, None, "GTOT", log=LOG)]}, COPY))
    assert "no site holds it" in gone.notes[1]


@pytest.mark.parametrize(
    ("entries", "copies", "at", "reason", "what"),
    [
        (EVERYWHERE, COPY, "sydney", "  ", "needs a reason"),
        (EVERYWHERE, {("star", LOG): OffsetRange(0, 9)}, "star", "sank", "star is a ship"),
        (EVERYWHERE, {}, "sydney", "sank", "has no copy"),
        (EVERYWHERE, {("sydney", LOG): OffsetRange(5, 5)}, "sydney", "sank", "has no copy"),
        (EVERYWHERE, {("sydney", LOG): OffsetRange(11, 20)}, "sydney", "sank", "no marker of any term"),
        ({"sydney": [AT_TOKYO, entry(32760, 10, "star", log=LOG)]}, COPY, "sydney", "sank", "too close to the last"),
    ],
)
def test_seizures_that_are_refused(
    entries: dict[str, Any], copies: dict[tuple[str, str], OffsetRange], at: str, reason: str, what: str
) -> None:
    with pytest.raises(RefusedError) as error:
        plan_seizure(FakeLedgers(entries, copies), at, reason)
    assert what in error.value.what and error.value.hint


def test_a_seizure_of_a_log_that_the_seizing_site_has_not_heard_of() -> None:
    """A site refuses to seize a log that its ledgers do not mention."""
    with pytest.raises(UnknownLogError, match="no ledger at sydney"):
        plan_seizure(FakeLedgers({"head": [AT_TOKYO]}, COPY))


async def test_an_order_is_written_and_its_answer_found() -> None:
    ledgers = FakeLedgers(EVERYWHERE, answer=carried_out)
    said: list[str] = []
    facts = await look_at_grant(sites(), ledgers, CustodyRequest(LOG, "sydney", "ann"), ASK)
    answer = await carry_out(build(facts), CustodyRun(ledgers, tell=said.append))
    assert (answer.term, answer.to_site, ledgers.given[0][0]) == (3, "sydney", "star")
    assert said[0].startswith("append to fairlead.custody at star: grant")
    assert "waiting for the bridge of star" in said[2]


async def test_a_refusal_of_the_bridge_is_an_error_with_its_reason() -> None:
    def refuse(order: CustodyOrder) -> RefusalEntry:
        return RefusalEntry(
            log=order.log,
            order_id=order.order_id,
            code="ReplicaBehindError",
            reason="its copy is behind",
            refused_date_time=order.ordered_date_time,
            refused_by="star",
        )

    ledgers = FakeLedgers(EVERYWHERE, answer=refuse)
    facts = await look_at_grant(sites(), ledgers, CustodyRequest(LOG, "sydney", "ann"), ASK)
    with pytest.raises(OrderRefusedError, match="its copy is behind") as error:
        await carry_out(build(facts), CustodyRun(ledgers))
    assert error.value.fields["code"] == "ReplicaBehindError"


@pytest.mark.parametrize(
    "trouble", [None, UnavailableError("star is away"), RefusedError("admin may not read"), "another order's entry"]
)
async def test_without_an_answer_the_order_stands(
    trouble: FairleadError | str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If no answer comes in time, the order remains in force."""
    monkeypatch.setattr(execute, "PAUSE", 0.01)
    ledgers = FakeLedgers(EVERYWHERE)
    if isinstance(trouble, FairleadError):
        ledgers.trouble = trouble
    elif trouble:
        ledgers.answer = lambda order: entry(3, 31, "sydney", log=order.log, event_id="another")
    facts = await look_at_grant(sites(), ledgers, CustodyRequest(LOG, "sydney", "ann"), ASK)
    with pytest.raises(OrderStandsError, match="carries it out when it runs") as error:
        await carry_out(build(facts), CustodyRun(ledgers, wait=0.05))
    assert error.value.exit_code == 4 and "fairlead bridge --site star" in error.value.hint
    assert error.value.fields["order_id"] == ledgers.given[0][1].order_id
