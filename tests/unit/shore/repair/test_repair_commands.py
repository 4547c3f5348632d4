"""``fairlead shore verify``, ``backfill`` and ``rebuild`` as a person calls them, without a site."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
from deltalake.exceptions import DeltaError

from fairlead.cli.app import run
from fairlead.cli.commands.shore.tables import what_to_do
from fairlead.errors import ConfigurationError, UnavailableError
from shore.delta import table_errors
from shore.paths import TablePaths
from shore.repair.backfill import ALWAYS, plan_backfill
from shore.tables import TABLES
from shore.verify.catalogue import REFERENCE
from shore.verify.compare import TableCheck, Verification
from tests.support.delta_rs import create


@pytest.fixture
def filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    monkeypatch.setenv("FAIRLEAD_TOPOLOGY", "minimal")
    found = tmp_path / "minimal"
    for table in TABLES.values():
        create(table, TablePaths.of(found).table(table.name))
    return found


@pytest.mark.usefixtures("filled")
def test_proof_and_repair_before_the_site_was_started(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["verify"], ["backfill", "--yes"], ["rebuild", "readings", "--yes"]):
        assert run(["shore", *command]) in (3, 4)
        assert "fairlead up" in capsys.readouterr().err
    assert run(["shore", "rebuild", "reading", "--yes"]) == 3
    assert "did you mean 'readings'" in capsys.readouterr().err
    assert run(["shore", "rebuild", "readings"]) == 2  # nobody at a terminal, and no --yes
    assert "--yes" in capsys.readouterr().err
    assert run(["shore", "rebuild", "readings", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"applied": False, "job": "readings"}
    assert run(["shore", "backfill", "--yes", "--since", "yesterday"]) == 2
    assert "a day like 2026-03-01" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("table", "command"),
    [
        ("readings + readings_rejected", "fairlead shore backfill --yes"),
        ("conditions", "fairlead shore backfill --yes"),
        ("alerts_ashore", "fairlead shore rebuild alerts --yes"),
        ("feeds", "fairlead shore rebuild feeds --yes"),
        ("customers/ducks", "remove the folder of customers/ducks"),
    ],
)
def test_each_difference_is_told_with_the_command_that_ends_it(table: str, command: str) -> None:
    equal = TableCheck(table="mkt", kind="derived", same=True)
    odd = TableCheck(table=table, kind="derived", same=False, differing=1_000)
    counts, todo = what_to_do(Verification(tables=(equal, odd), seconds=1))
    assert counts == f"differing: {table}: 1,000 rows"
    assert command in todo
    assert "fairlead shore run --once" in todo


@pytest.mark.parametrize(
    ("table", "command"),
    [
        ("geofences", "fairlead shore run --once"),
        ("alerts_ashore", "fairlead shore rebuild alerts --yes"),
        ("feeds", "fairlead shore rebuild feeds --yes"),
    ],
)
def test_a_table_that_cannot_be_backfilled_is_told_with_the_command_that_fills_it(table: str, command: str) -> None:
    nothing = cast(Any, None)  # the table is refused before anything is opened
    with pytest.raises(ConfigurationError, match=f"table {table} cannot be backfilled") as error:
        plan_backfill(nothing, nothing, nothing, ALWAYS, [table])
    assert error.value.hint.startswith(f"run '{command}'; ")


@pytest.mark.parametrize("others", [(), ("conditions",)])
def test_tables_of_the_topology_need_one_run_of_shore(others: tuple[str, ...]) -> None:
    odd = [TableCheck(table=table, kind="derived", same=False, differing=1) for table in (*REFERENCE, *others)]
    _, todo = what_to_do(Verification(tables=tuple(odd), seconds=1))
    assert todo.count("fairlead shore run --once") == 1
    assert ("fairlead shore backfill --yes" in todo) == bool(others)


def test_nothing_to_do_is_not_told_and_what_waits_is() -> None:
    equal = TableCheck(table="mkt", kind="derived", same=True)
    waits = TableCheck(table="quality", kind="derived", same=None)
    assert what_to_do(Verification(tables=(equal,), seconds=1)) == []
    (todo,) = what_to_do(Verification(tables=(equal, waits), seconds=1))
    assert "fairlead shore run --once, then verify again" in todo


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("Invalid Input Error: reading the stream", "fairlead shore verify"),
        ("Generic LocalFileSystem error: No space left on device (os error 28)", "the same command again"),
        ("Function 'equal' has no kernel matching input types (string, string_view)", "fairlead shore compact --yes"),
    ],
)
def test_what_stands_in_the_way_is_told_with_what_to_do(filled: Path, message: str, told: str) -> None:
    with pytest.raises(UnavailableError) as error, table_errors.as_table_errors(TablePaths.of(filled)):
        raise DeltaError(message)
    assert message in error.value.what
    assert told in error.value.hint


def test_one_damaged_table_does_not_hide_the_others(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (filled / "delta" / "events" / "_delta_log" / "00000000000000000000.json").write_text("this is no commit")
    assert run(["tables"]) == 4
    out, err = capsys.readouterr()
    assert "readings" in out
    assert "not there yet" not in out
    assert "table events cannot be opened" in err
    assert "fairlead shore rebuild operations --yes" in " ".join(err.split())
    with (
        pytest.raises(UnavailableError, match="table events cannot be read"),
        table_errors.as_table_errors(TablePaths.of(filled)),
    ):
        raise OSError("something")


def test_nobody_is_told_to_try_again_what_can_no_longer_be_compared() -> None:
    gone = TableCheck(table="ships_now", kind="derived", same=None, forgotten=True)
    assert what_to_do(Verification(tables=(gone,), seconds=1)) == []
    later = TableCheck(table="mkt", kind="derived", same=None)
    (todo,) = what_to_do(Verification(tables=(gone, later), seconds=1))
    assert "fairlead shore run --once" in todo
