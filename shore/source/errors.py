"""Errors of the source."""

from __future__ import annotations

from fairlead.errors import ConfigurationError, FairleadError, UnavailableError


class SourceOptionError(ConfigurationError):
    """An option of ``spark.read.format("fairlead")`` is missing, unknown or has an impossible value."""


class DataLossError(FairleadError):
    """Records that were to be read are gone: retention overtook the reader, or a log was deleted or truncated."""


class SiteUnreachableError(UnavailableError):
    """No broker of the site answered for longer than the source waits. Nothing is lost: a query that is started again
    goes on from its checkpoint."""
