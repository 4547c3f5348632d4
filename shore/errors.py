"""Errors of shore: of its jobs, its readers, the source ``fairlead``, and the feeds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fairlead.errors import ConfigurationError, ExitCode, FairleadError, RefusedError, UnavailableError, first_line

if TYPE_CHECKING:  # comparing tables needs no Spark
    from fairlead.kafka.endpoint import KafkaEndpoint


COMMIT_CONFLICTS: Final = frozenset(
    {
        "CommitFailedError",
        "ConcurrentAppendException",
        "ConcurrentDeleteDeleteException",
        "ConcurrentDeleteReadException",
        "ConcurrentTransactionException",
        "ConcurrentWriteException",
        "DeltaConcurrentModificationException",
        "MetadataChangedException",
    }
)
"""Names of the errors that Delta and delta-rs raise when another writer committed first. Try such a commit again, from
the table's new version."""


class JobFailedError(FairleadError):
    """A streaming query ended with an error. Its commits are kept, and the next run goes on from there.

    Args:
        passing: The cause may pass by itself: a site does not answer, or another writer committed first.
    """

    def __init__(self, what: str, *, hint: str = "", passing: bool = False, **fields: Any) -> None:
        super().__init__(what, hint=hint, **fields)
        self.passing = passing or self.retriable


class SlowWorkerError(JobFailedError):
    """A Python worker did not start within ten seconds, a fixed limit of Spark, because the machine is busy."""

    retriable = True
    exit_code = ExitCode.UNAVAILABLE


class LostExecutorError(JobFailedError):
    """An executor ended, and rows that a batch had computed there are lost (``shore.delta.lake.computed``)."""

    retriable = True
    exit_code = ExitCode.UNAVAILABLE


class UnknownSparkError(JobFailedError):
    """Spark's Java code failed in a call of a batch, with an error that is not Fairlead's. A batch may be repeated, so
    the query starts again: such an error is often one of a moment, as of a cluster that loses a machine."""

    retriable = True
    exit_code = ExitCode.UNAVAILABLE


class SplitStateError(RefusedError):
    """A job's checkpoint and its tables do not belong together: going on would repeat or lose rows."""


class CheckpointDamagedError(RefusedError):
    """A file that Spark needs in a job's checkpoint cannot be read. ``fields`` name the job and the file."""


class SchemaError(RefusedError):
    """A stored table has a column of another type than this version writes. ``fields`` name table and column."""


class AlreadyRunningError(RefusedError):
    """Another process runs shore for the same state folder, or for the same storage from another machine."""


class LeaseLostError(RefusedError):
    """Another machine took over the storage while this process stood still. This process must not write any more."""


class ShoreMovedError(RefusedError):
    """Shore runs at another site now (``fields["site"]``). Only there its tables and feeds may be written."""


class LogReturnedError(FairleadError):
    """A held log (``shore.site``) has grown to where it was read. The query starts again, and compares it first."""

    retriable = True
    exit_code = ExitCode.UNAVAILABLE


class FeedMovedError(FairleadError):
    """A customer's feed does not end where shore is about to append: another process appended to it, or it lost
    records."""

    retriable = True
    exit_code = ExitCode.UNAVAILABLE


class QueryError(ConfigurationError):
    """DuckDB cannot run a SQL query as it is written."""

    exit_code = ExitCode.USAGE


class SourceOptionError(ConfigurationError):
    """An option of ``spark.read.format("fairlead")`` is missing, unknown or has an impossible value."""


class DataLossError(FairleadError):
    """Records are gone that the query still had to read: by retention, or because a log was deleted or truncated."""


class SiteUnreachableError(UnavailableError):
    """No broker of the site answered for as long as the source waits. Nothing is lost: a restarted query goes on from
    its checkpoint."""


def site_unreachable(endpoint: KafkaEndpoint, error: Exception) -> SiteUnreachableError:
    """Return the error for a site whose brokers do not answer."""
    return SiteUnreachableError(
        f"site {endpoint.site} cannot be reached ({type(error).__name__}: {first_line(error)})",
        hint="nothing is lost: start the query again when the site is back, it goes on from its checkpoint",
        site=endpoint.site,
    )
