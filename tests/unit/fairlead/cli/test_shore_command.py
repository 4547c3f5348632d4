"""``fairlead shore status``: what it says of jobs, and how at 80 columns."""

from __future__ import annotations

import datetime as dt

import pytest

from fairlead.cli.commands.shore import app as command
from fairlead.cli.console import console
from shore.jobs.status import JobStatus, ShoreStatus, State
from shore.lag import Lag

AT = dt.datetime(2026, 9, 1, 12, tzinfo=dt.UTC)
ERROR = "Spark's worker was too slow\n  what to do: run the same command again"


pytestmark = pytest.mark.usefixtures("narrow")


def render(*jobs: JobStatus, lag: Lag | None = None) -> None:
    command._render(  # noqa: SLF001
        ShoreStatus(1, AT, {job.job: job for job in jobs}), {job.job: lag or Lag(0, 0.0) for job in jobs}, ()
    )


@pytest.mark.parametrize(
    ("state", "advised"), [("done", False), ("running", False), ("retrying", True), ("failed", True)]
)
def test_advice_on_an_error_is_given_while_the_error_lasts(
    state: State, advised: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    render(JobStatus("alerts", state, error=ERROR, error_at=AT))
    shown = capsys.readouterr().out
    assert "worker was too slow" in shown
    assert ("what to do" in shown) == advised


def test_a_lag_that_is_not_known_is_said_to_be_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    render(JobStatus("alerts", "waiting"), lag=Lag(why="it has not run yet"))
    assert "alerts: lag is not known: it has not run yet" in capsys.readouterr().out


def test_names_of_jobs_are_whole_at_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    long = JobStatus(
        "containers_now", "retrying", logs=9_201, rows=12_345_678, rows_per_second=12_345.0, batch_seconds=123.4,
        state_rows=1_234_567, state_bytes=123_400_000,
    )  # fmt: skip
    render(long, lag=Lag(1_234_567, 7_000.0))
    console.print(command._live_table({"containers_now": long}))  # noqa: SLF001
    shown = capsys.readouterr().out
    assert shown.count("containers_now ") == 2
    assert "\N{HORIZONTAL ELLIPSIS}" not in shown
