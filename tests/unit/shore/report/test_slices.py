"""Reports warn when a job that fills their tables has not begun or has failed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fairlead.cli.app import run
from shore.jobs.status import JobStatus, write_status
from shore.paths import TablePaths
from shore.report.slices import table_warnings
from tests.support.port_story import WARM


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
