"""Distrusting a ship: what is planned, what is refused, and that nothing is done without consent."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from typer.testing import CliRunner

from edge.custody.operator.takeover import TakeoverRequest
from fairlead import distrust
from fairlead.cli.commands.sites import app as command
from fairlead.custody.ledger import Ledgers, Told
from fairlead.errors import FairleadError, RefusedError, UnavailableError, UnknownNameError
from fairlead.kafka.client.reader import OffsetRange
from fairlead.records.custody import CustodyOrder, LedgerEntry
from tests.support.honest_ledgers import grant, log
from topologies.context import open_topology

ABOARD, ASHORE, NEVER_ASHORE = log(1), log(2), log(3)
SHIP = "duck-star"
REQUEST = TakeoverRequest(SHIP, None, "operator", "stolen")
ENTRIES: dict[str, list[tuple[str, LedgerEntry]]] = {
    "tokyo": [
        ("tokyo", grant("tokyo", ABOARD, 1, "tokyo")),
        ("tokyo", grant("tokyo", ABOARD, 2, SHIP)),
        ("tokyo", grant("tokyo", ASHORE, 1, "tokyo")),
        ("tokyo", grant("tokyo", ASHORE, 2, SHIP)),
        ("blue-marlin", grant("blue-marlin", NEVER_ASHORE, 2, SHIP)),  # only another ship says so
    ],
    # Only Sydney knows that one of them was discharged there.
    "sydney": [
        ("tokyo", grant("tokyo", ABOARD, 1, "tokyo")),
        ("tokyo", grant("tokyo", ABOARD, 2, SHIP)),
        (SHIP, grant(SHIP, ASHORE, 3, "sydney", event="DISC")),
    ],
}


class FakeLedgers:
    """The ledgers of the sites that answer."""

    async def ledgers(self, name: str, *, about: str | None = None) -> Ledgers:
        if name not in ENTRIES:
            raise UnavailableError(f"{name} does not answer")
        told = tuple(Told(f"custody.{by}", n, entry) for n, (by, entry) in enumerate(ENTRIES[name]))
        return Ledgers(name, (), tuple(each.entry for each in told), frozenset(), told=told)

    async def orders(self, name: str) -> Sequence[CustodyOrder]:
        if name not in ENTRIES:
            raise UnavailableError(f"{name} does not answer")
        return ()

    async def ledger_end(self, name: str) -> int:
        return len(ENTRIES[name])

    async def copies(self, name: str, logs: Collection[str]) -> Mapping[str, OffsetRange]:
        return {log: OffsetRange(0, 70 if name == "tokyo" else 50) for log in logs}

    async def answers(self, name: str) -> bool:
        return name in ENTRIES


@pytest.fixture
def carried_out(monkeypatch: pytest.MonkeyPatch) -> list[distrust.DistrustPlan]:
    """The plans that the command carries out; nothing is done."""

    @asynccontextmanager
    async def open_ledgers(*_: Any) -> Any:
        yield FakeLedgers()

    done: list[distrust.DistrustPlan] = []

    def carry_out(_context: Any, plan: distrust.DistrustPlan, *_: Any, **__: Any) -> distrust.DistrustResult:
        done.append(plan)
        return distrust.DistrustResult(done=["all"])

    monkeypatch.setattr(distrust, "open_ledgers", open_ledgers)
    monkeypatch.setattr(command, "carry_out", carry_out)
    return done


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(command.app, ["distrust", *arguments, "--topology", "big-blue"])


@pytest.mark.usefixtures("carried_out")
def test_the_plan_names_links_passwords_and_logs() -> None:
    lines = asyncio.run(distrust.plan_distrust(open_topology("big-blue"), REQUEST)).lines()
    assert "los-angeles: fetch nothing more over duck-star->los-angeles" in lines
    assert "sydney: fetch nothing more over duck-star->sydney:berthed" in lines
    assert f"tokyo: give replicator.{SHIP} another password" in lines
    assert f"{SHIP}: give bridge another password" in lines
    assert f"tokyo: seize {ABOARD} (term 2)" in lines
    assert not any(ASHORE in line or NEVER_ASHORE in line for line in lines)


@pytest.mark.parametrize(("options", "code"), [(["--dry-run"], 0), ([], 1)])
def test_nothing_is_done_without_consent(
    carried_out: list[distrust.DistrustPlan], options: list[str], code: int
) -> None:
    answer = invoke(SHIP, "--reason", "stolen", *options)
    assert answer.exit_code == code
    assert code == 0 or isinstance(answer.exception, FairleadError)
    assert carried_out == []


def test_a_named_site_seizes_every_log(carried_out: list[distrust.DistrustPlan]) -> None:
    answer = invoke(SHIP, "--reason", "stolen", "--yes", "--site", "sydney")
    assert answer.exit_code == 0, answer.output
    (plan,) = carried_out
    assert [(each.log, each.at_site) for each in plan.takeover.orders] == [(ABOARD, "sydney")]


@pytest.mark.parametrize(
    ("ship", "at", "reason", "error", "words"),
    [
        ("tokyo", None, "x", RefusedError, "is ashore"),
        ("duck-stra", None, "x", UnknownNameError, "duck-stra"),
        (SHIP, None, " ", RefusedError, "needs a reason"),
        (SHIP, "sidney", "x", UnknownNameError, "sidney"),
        (SHIP, "blue-marlin", "x", RefusedError, "not a site ashore"),
    ],
)
def test_a_bad_request_is_refused(
    ship: str, at: str | None, reason: str, error: type[FairleadError], words: str
) -> None:
    with pytest.raises(error, match=words):
        distrust.check_request(open_topology("big-blue").topology, TakeoverRequest(ship, at, "me", reason))
