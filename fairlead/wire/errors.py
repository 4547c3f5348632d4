"""Errors of the wire. ``retriable`` follows the protocol's own table (``error_table``)."""

from __future__ import annotations

from typing import Final

from fairlead.errors import ExitCode, FairleadError
from fairlead.wire.error_table import NAMES, RETRIABLE, ROUTING, UNKNOWN
from fairlead.wire.types import TopicPartition

# Codes that the append convention or the routing acts on (notes: "What a writer concludes").
OFFSET_OUT_OF_RANGE: Final = 1
UNKNOWN_TOPIC_OR_PARTITION: Final = 3
LEADER_NOT_AVAILABLE: Final = 5
REQUEST_TIMED_OUT: Final = 7
NETWORK_EXCEPTION: Final = 13
TOPIC_AUTHORIZATION_FAILED: Final = 29
OUT_OF_ORDER_SEQUENCE_NUMBER: Final = 45
INVALID_PRODUCER_EPOCH: Final = 47
FETCH_SESSION_ID_NOT_FOUND: Final = 70
INVALID_FETCH_SESSION_EPOCH: Final = 71
UNKNOWN_TOPIC_ID: Final = 100
FETCH_SESSION_TOPIC_ID_ERROR: Final = 106


class WireError(FairleadError):
    """Anything that goes wrong between Fairlead and a Kafka cluster."""


class BrokerError(WireError):
    """A broker answered with an error code. Made by ``broker_error`` only.

    Args:
        code: The protocol's number, for example 3.
        name: The protocol's name, for example ``UNKNOWN_TOPIC_OR_PARTITION``.
        log: The log it is about, if it is about one.
    """

    def __init__(self, code: int, name: str, log: TopicPartition | None, detail: str, hint: str) -> None:
        where = f" for log {log}" if log is not None else ""
        super().__init__(
            f"the broker answered error {code} {name}{where}{': ' if detail else ''}{detail}",
            hint=hint,
            code=code,
            name=name,
            log=None if log is None else str(log),
        )
        self.code = code
        self.name = name
        self.log = log


class RetriableBrokerError(BrokerError):
    """The protocol says that the same request may succeed later."""

    retriable = True
    exit_code = ExitCode.UNAVAILABLE


class FatalBrokerError(BrokerError):
    """The protocol says that the same request will fail again."""


class ConnectionLost(WireError):
    """A broker could not be reached, or closed the connection; ``fields['address']`` says which."""

    retriable = True
    exit_code = ExitCode.UNAVAILABLE


class RequestTimeout(WireError):
    """No answer in time. The request may or may not have been carried out; the connection was closed."""

    retriable = True
    exit_code = ExitCode.UNAVAILABLE


class AuthenticationFailed(WireError):
    """The login was refused, or the server is not who it should be. Never retried by itself."""

    exit_code = ExitCode.REFUSED


class UnsupportedBroker(WireError):
    """The broker does not speak a version of a request that Fairlead needs."""

    exit_code = ExitCode.REFUSED


class Misplaced(WireError):
    """A batch is, or would be, at another offset than its sequence says, or the log's tail is not what it must be."""

    exit_code = ExitCode.REFUSED


class Fenced(WireError):
    """Error 47: a later term exists in this log, so this writer may no longer append (design, section 5)."""

    exit_code = ExitCode.REFUSED


class Conflict(WireError):
    """Somebody else's record is at the offset where ours would be."""

    exit_code = ExitCode.REFUSED


class CorruptBatch(WireError):
    """Bytes that are no record batch of format v2, or whose CRC does not match."""


_HINTS: Final = {
    UNKNOWN_TOPIC_OR_PARTITION: "create the topic first, or wait until the brokers know it",
    TOPIC_AUTHORIZATION_FAILED: "give this user the permission; `fairlead acl explain USER TOPIC` says what is missing",
    10: "the batch is larger than the log's max.message.bytes; send smaller batches or raise it",
    19: "too few replicas are in sync; bring the missing brokers back",
    32: "the record's time is outside what the log accepts; check the device's clock and message.timestamp.*.max.ms",
}


def is_retriable(code: int) -> bool:
    """True when the protocol's table calls this error code retriable."""
    return code in RETRIABLE


def is_routing(code: int) -> bool:
    """True when the protocol's table says that metadata is to be refreshed (3, 5, 6, 13, 56, 74, 75, 100, 103)."""
    return code in ROUTING


def broker_error(code: int, log: TopicPartition | None = None, detail: str | None = None) -> BrokerError:
    """The error for a code other than 0, retriable or fatal as the protocol says."""
    kind = RetriableBrokerError if code in RETRIABLE else FatalBrokerError
    return kind(code, NAMES.get(code, UNKNOWN), log, detail or "", _HINTS.get(code, ""))
