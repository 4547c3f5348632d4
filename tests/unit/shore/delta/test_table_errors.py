"""Every command reports tables that are not there yet, cannot be opened or do not exist in the same words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fairlead.cli.app import run
from fairlead.errors import ConfigurationError, UnavailableError, UnknownNameError
from shore.delta.table_errors import check_tables, open_table
from shore.paths import TablePaths
from shore.read import sql, table
from shore.tables import TABLES
from tests.support.delta_rs import create

BOX = "BIGU1000010"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the state folder of a topology with one table, ``readings``, without rows."""
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    monkeypatch.setenv("FAIRLEAD_TOPOLOGY", "minimal")
    found = tmp_path / "minimal"
    create(TABLES["readings"], TablePaths.of(found).table("readings"))
    return found


def test_a_table_that_is_not_there_yet_is_none(folder: Path) -> None:
    assert open_table(TablePaths.of(folder), "mkt") is None
    assert open_table(TablePaths.of(folder), "readings") is not None


def test_names_are_checked_before_anything_is_opened() -> None:
    check_tables(["readings", "mkt"])
    with pytest.raises(UnknownNameError) as unknown:
        check_tables(["readings", "reading"])
    assert (unknown.value.fields["nearest"], unknown.value.fields["valid"]) == ("readings", sorted(TABLES))
    with pytest.raises(ConfigurationError, match="device_gaps is a view") as view:
        check_tables(["device_gaps"])
    assert "quality" in view.value.hint


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("select * from mkt", "table mkt is not there yet"),
        ("select * from readings join Bookings using (equipment_reference)", "table bookings is not there yet"),
        ("select * from readings_with_bookings", "bookings is not there yet, and view readings_with_bookings reads it"),
        ("select * from device_gaps", "table quality is not there yet, and view device_gaps reads it"),
    ],
)
def test_a_query_for_a_table_that_is_not_there_yet(folder: Path, query: str, told: str) -> None:
    with pytest.raises(UnavailableError) as error:
        sql(folder, query)
    assert told in error.value.what
    assert "fairlead shore run" in error.value.hint


def test_an_unknown_name_in_a_query_is_answered_with_all_valid_ones(folder: Path) -> None:
    with pytest.raises(UnknownNameError) as error:
        sql(folder, "select * from ships")
    assert {"readings", "mkt", "device_gaps"} <= set(error.value.fields["valid"])


def test_one_table_from_python(folder: Path) -> None:
    with pytest.raises(UnavailableError, match="table mkt is not there yet"):
        table(folder, "mkt")  # other tables are there
    with pytest.raises(ConfigurationError, match="device_gaps is a view"):
        table(folder, "device_gaps")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "command",
    [
        ["tables", "reading"],
        ["sql", "select * from reading"],
        ["shore", "compact", "reading", "--yes"],
        ["shore", "vacuum", "reading", "--yes"],
        ["shore", "verify", "--table", "reading"],
        ["shore", "backfill", "--table", "reading", "--yes"],
    ],
)
def test_every_command_names_the_valid_tables(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command) == 3
    told = " ".join(capsys.readouterr().err.split())
    assert "there is no table 'reading'" in told
    assert "did you mean 'readings'? valid: alerts, alerts_ashore, alerts_now," in told


@pytest.mark.parametrize(
    "command",
    [
        ["tables"],
        ["tables", "readings"],
        ["sql", "select * from readings"],
        ["report", "container", BOX],
        ["shore", "compact", "--yes"],
        ["shore", "vacuum", "--dry-run"],
    ],
)
def test_every_command_names_the_table_that_cannot_be_opened(
    command: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = Path(TablePaths.of(folder).table("readings"), "_delta_log", f"{0:020}.json")
    log.write_text("this is no commit", encoding="utf-8")
    assert run(command) == 4
    told = " ".join(capsys.readouterr().err.split())
    assert "table readings cannot be opened" in told
    assert "shore can build it again" in told


def test_keeping_before_there_is_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    monkeypatch.setenv("FAIRLEAD_TOPOLOGY", "minimal")
    for command in ("compact", "vacuum"):
        assert run(["shore", command, "--dry-run"]) == 0
        assert "no such tables yet: fairlead shore run --once" in capsys.readouterr().out
        assert run(["shore", command, "--yes", "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {"applied": False, "tables": []}


def test_the_list_says_where_the_tables_are(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tables"]) == 0
    assert f"they are in {folder}/delta" in capsys.readouterr().out


@pytest.mark.usefixtures("folder")
def test_a_view_is_shown_with_its_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tables", "readings_with_positions"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "ship_latitude" in told
    assert "Air supplied to the cargo [Cel]" in told
    assert run(["tables", "device_gaps", "--json"]) == 0
    columns = [column["name"] for column in json.loads(capsys.readouterr().out)["columns"]]
    assert columns == [
        "equipment_reference", "device_id", "previous_date_time", "next_date_time", "boot_id", "missing",
    ]  # fmt: skip


@pytest.mark.usefixtures("folder")
def test_rebuilding_tells_what_it_would_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["shore", "rebuild", "readings", "--dry-run", "--yes"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "checkpoint of job readings will be put aside and made anew" in told
    assert "without --dry-run" in told
