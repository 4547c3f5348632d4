"""What a running query says about itself, in the words of ``shore.status``."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from shore.errors import JobFailedError, SlowWorkerError
from shore.jobs.model import Job
from shore.status import JobStatus

_SLOW_WORKER = "Python worker failed to connect back"
_ERROR_LINE = re.compile(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|Failed|Lost|Timeout|Misplaced|Fenced|Conflict)): (.+)$")


@dataclass(slots=True)
class Running:
    """One started query, and the rows of its batches in this run."""

    job: Job
    query: StreamingQuery
    starts: int = 1
    batches: dict[int, int] = field(default_factory=dict)

    def status(self) -> JobStatus:
        """What the query's progress tells so far."""
        recent: list[Any] = list(self.query.recentProgress)
        for progress in recent:
            if progress["numInputRows"]:
                self.batches[progress["batchId"]] = progress["numInputRows"]
        last = recent[-1] if recent else None
        backlog = _backlog(last)
        return JobStatus(
            job=self.job.name,
            state="running" if self.query.isActive else "done",
            batches=len(self.batches),
            rows=sum(self.batches.values()),
            rows_per_second=_number(last, "processedRowsPerSecond"),
            batch_seconds=last["durationMs"].get("triggerExecution", 0) / 1000 if last else None,
            logs=backlog.get("logs"),
            behind=backlog.get("behind"),
            skipped=tuple(backlog.get("examples", ())),
        )


def _number(progress: Any, name: str) -> float | None:
    value = progress[name] if progress else None
    return round(value, 1) if isinstance(value, int | float) and value == value and value != float("inf") else None


def _backlog(progress: Any) -> dict[str, Any]:
    """What the source ``fairlead`` reports; empty for queries that read tables."""
    if not progress or len(progress["sources"]) != 1:
        return {}
    text = progress["sources"][0]["latestOffset"]
    try:
        found = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return {}
    return found if isinstance(found, dict) and "behind" in found else {}


def failure(job: str, message: str) -> JobFailedError:
    """The error of a query in one sentence: Spark wraps the cause in pages of Java and Python."""
    causes = [match for line in message.splitlines() if (match := _ERROR_LINE.match(line.strip()))]
    first, *_ = message.strip().splitlines() or ["Spark gave no reason"]
    if _SLOW_WORKER in message:
        return SlowWorkerError(
            f"job {job} failed: a Python worker of Spark did not start within Spark's ten seconds",
            hint="the machine is too busy; run the same command again, it goes on where this one stopped",
            job=job,
        )
    cause = f"{causes[-1][1]}: {causes[-1][2]}" if causes else first
    return JobFailedError(
        f"job {job} failed: {cause}",
        hint="what it had written is kept, and the next 'fairlead shore run' goes on from there; "
        "details are in the folder's spark/spark.log",
        job=job,
    )
