"""``fairlead tables``, ``sql`` and ``shore status`` as a person or a program calls them."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pytest
from rich.console import Console

from fairlead.cli.app import run
from fairlead.errors import ExitCode
from shore import read
from shore.jobs.status import JobStatus, write_status
from shore.paths import TablePaths
from shore.tables import TABLES
from tests.support.delta_rs import append_once, create


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    monkeypatch.setenv("FAIRLEAD_TOPOLOGY", "minimal")
    found = tmp_path / "minimal"
    (found / "run").mkdir(parents=True)
    return found


@pytest.fixture
def filled(folder: Path) -> Path:
    for table in TABLES.values():
        create(table, TablePaths.of(folder).table(table.name))
    rows = [{"log": "bookings.hq", "log_offset": i, "customer": f"c{i}", "payload": b'{"a":1}'} for i in range(3)]
    content = pa.Table.from_pylist(rows, schema=TABLES["booking_changes"].plain_schema)
    append_once(TablePaths.of(folder).table("booking_changes"), content, app="test", version=0)
    return folder


@pytest.mark.usefixtures("filled")
def test_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tables", "--json"]) == 0
    found = {info["name"]: info for info in json.loads(capsys.readouterr().out)}
    assert (found["booking_changes"]["rows"], found["booking_changes"]["version"], found["events"]["rows"]) == (3, 1, 0)
    assert run(["tables"]) == 0
    assert "Changes to bookings" in capsys.readouterr().out
    assert run(["tables", "booking_changes"]) == 0
    assert "First device time the customer may see" in " ".join(capsys.readouterr().out.split())
    assert run(["tables", "booking"]) == 3
    assert "booking_changes" in capsys.readouterr().err


@pytest.mark.usefixtures("filled")
def test_a_table_is_shown_with_its_promises(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tables", "excursions"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    for part in ("key equipment_reference, quantity, start_date_time", "late data The sessions", "0 rows in 0 files"):
        assert part in told
    assert run(["tables", "excursions", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["rows"], found["key"]) == (0, ["equipment_reference", "quantity", "start_date_time"])
    assert found["late"]
    assert run(["tables", "device_gaps"]) == 0
    assert "a view on quality" in capsys.readouterr().out


def test_a_topology_without_tables_is_named_with_its_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tables"]) == 0
    told = capsys.readouterr().out
    assert f"{folder.name}: there are no tables in {TablePaths.of(folder).tables} yet" in told


def test_a_table_that_is_not_there_yet(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tables", "mkt"]) == 4
    assert "table mkt is not there yet" in capsys.readouterr().err
    create(TABLES["events"], TablePaths.of(folder).table("events"))
    assert run(["tables"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "not there yet: readings," in told
    assert "device_gaps" in told


@pytest.mark.usefixtures("filled")
def test_numbers_for_programs_are_whole(capsys: pytest.CaptureFixture[str]) -> None:
    query = (
        "select sum(log_offset) as total, 1/3::double as third, [max(record_date_time)] as times from booking_changes"
    )
    assert run(["sql", query, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"total": 3, "third": 1 / 3, "times": [None]}]
    assert run(["sql", query, "--csv"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "3,0.3333333333333333,[null]"


@pytest.mark.usefixtures("filled")
def test_json_has_no_value_that_json_does_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    """NaN and infinity are null, also in lists and maps; strict readers refuse what Python's writer makes of them."""
    query = "select 'nan'::double as one, ['inf'::double, 2] as list, map {'-18': 'nan'::double} as map"
    assert run(["sql", query, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert row == {"one": None, "list": [None, 2.0], "map": [["-18", None]]}


@pytest.mark.usefixtures("filled")
def test_dates_and_intervals_are_text_in_every_form(capsys: pytest.CaptureFixture[str]) -> None:
    """Without quotes of their own in CSV and on a terminal."""
    query = (
        "select date '2026-03-01' as day, time '06:30' as clock, interval 90 minute as short, interval 14 month as long"
    )
    wanted = ["2026-03-01", "06:30:00", "1:30:00", "14 months, 0:00:00"]
    assert run(["sql", query, "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)[0].values()) == wanted
    assert run(["sql", query, "--csv"]) == 0
    assert list(csv.reader(capsys.readouterr().out.splitlines()))[1] == wanted
    assert run(["sql", query]) == 0
    assert capsys.readouterr().out.splitlines()[1].split("  ") == wanted
    assert run(["sql", "select interval '1 day' - interval '90 minutes' as back", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"back": "1 day, -1:30:00"}]


@pytest.mark.usefixtures("filled")
def test_a_column_whose_name_repeats_is_in_every_form(capsys: pytest.CaptureFixture[str]) -> None:
    """A join has the columns of both tables."""
    query = "select 1 as a, 2 as a, 3 as a_1, 4 as b"
    assert run(["sql", query, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"a": 1, "a_1": 2, "a_1_1": 3, "b": 4}]
    assert run(["sql", query, "--csv"]) == 0
    assert capsys.readouterr().out.splitlines() == ["a,a_1,a_1_1,b", "1,2,3,4"]
    assert run(["sql", query]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["1", "2", "3", "4"]


@pytest.mark.usefixtures("filled")
def test_ctrl_c_ends_a_query() -> None:
    """In a process of its own, which a hanging query cannot keep. It interrupts itself once the query is under way:
    when it has computed for half a second."""
    program = """
import os, signal, threading, time
from fairlead.cli.app import run

def press_ctrl_c():
    before = time.process_time()
    while time.process_time() < before + 0.5:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)

run(["sql", "select 1"])
threading.Thread(target=press_ctrl_c).start()
raise SystemExit(run(["sql", "select count(*) from booking_changes, range(100000000000) where log_offset * range > 3"]))
"""
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)  # noqa: S603  # our own
    assert (ended.returncode, ended.stderr) == (130, "interrupted\n")


@pytest.mark.usefixtures("filled")
def test_ctrl_c_that_duckdb_notices_itself_ends_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As it does outside of queries. It makes an error of its own of it."""
    monkeypatch.setattr(read, "_create_views", Mock(side_effect=RuntimeError("Query interrupted")))
    assert run(["sql", "select 1 as a"]) == 130
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "interrupted\n")


@pytest.mark.usefixtures("filled")
def test_rows_have_one_form(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sql", "select 1", "--csv", "--json"]) == ExitCode.USAGE
    said = capsys.readouterr()
    assert said.out == "" and "exclude each other" in " ".join(said.err.split())


@pytest.mark.usefixtures("filled")
def test_no_text_in_csv_is_a_formula(capsys: pytest.CaptureFixture[str]) -> None:
    query = """select '=1+1' as "@name", '-2' as text, -2 as whole, -2.5::double as number, -2.5 as exact,
        '=3'::blob as raw, chr(9) || '=4' as tab, 'a=b' as plain, ['=5'] as list"""
    assert run(["sql", query, "--csv"]) == 0
    header, row = csv.reader(capsys.readouterr().out.splitlines())
    assert header == ["'@name", "text", "whole", "number", "exact", "raw", "tab", "plain", "list"]
    assert row == ["'=1+1", "'-2", "-2", "-2.5", "-2.5", "'=3", "'\t=4", "a=b", '["=5"]']
    assert run(["sql", query, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["text"] == "-2"


@pytest.mark.usefixtures("filled")
def test_wide_rows_are_not_squeezed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    query = "select customer, repeat('x', 60) as a, repeat('y', 600) as b from booking_changes order by customer"
    assert run(["sql", query]) == 0  # no terminal: one line a row, however long
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["c0", "x" * 60, "y" * 600]
    narrow = Console(force_terminal=True, width=80, color_system=None, highlight=False)
    monkeypatch.setattr("fairlead.cli.commands.tables.console", narrow)
    assert run(["sql", query]) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[:4] == ["row 1", "customer  c0", f"a         {'x' * 60}", f"b         {'y' * 70}"]
    assert run(["sql", "select customer from booking_changes"]) == 0
    assert "row 1" not in capsys.readouterr().out


@pytest.mark.usefixtures("filled")
def test_sql(capsys: pytest.CaptureFixture[str]) -> None:
    query = "select customer, log_offset, payload, valid_from from booking_changes where log_offset > 1"
    assert run(["sql", query, "--json"]) == 0
    answer = [{"customer": "c2", "log_offset": 2, "payload": '{"a":1}', "valid_from": None}]
    assert json.loads(capsys.readouterr().out) == answer
    assert run(["sql", query, "--csv"]) == 0
    assert capsys.readouterr().out.splitlines() == ["customer,log_offset,payload,valid_from", 'c2,2,"{""a"":1}",']
    assert run(["sql", query]) == 0
    assert "1 row" in capsys.readouterr().out
    assert run(["sql", "selec 1"]) == 2
    assert "syntax error" in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_before_shore_ever_ran(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tables"]) == 0
    assert "fairlead shore run" in capsys.readouterr().out
    assert run(["sql", "select 1"]) == 4
    assert run(["shore", "status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) is None


def test_status(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_status(folder, {"readings": JobStatus("readings", "running", rows=1234, behind=7)})
    assert run(["shore", "status"]) == 0
    assert "1,234" in capsys.readouterr().out
    assert run(["shore", "status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["jobs"]["readings"]["behind"] == 7


@pytest.mark.parametrize(
    ("job", "code"),
    [
        (JobStatus("readings", "done", error="of last week"), 0),
        (JobStatus("readings", "failed", error="no"), 1),
        (JobStatus("readings", "retrying"), 1),
        (JobStatus("readings", "running"), 0),
    ],
)
def test_status_check(folder: Path, capsys: pytest.CaptureFixture[str], job: JobStatus, code: int) -> None:
    write_status(folder, {"readings": job})
    assert run(["shore", "status", "--check"]) == code
    shown = capsys.readouterr().out
    assert job.state in shown
    assert job.error is None or f"last error: {job.error}" in shown
    assert run(["shore", "status", "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert body["ok"] is (code == 0)
    assert body["jobs"]["readings"]["lag"]["records"] is None  # unknown, because the site does not run
    assert body["jobs"]["readings"]["lag"]["why"]
    write_status(folder, {"readings": JobStatus("readings", "stopped")}, error="Spark did not start")
    assert run(["shore", "status", "--check"]) == 1
    assert "Spark did not start" in capsys.readouterr().out


@pytest.mark.usefixtures("folder")
def test_running_before_the_site_was_started(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shore.jobs.runner.open_session", lambda *_args, **_more: pytest.fail("Spark was started"))
    assert run(["shore", "run", "--once"]) in (3, 4)
    assert "fairlead up" in capsys.readouterr().err
    assert run(["shore", "run", "reading"]) != 0
