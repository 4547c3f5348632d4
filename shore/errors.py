"""Errors of shore's jobs and readers."""

from __future__ import annotations

from fairlead.errors import ConfigurationError, ExitCode, FairleadError, RefusedError


class JobFailedError(FairleadError):
    """A streaming query ended with an error; what it had committed is kept, and the next run goes on from there."""


class SlowWorkerError(JobFailedError):
    """A Python worker did not start within ten seconds: Spark's own limit, which cannot be set; the machine is busy."""

    retriable = True


class SplitStateError(RefusedError):
    """A job's checkpoint and its tables do not belong together: going on would repeat or lose rows."""


class CheckpointDamagedError(RefusedError):
    """A file of a job's checkpoint cannot be read: Spark could not go on. ``fields`` name the job and the file."""


class AlreadyRunningError(RefusedError):
    """Another process runs shore for the same state folder."""


class FeedMovedError(FairleadError):
    """Somebody else appended to a customer's feed while shore was about to."""

    retriable = True


class QueryError(ConfigurationError):
    """A SQL query cannot be run as it is written."""

    exit_code = ExitCode.USAGE
