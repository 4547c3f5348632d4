"""Errors of the sink."""

from __future__ import annotations

from fairlead.errors import ConfigurationError, FairleadError, RefusedError


class SinkOptionError(ConfigurationError):
    """An option or a column of ``writeStream.format("fairlead")`` is missing, unknown or has an impossible value."""


class SinkRowError(FairleadError):
    """A row cannot become a record of a log; nothing of its batch was appended."""


class BatchTooLargeError(FairleadError):
    """A batch has more bytes than the driver may hold; nothing of it was appended."""


class NotHeldError(RefusedError):
    """A log is held by another site, or is no log of Fairlead: shore must not append to it."""


class StaleBatchError(RefusedError):
    """A log already has records of a later batch: the query was started with another checkpoint, or twice."""


class ChangedBatchError(RefusedError):
    """A batch that was appended in part came back with other rows, so what is missing cannot be told."""


class LogMovedError(FairleadError):
    """Somebody else appended to a log while the sink was about to; a repeated batch goes on where this one was."""

    retriable = True
