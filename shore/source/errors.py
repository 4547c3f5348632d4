"""Errors of the source."""

from __future__ import annotations

from fairlead.errors import ConfigurationError, FairleadError


class SourceOptionError(ConfigurationError):
    """An option of ``spark.read.format("fairlead")`` is missing, unknown or has an impossible value."""


class DataLossError(FairleadError):
    """Records that were to be read are gone: retention overtook the reader, or a log was deleted or truncated."""
