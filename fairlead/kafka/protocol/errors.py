"""Kafka's error codes with their names, and the exceptions made from them. Pure.

``RETRIABLE`` and ``NAMES`` are the protocol's own table. A test compares them with kafka-python's table, which is not
imported at run time, because any part of kafka-python imports its whole client.
"""

from __future__ import annotations

from typing import Final

from fairlead.errors import ExitCode, FairleadError
from fairlead.kafka.protocol.types import TopicPartition

# fmt: off
RETRIABLE: Final = frozenset((
    3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 41, 51, 56, 70, 71, 72, 74, 75, 78,
    80, 83, 84, 88, 89, 100, 103, 106, 122, 123,
))
# fmt: on
"""Codes after which the same request may succeed later."""

UNKNOWN: Final = "UNKNOWN"

NAMES: Final = {
    -1: "UNKNOWN",
    0: "NO_ERROR",
    1: "OFFSET_OUT_OF_RANGE",
    2: "CORRUPT_MESSAGE",
    3: "UNKNOWN_TOPIC_OR_PARTITION",
    4: "INVALID_FETCH_SIZE",
    5: "LEADER_NOT_AVAILABLE",
    6: "NOT_LEADER_FOR_PARTITION",
    7: "REQUEST_TIMED_OUT",
    8: "BROKER_NOT_AVAILABLE",
    9: "REPLICA_NOT_AVAILABLE",
    10: "MESSAGE_SIZE_TOO_LARGE",
    11: "STALE_CONTROLLER_EPOCH",
    12: "OFFSET_METADATA_TOO_LARGE",
    13: "NETWORK_EXCEPTION",
    14: "COORDINATOR_LOAD_IN_PROGRESS",
    15: "COORDINATOR_NOT_AVAILABLE",
    16: "NOT_COORDINATOR",
    17: "INVALID_TOPIC",
    18: "RECORD_LIST_TOO_LARGE",
    19: "NOT_ENOUGH_REPLICAS",
    20: "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    21: "INVALID_REQUIRED_ACKS",
    22: "ILLEGAL_GENERATION",
    23: "INCONSISTENT_GROUP_PROTOCOL",
    24: "INVALID_GROUP_ID",
    25: "UNKNOWN_MEMBER_ID",
    26: "INVALID_SESSION_TIMEOUT",
    27: "REBALANCE_IN_PROGRESS",
    28: "INVALID_COMMIT_OFFSET_SIZE",
    29: "TOPIC_AUTHORIZATION_FAILED",
    30: "GROUP_AUTHORIZATION_FAILED",
    31: "CLUSTER_AUTHORIZATION_FAILED",
    32: "INVALID_TIMESTAMP",
    33: "UNSUPPORTED_SASL_MECHANISM",
    34: "ILLEGAL_SASL_STATE",
    35: "UNSUPPORTED_VERSION",
    36: "TOPIC_ALREADY_EXISTS",
    37: "INVALID_PARTITIONS",
    38: "INVALID_REPLICATION_FACTOR",
    39: "INVALID_REPLICATION_ASSIGNMENT",
    40: "INVALID_CONFIG",
    41: "NOT_CONTROLLER",
    42: "INVALID_REQUEST",
    43: "UNSUPPORTED_FOR_MESSAGE_FORMAT",
    44: "POLICY_VIOLATION",
    45: "OUT_OF_ORDER_SEQUENCE_NUMBER",
    46: "DUPLICATE_SEQUENCE_NUMBER",
    47: "INVALID_PRODUCER_EPOCH",
    48: "INVALID_TXN_STATE",
    49: "INVALID_PRODUCER_ID_MAPPING",
    50: "INVALID_TRANSACTION_TIMEOUT",
    51: "CONCURRENT_TRANSACTIONS",
    52: "TRANSACTION_COORDINATOR_FENCED",
    53: "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    54: "SECURITY_DISABLED",
    55: "OPERATION_NOT_ATTEMPTED",
    56: "KAFKA_STORAGE_ERROR",
    57: "LOG_DIR_NOT_FOUND",
    58: "SASL_AUTHENTICATION_FAILED",
    59: "UNKNOWN_PRODUCER_ID",
    60: "REASSIGNMENT_IN_PROGRESS",
    61: "DELEGATION_TOKEN_AUTH_DISABLED",
    62: "DELEGATION_TOKEN_NOT_FOUND",
    63: "DELEGATION_TOKEN_OWNER_MISMATCH",
    64: "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
    65: "DELEGATION_TOKEN_AUTHORIZATION_FAILED",
    66: "DELEGATION_TOKEN_EXPIRED",
    67: "INVALID_PRINCIPAL_TYPE",
    68: "NON_EMPTY_GROUP",
    69: "GROUP_ID_NOT_FOUND",
    70: "FETCH_SESSION_ID_NOT_FOUND",
    71: "INVALID_FETCH_SESSION_EPOCH",
    72: "LISTENER_NOT_FOUND",
    73: "TOPIC_DELETION_DISABLED",
    74: "FENCED_LEADER_EPOCH",
    75: "UNKNOWN_LEADER_EPOCH",
    76: "UNSUPPORTED_COMPRESSION_TYPE",
    77: "STALE_BROKER_EPOCH",
    78: "OFFSET_NOT_AVAILABLE",
    79: "MEMBER_ID_REQUIRED",
    80: "PREFERRED_LEADER_NOT_AVAILABLE",
    81: "GROUP_MAX_SIZE_REACHED",
    82: "FENCED_INSTANCE_ID",
    83: "ELIGIBLE_LEADERS_NOT_AVAILABLE",
    84: "ELECTION_NOT_NEEDED",
    85: "NO_REASSIGNMENT_IN_PROGRESS",
    86: "GROUP_SUBSCRIBED_TO_TOPIC",
    87: "INVALID_RECORD",
    88: "UNSTABLE_OFFSET_COMMIT",
    89: "THROTTLING_QUOTA_EXCEEDED",
    90: "PRODUCER_FENCED",
    91: "RESOURCE_NOT_FOUND",
    92: "DUPLICATE_RESOURCE",
    93: "UNACCEPTABLE_CREDENTIAL",
    94: "INCONSISTENT_VOTER_SET",
    95: "INVALID_UPDATE_VERSION",
    96: "FEATURE_UPDATE_FAILED",
    97: "PRINCIPAL_DESERIALIZATION_FAILURE",
    98: "SNAPSHOT_NOT_FOUND",
    99: "POSITION_OUT_OF_RANGE",
    100: "UNKNOWN_TOPIC_ID",
    101: "DUPLICATE_BROKER_REGISTRATION",
    102: "BROKER_ID_NOT_REGISTERED",
    103: "INCONSISTENT_TOPIC_ID",
    104: "INCONSISTENT_CLUSTER_ID",
    105: "TRANSACTIONAL_ID_NOT_FOUND",
    106: "FETCH_SESSION_TOPIC_ID_ERROR",
    107: "INELIGIBLE_REPLICA",
    108: "NEW_LEADER_ELECTED",
    109: "OFFSET_MOVED_TO_TIERED_STORAGE",
    110: "FENCED_MEMBER_EPOCH",
    111: "UNRELEASED_INSTANCE_ID",
    112: "UNSUPPORTED_ASSIGNOR",
    113: "STALE_MEMBER_EPOCH",
    114: "MISMATCHED_ENDPOINT_TYPE",
    115: "UNSUPPORTED_ENDPOINT_TYPE",
    116: "UNKNOWN_CONTROLLER_ID",
    117: "UNKNOWN_SUBSCRIPTION_ID",
    118: "TELEMETRY_TOO_LARGE",
    119: "INVALID_REGISTRATION",
    120: "TRANSACTION_ABORTABLE",
    121: "INVALID_RECORD_STATE",
    122: "SHARE_SESSION_NOT_FOUND",
    123: "INVALID_SHARE_SESSION_EPOCH",
    124: "FENCED_STATE_EPOCH",
    125: "INVALID_VOTER_KEY",
    126: "DUPLICATE_VOTER",
    127: "VOTER_NOT_FOUND",
}


# Codes that the append convention or the leader lookup handles (docs/append-convention.md).
OFFSET_OUT_OF_RANGE: Final = 1
UNKNOWN_TOPIC_OR_PARTITION: Final = 3
LEADER_NOT_AVAILABLE: Final = 5
REQUEST_TIMED_OUT: Final = 7
NETWORK_EXCEPTION: Final = 13
TOPIC_AUTHORIZATION_FAILED: Final = 29
_AUTHORIZATION: Final = frozenset(code for code, name in NAMES.items() if name.endswith("_AUTHORIZATION_FAILED"))
OUT_OF_ORDER_SEQUENCE_NUMBER: Final = 45
INVALID_PRODUCER_EPOCH: Final = 47
SASL_AUTHENTICATION_FAILED: Final = 58
FETCH_SESSION_ID_NOT_FOUND: Final = 70
INVALID_FETCH_SESSION_EPOCH: Final = 71
NOT_CONTROLLER: Final = 41
UNKNOWN_TOPIC_ID: Final = 100
FETCH_SESSION_TOPIC_ID_ERROR: Final = 106


class WireError(FairleadError):
    """Base of all errors in the exchange with a Kafka cluster."""


class BrokerError(WireError):
    """A broker answered with an error code. Only ``broker_error`` creates it.

    Args:
        code: The protocol's number, for example 3.
        name: The protocol's name, for example ``UNKNOWN_TOPIC_OR_PARTITION``.
        log: The log that the error is about, if any.
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


class AuthorizationFailed(FatalBrokerError):
    """The user may not do this with the topic, the group or the cluster."""

    exit_code = ExitCode.REFUSED


class ConnectionLost(WireError):
    """A broker could not be reached, or closed the connection; ``fields['address']`` says which."""

    retriable = True
    exit_code = ExitCode.UNAVAILABLE


class RequestTimeout(WireError):
    """No answer in time. The request may or may not have been carried out; the connection has been closed."""

    retriable = True
    exit_code = ExitCode.UNAVAILABLE


class AuthenticationFailed(WireError):
    """The login was refused, or the server is not the expected one. Never retried automatically."""

    exit_code = ExitCode.REFUSED


class UnsupportedBroker(WireError):
    """The broker does not speak a version of a request that Fairlead needs."""

    exit_code = ExitCode.REFUSED


class Misplaced(WireError):
    """A batch is, or would be, at another offset than its sequence says, or the log's tail is not the expected one."""

    exit_code = ExitCode.REFUSED


class Fenced(WireError):
    """Error 47: a later term exists in this log, so this writer may no longer append (docs/append-convention.md)."""

    exit_code = ExitCode.REFUSED


class Conflict(WireError):
    """Another writer's record is at the offset where ours should be."""

    exit_code = ExitCode.REFUSED


class CorruptBatch(WireError):
    """The bytes are no record batch of format v2, or its CRC does not match."""


class UnreadableRecords(CorruptBatch):
    """The batch's CRC is right but its records cannot be decoded, so readers skip it.

    The compression is unknown, or the records are larger than any message may be. Reading the batch again gives the
    same error.
    """


_HINTS: Final = {
    UNKNOWN_TOPIC_OR_PARTITION: "create the topic first, or wait until the brokers know it",
    TOPIC_AUTHORIZATION_FAILED: "give this user the permission; `fairlead acl explain USER TOPIC` says what is missing",
    10: "the batch is larger than the log's max.message.bytes; send smaller batches or raise it",
    19: "too few replicas are in sync; bring the missing brokers back",
    32: "the record's time is outside what the log accepts; check the device's clock and message.timestamp.*.max.ms",
}


def is_retriable(code: int) -> bool:
    """Whether the protocol's table calls this error code retriable."""
    return code in RETRIABLE


def broker_error(code: int, log: TopicPartition | None = None, detail: str | None = None) -> BrokerError:
    """Make the error for a code other than 0, retriable or fatal as the protocol says."""
    fatal = AuthorizationFailed if code in _AUTHORIZATION else FatalBrokerError
    kind = RetriableBrokerError if code in RETRIABLE else fatal
    return kind(code, NAMES.get(code, UNKNOWN), log, detail or "", _HINTS.get(code, ""))
