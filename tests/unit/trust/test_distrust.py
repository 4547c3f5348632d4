"""``fairlead site distrust``: what is planned, what is refused, and that nothing is done without consent."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fairlead.cli.commands.sites import app as site
from fairlead.custody.ledger import Ledgers, Told
from fairlead.errors import FairleadError, RefusedError, UnavailableError, UnknownNameError
from fairlead.records.custody import LedgerEntry
from tests.support.honest_ledgers import grant, log

ABOARD, ASHORE, NEVER_ASHORE = log(1), log(2), log(3)
SHIP = "duck-star"
ENTRIES: dict[str, list[tuple[str, LedgerEntry]]] = {
    "tokyo": [
        ("tokyo", grant("tokyo", ABOARD, 1, "tokyo")),
        ("tokyo", grant("tokyo", ABOARD, 2, SHIP)),
        ("tokyo", grant("tokyo", ASHORE, 1, "tokyo")),
        ("tokyo", grant("tokyo", ASHORE, 2, SHIP)),
    ],
    # Only Sydney knows that one of them was discharged there.
    "sydney": [(SHIP, grant(SHIP, ASHORE, 3, "sydney", event="DISC"))],
}


class FakeLedgers:
    """The ledgers of the sites that answer."""

    async def ledgers(self, name: str, *, about: str | None = None) -> Ledgers:
        if name not in ENTRIES:
            raise UnavailableError(f"{name} does not answer")
        told = tuple(Told(f"custody.{by}", n, entry) for n, (by, entry) in enumerate(ENTRIES[name]))
        return Ledgers(name, (), tuple(each.entry for each in told), frozenset(), told=told)


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the command carried out."""

    @asynccontextmanager
    async def access_of(_context: Any) -> Any:
        yield FakeLedgers()

    done: list[Any] = []

    def carried_out(_context: Any, plan: Any, *_: Any, quiet: bool) -> site.Outcome:
        done.append(plan)
        return site.Outcome(done=["all"])

    monkeypatch.setattr(site, "access_of", access_of)
    monkeypatch.setattr(site, "_carry_out", carried_out)
    return done


def says(*arguments: str) -> Any:
    return CliRunner().invoke(site.app, ["distrust", *arguments, "--topology", "big-blue"])


def test_the_plan_names_links_passwords_and_logs(called: list[Any]) -> None:
    answer = says(SHIP, "--reason", "stolen", "--dry-run")
    assert answer.exit_code == 0, answer.output
    told = answer.stdout.splitlines()
    assert "los-angeles: fetch nothing more over duck-star->los-angeles" in told
    assert "sydney: fetch nothing more over duck-star->sydney:berthed" in told
    assert f"tokyo: give replicator.{SHIP} another password" in told
    assert f"{SHIP}: give bridge another password" in told
    assert f"tokyo: seize {ABOARD} (term 2)" in told
    assert not any(ASHORE in line for line in told)
    assert "Nothing was changed" in answer.stdout
    assert called == []


def test_it_is_done_with_consent_only(called: list[Any]) -> None:
    assert isinstance(says(SHIP, "--reason", "stolen").exception, FairleadError)
    assert called == []
    answer = says(SHIP, "--reason", "stolen", "--yes", "--site", "sydney")
    assert answer.exit_code == 0, answer.output
    (plan,) = called
    assert [(each.log, each.at) for each in plan.seizures] == [(ABOARD, "sydney")]


def test_what_only_another_ship_says_to_have_given_is_not_seized(
    called: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = {"tokyo": [("blue-marlin", grant("blue-marlin", NEVER_ASHORE, 2, SHIP)), *ENTRIES["tokyo"]]}
    monkeypatch.setattr(f"{__name__}.ENTRIES", gone)
    answer = says(SHIP, "--reason", "stolen", "--yes")
    assert answer.exit_code == 0, answer.output
    assert NEVER_ASHORE not in answer.stdout


@pytest.mark.parametrize(
    ("arguments", "kind", "said"),
    [
        (("tokyo", "--reason", "x"), RefusedError, "is ashore"),
        (("duck-stra", "--reason", "x"), UnknownNameError, "duck-stra"),
        ((SHIP, "--reason", " "), RefusedError, "needs a reason"),
        ((SHIP, "--reason", "x", "--site", "blue-marlin"), UnknownNameError, "blue-marlin"),
    ],
)
def test_what_is_refused(called: list[Any], arguments: tuple[str, ...], kind: type[Exception], said: str) -> None:
    error = says(*arguments, "--yes").exception
    assert isinstance(error, kind)
    assert said in str(error)
    assert called == []


def test_the_tests_that_the_page_on_security_names_are_there() -> None:
    root = Path(__file__).parents[3]
    named = re.findall(r"`(tests/[^`]+)`", (root / "docs" / "security.md").read_text(encoding="utf-8"))
    assert len(named) > 15
    assert [each for each in named if not (root / each).is_file()] == []
