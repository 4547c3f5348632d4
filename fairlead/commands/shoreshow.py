"""The live table of ``fairlead shore run``, and what it has in common with ``shore status``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from rich.live import Live
from rich.markup import escape
from rich.table import Table

from fairlead.console import errors
from shore.status import IN_TROUBLE, JobStatus

STYLES: Final = {
    "running": "green",
    "done": "green",
    "failed": "bold red",
    "gone": "bold red",
    "retrying": "yellow",
    "waiting": "dim",
}


class Shown:
    """While inside, a live table of the jobs on standard error; nothing where a program reads."""

    def __init__(self, as_json: bool) -> None:
        self._live = None if as_json else Live(console=errors, auto_refresh=False, transient=False)

    def __enter__(self) -> Callable[[Mapping[str, JobStatus]], None]:
        if self._live is not None:
            self._live.start()
            self._live.update("starting Spark…", refresh=True)
        return self._show

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            if not errors.is_terminal:  # there rich ends the table's last line only when more is drawn
                errors.line()

    def _show(self, jobs: Mapping[str, JobStatus]) -> None:
        if self._live is not None:
            self._live.update(_table(jobs), refresh=True)


def count(value: float | None) -> str:
    """A number for a person; nothing for None."""
    return "" if value is None else f"{value:,.0f}"


def _table(jobs: Mapping[str, JobStatus]) -> Table:
    table = Table("job", "state", box=None, header_style="bold", pad_edge=False)
    for heading in ("logs", "behind", "batches", "rows", "rows/s", "last batch"):
        table.add_column(heading, justify="right")
    table.add_column("remarks")
    for job in jobs.values():
        style = STYLES.get(job.state, "")
        wrong = job.error is not None and job.state in IN_TROUBLE
        remarks = (job.error or "").splitlines()[0] if wrong else ", ".join(job.skipped)
        table.add_row(
            job.job,
            f"[{style}]{job.state}[/]" if style else job.state,
            count(job.logs),
            count(job.behind),
            count(job.batches),
            count(job.rows),
            count(job.rows_per_second),
            "" if job.batch_seconds is None else f"{job.batch_seconds:.1f} s",
            escape(remarks),
        )
    return table
