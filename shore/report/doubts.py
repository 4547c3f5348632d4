"""What a report may lack because a job has not begun, or is in trouble: an empty table is no proof that nothing was."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from shore.checkpoint import has_begun
from shore.places import Places
from shore.status import IN_TROUBLE, JobStatus, read_status


def doubts(folder: Path, places: Places, tables: Collection[str]) -> tuple[str, ...]:
    """One sentence for each job of the last run that keeps some of these tables and has not begun, or is in trouble.

    Args:
        folder: The topology's state folder. Where shore has never run (tables that came from elsewhere), nothing is
            known, and nothing is said.
    """
    status = read_status(folder)
    if status is None:
        return ()
    kept = _kept_by()
    found = []
    for name, job in status.jobs.items():
        read = sorted(kept.get(name, set()).intersection(tables))
        trouble = _trouble(name, job, places)
        if read and trouble:
            found.append(f"{trouble}: table{'s' if read[1:] else ''} {', '.join(read)} may lack rows")
    return tuple(found)


def _trouble(name: str, job: JobStatus, places: Places) -> str:
    if not has_begun(places, name):
        return f"job {name} has not run yet"
    if job.state in IN_TROUBLE:
        why = f" ({job.error.splitlines()[0]})" if job.error else ""
        return f"job {name} is {job.state}{why}"
    return ""


def _kept_by() -> dict[str, set[str]]:
    """The tables that each job keeps."""
    from shore.verify.catalogue import DERIVED, FROM_LOGS  # what it imports takes a moment

    found: dict[str, set[str]] = {}
    for entry in FROM_LOGS:
        found.setdefault(entry.job, set()).update(entry.tables)
    for derived in DERIVED:
        found.setdefault(derived.job, set()).add(derived.table)
    return found
