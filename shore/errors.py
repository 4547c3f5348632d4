"""Errors of shore's jobs and readers."""

from __future__ import annotations

from typing import Any

from fairlead.errors import ConfigurationError, ExitCode, FairleadError, RefusedError


class JobFailedError(FairleadError):
    """A streaming query ended with an error; what it had committed is kept, and the next run goes on from there.

    Args:
        passing: The cause may pass by itself: a site that does not answer, another writer that was first.
    """

    def __init__(self, what: str, *, hint: str = "", passing: bool = False, **fields: Any) -> None:
        super().__init__(what, hint=hint, **fields)
        self.passing = passing or self.retriable


class SlowWorkerError(JobFailedError):
    """A Python worker did not start within ten seconds: Spark's own limit, which cannot be set; the machine is busy."""

    retriable = True


class SplitStateError(RefusedError):
    """A job's checkpoint and its tables do not belong together: going on would repeat or lose rows."""


class CheckpointDamagedError(RefusedError):
    """A file of a job's checkpoint cannot be read: Spark could not go on. ``fields`` name the job and the file."""


class SchemaError(RefusedError):
    """A table on disk has a column of another type than this version writes. ``fields`` name both."""


class AlreadyRunningError(RefusedError):
    """Another process runs shore for the same state folder, or for the same storage from another machine."""


class LeaseLostError(RefusedError):
    """Another machine took over the storage while this process stood still: it may write no more."""


class FeedMovedError(FairleadError):
    """Somebody else appended to a customer's feed while shore was about to."""

    retriable = True


class QueryError(ConfigurationError):
    """A SQL query cannot be run as it is written."""

    exit_code = ExitCode.USAGE
