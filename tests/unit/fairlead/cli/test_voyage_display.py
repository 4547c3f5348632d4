"""What ``fairlead voyage run`` says while shore fills the tables."""

from __future__ import annotations

import queue
from pathlib import Path

from fairlead.cli.commands.voyage.display import jobs_so_far, with_jobs
from shore.jobs.status import JobStatus, write_status
from tests.support.waits import PATIENCE


def test_jobs_are_counted_and_what_is_retried_is_named() -> None:
    jobs = {
        "readings": JobStatus("readings", "done"),
        "alerts": JobStatus("alerts", "retrying", error="too slow\n  what to do: wait"),
        "feeds": JobStatus("feeds", "waiting", error="of an earlier run"),
    }
    assert jobs_so_far(jobs) == "1 of 3 jobs done; alerts is tried again: too slow"
    assert jobs_so_far({"feeds": jobs["feeds"]}) == "0 of 1 jobs done"


def test_jobs_are_told_as_they_end_and_never_those_of_an_earlier_run(tmp_path: Path) -> None:
    heard: queue.Queue[str] = queue.Queue()
    write_status(tmp_path, {"readings": JobStatus("readings", "done")})
    with with_jobs(tmp_path, heard.put, look_seconds=0.01) as tell:
        tell("filling the tables")
        assert heard.get(timeout=PATIENCE) == "filling the tables"
        jobs = {"readings": JobStatus("readings", "done"), "feeds": JobStatus("feeds", "running")}
        write_status(tmp_path, jobs)
        assert heard.get(timeout=PATIENCE) == "filling the tables: 1 of 2 jobs done"
        write_status(tmp_path, jobs | {"feeds": JobStatus("feeds", "done")})
        assert heard.get(timeout=PATIENCE) == "filling the tables: 2 of 2 jobs done"
        tell("comparing")
        assert heard.get(timeout=PATIENCE) == "comparing"
    assert heard.empty()
