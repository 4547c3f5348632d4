"""What reports read of a table, and that they warn when a job that fills their tables has not begun or has failed."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from fairlead.cli.app import run
from fairlead.errors import UnavailableError
from shore.jobs.status import JobStatus, write_status
from shore.paths import TablePaths
from shore.report.slices import open_slices, rows_of, table_warnings
from shore.tables import TABLES
from shore.tables.model import TIME
from tests.support.port_story import WARM, WRONG, at
from tests.support.tables import fill


@pytest.fixture
def kept(folder: Path) -> Path:
    """Return the story's tables with the status of their jobs: one has not begun and one failed."""
    (folder / "run").mkdir()
    for job in ("readings", "operations", "conditions"):
        offsets = Path(TablePaths.of(folder).checkpoint(job), "offsets")
        offsets.mkdir(parents=True)
        (offsets / "0").touch()
    jobs = {
        "readings": JobStatus("readings", "done", error="of last week"),
        "operations": JobStatus("operations", "running"),
        "conditions": JobStatus("conditions", "failed", error="no <room>\nmore"),
        "alerts_now": JobStatus("alerts_now", "stopped"),
        "feeds": JobStatus("feeds", "failed", error="no matter here"),
    }
    write_status(folder, jobs)
    return folder


def test_only_jobs_of_the_tables_that_were_read_count(kept: Path) -> None:
    paths = TablePaths.of(kept)
    assert table_warnings(kept, paths, ["readings", "positions"]) == ()
    assert table_warnings(kept, paths, ["mkt", "alerts_now", "excursions"]) == (
        "job conditions is failed (no <room>): tables excursions, mkt may lack rows",
        "job alerts_now has not run yet: table alerts_now may lack rows",
    )
    assert table_warnings(kept / "elsewhere", paths, ["mkt"]) == ()  # shore never ran there: nothing is known


@pytest.mark.parametrize("arguments", [["container", WARM], ["port", "JPTYO"]])
def test_reports_say_it(arguments: list[str], kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = kept / ("page.html" if arguments[0] == "port" else "claim")
    assert run(["report", *arguments, "--out", str(out)]) == 0
    assert "not certain: job alerts_now has not run yet" in capsys.readouterr().out
    page = (out if out.is_file() else out / f"{WARM}.html").read_text(encoding="utf-8")
    assert "Not certain: job alerts_now has not run yet: table alerts_now may lack rows." in page
    assert "no &lt;room&gt;" in page
    assert run(["report", *arguments, "--out", str(out), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["doubts"]) == 2


PATHS = {
    "a folder": TablePaths.of,
    "a folder whose path looks like a pattern": TablePaths.of,
    "a storage": lambda folder: TablePaths(f"file://{folder}"),
}


@pytest.mark.parametrize("where", PATHS)
def test_loaded_rows_are_those_of_all_files_with_the_value(where: str, tmp_path: Path) -> None:
    """Whether DuckDB reads the files or Arrow does."""
    folder = tmp_path / ("a*" if "pattern" in where else "home")
    for first in (0, 2):
        rows = [
            {"equipment_reference": box, "sequence": first + n, "device_date_time": at(4, first + n)}
            for box in (WARM, WRONG)
            for n in range(2)
        ]
        fill(folder, {"readings": rows})
    shutil.copytree(folder, tmp_path / "abc")  # the pattern would match these files too
    with open_slices(PATHS[where](folder)) as found:
        found.load("readings", "equipment_reference", WARM, as_="loaded")
        loaded = found.rows("select * from loaded order by sequence")
        assert found.versions == {"readings": 2}
    assert [(row["equipment_reference"], row["sequence"], row["device_date_time"]) for row in loaded] == [
        (WARM, n, at(4, n)) for n in range(4)
    ]
    assert list(loaded[0]) == TABLES["readings"].plain_schema.names


def test_a_column_that_old_files_lack_is_null_in_loaded_rows(tmp_path: Path) -> None:
    """Also where no file has it, and where a file has a column that the table has no more."""
    paths = TablePaths.of(tmp_path)
    schema = TABLES["readings"].plain_schema
    old = schema.remove(schema.get_field_index("door_open")).remove(0).append(pa.field("gone", pa.string()))
    row = {"equipment_reference": WARM, "sequence": 7, "gone": "x"}
    write_deltalake(paths.table("readings"), old.empty_table().from_pylist([row], schema=old))
    with open_slices(paths) as found:
        found.load("readings", "equipment_reference", WARM, as_="loaded")
        (loaded,) = found.rows("select * from loaded")
    assert loaded == dict.fromkeys(schema.names) | {"equipment_reference": WARM, "sequence": 7}


def test_of_a_table_or_value_that_is_not_there_no_rows_are_loaded(tmp_path: Path) -> None:
    fill(tmp_path, {"readings": [{"equipment_reference": WARM}]})
    with open_slices(TablePaths.of(tmp_path)) as found:
        found.load("readings", "equipment_reference", "ZZZU9999999", as_="nobodys")
        found.load("quality", "equipment_reference", WARM, as_="nothing")
        assert found.rows("select * from nobodys union all by name select * from nothing") == []
        assert found.missing == ["quality"]


def test_a_file_that_is_gone_is_said_when_rows_are_loaded(tmp_path: Path) -> None:
    fill(tmp_path, {"readings": [{"equipment_reference": WARM}]})
    paths = TablePaths.of(tmp_path)
    for file in Path(paths.table("readings")).glob("*.parquet"):
        file.unlink()
    with open_slices(paths) as found, pytest.raises(UnavailableError, match="a table cannot be read"):
        found.load("readings", "equipment_reference", WARM, as_="loaded")


def test_reports_at_the_same_time_have_their_own_tables(tmp_path: Path) -> None:
    """They share one database."""
    for n, box in enumerate((WARM, WRONG)):
        fill(tmp_path / str(n), {"readings": [{"equipment_reference": box, "sequence": 1}]})
    with open_slices(TablePaths.of(tmp_path / "0")) as one, open_slices(TablePaths.of(tmp_path / "1")) as other:
        for found, box in ((one, WARM), (other, WRONG)):
            found.load("readings", "equipment_reference", box, as_="loaded")
            found.add("readings")
        for found, box in ((one, WARM), (other, WRONG)):
            boxes = found.rows(
                "select equipment_reference as box from loaded join readings using (equipment_reference)"
            )
            assert boxes == [{"box": box}]


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", None])
@given(times=st.lists(st.none() | st.integers(-(10**15), 4 * 10**15)))
def test_rows_are_those_of_arrow(times: list[int | None], zone: str | None) -> None:
    moments = pa.array(times, pa.int64()).cast(pa.timestamp("us", zone))
    table = pa.table(
        {"at": moments, "n": range(len(times)), "kinds": pa.array([["a"]] * len(times), pa.list_(pa.string()))}
    )
    assert rows_of(table) == table.to_pylist()


def test_a_time_beyond_the_calendar_is_told_as_the_nearest_one_within_it() -> None:
    times = pa.table({"time": pa.array([-(2**62), 0, 2**62], TIME)})
    told = [row["time"].replace(tzinfo=None) for row in rows_of(times)]
    assert told == [dt.datetime.min, dt.datetime(1970, 1, 1), dt.datetime.max]  # noqa: DTZ001, DTZ901
