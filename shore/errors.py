"""Errors of shore: of its jobs and readers, and of the source ``fairlead`` and of the feeds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fairlead.errors import ConfigurationError, ExitCode, FairleadError, RefusedError, UnavailableError

if TYPE_CHECKING:  # whoever only compares tables needs no Spark
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
"""Names of the errors of Delta's and delta-rs's writers when another one was first: what they write is made again from
what is there then."""


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


class LostExecutorError(JobFailedError):
    """An executor ended, and with it rows that a batch had computed there (``shore.delta.lake.computed``)."""

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


class SourceOptionError(ConfigurationError):
    """An option of ``spark.read.format("fairlead")`` is missing, unknown or has an impossible value."""


class DataLossError(FairleadError):
    """Records that were to be read are gone: retention overtook the reader, or a log was deleted or truncated."""


class SiteUnreachableError(UnavailableError):
    """No broker of the site answered for longer than the source waits. Nothing is lost: a query that is started again
    goes on from its checkpoint."""


def site_unreachable(endpoint: KafkaEndpoint, error: Exception) -> SiteUnreachableError:
    """The error for a site whose brokers do not answer."""
    first, *_ = str(error).splitlines()
    return SiteUnreachableError(
        f"site {endpoint.site} cannot be reached ({type(error).__name__}: {first})",
        hint="nothing is lost: start the query again when the site is back, it goes on from its checkpoint",
        site=endpoint.site,
    )
