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

_NAMES = """
    UNKNOWN NO_ERROR OFFSET_OUT_OF_RANGE CORRUPT_MESSAGE UNKNOWN_TOPIC_OR_PARTITION INVALID_FETCH_SIZE
    LEADER_NOT_AVAILABLE NOT_LEADER_FOR_PARTITION REQUEST_TIMED_OUT BROKER_NOT_AVAILABLE REPLICA_NOT_AVAILABLE
    MESSAGE_SIZE_TOO_LARGE STALE_CONTROLLER_EPOCH OFFSET_METADATA_TOO_LARGE NETWORK_EXCEPTION
    COORDINATOR_LOAD_IN_PROGRESS COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR INVALID_TOPIC RECORD_LIST_TOO_LARGE
    NOT_ENOUGH_REPLICAS NOT_ENOUGH_REPLICAS_AFTER_APPEND INVALID_REQUIRED_ACKS ILLEGAL_GENERATION
    INCONSISTENT_GROUP_PROTOCOL INVALID_GROUP_ID UNKNOWN_MEMBER_ID INVALID_SESSION_TIMEOUT REBALANCE_IN_PROGRESS
    INVALID_COMMIT_OFFSET_SIZE TOPIC_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED
    INVALID_TIMESTAMP UNSUPPORTED_SASL_MECHANISM ILLEGAL_SASL_STATE UNSUPPORTED_VERSION TOPIC_ALREADY_EXISTS
    INVALID_PARTITIONS INVALID_REPLICATION_FACTOR INVALID_REPLICATION_ASSIGNMENT INVALID_CONFIG NOT_CONTROLLER
    INVALID_REQUEST UNSUPPORTED_FOR_MESSAGE_FORMAT POLICY_VIOLATION OUT_OF_ORDER_SEQUENCE_NUMBER
    DUPLICATE_SEQUENCE_NUMBER INVALID_PRODUCER_EPOCH INVALID_TXN_STATE INVALID_PRODUCER_ID_MAPPING
    INVALID_TRANSACTION_TIMEOUT CONCURRENT_TRANSACTIONS TRANSACTION_COORDINATOR_FENCED
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED SECURITY_DISABLED OPERATION_NOT_ATTEMPTED KAFKA_STORAGE_ERROR
    LOG_DIR_NOT_FOUND SASL_AUTHENTICATION_FAILED UNKNOWN_PRODUCER_ID REASSIGNMENT_IN_PROGRESS
    DELEGATION_TOKEN_AUTH_DISABLED DELEGATION_TOKEN_NOT_FOUND DELEGATION_TOKEN_OWNER_MISMATCH
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED DELEGATION_TOKEN_AUTHORIZATION_FAILED DELEGATION_TOKEN_EXPIRED
    INVALID_PRINCIPAL_TYPE NON_EMPTY_GROUP GROUP_ID_NOT_FOUND FETCH_SESSION_ID_NOT_FOUND INVALID_FETCH_SESSION_EPOCH
    LISTENER_NOT_FOUND TOPIC_DELETION_DISABLED FENCED_LEADER_EPOCH UNKNOWN_LEADER_EPOCH UNSUPPORTED_COMPRESSION_TYPE
    STALE_BROKER_EPOCH OFFSET_NOT_AVAILABLE MEMBER_ID_REQUIRED PREFERRED_LEADER_NOT_AVAILABLE GROUP_MAX_SIZE_REACHED
    FENCED_INSTANCE_ID ELIGIBLE_LEADERS_NOT_AVAILABLE ELECTION_NOT_NEEDED NO_REASSIGNMENT_IN_PROGRESS
    GROUP_SUBSCRIBED_TO_TOPIC INVALID_RECORD UNSTABLE_OFFSET_COMMIT THROTTLING_QUOTA_EXCEEDED PRODUCER_FENCED
    RESOURCE_NOT_FOUND DUPLICATE_RESOURCE UNACCEPTABLE_CREDENTIAL INCONSISTENT_VOTER_SET INVALID_UPDATE_VERSION
    FEATURE_UPDATE_FAILED PRINCIPAL_DESERIALIZATION_FAILURE SNAPSHOT_NOT_FOUND POSITION_OUT_OF_RANGE UNKNOWN_TOPIC_ID
    DUPLICATE_BROKER_REGISTRATION BROKER_ID_NOT_REGISTERED INCONSISTENT_TOPIC_ID INCONSISTENT_CLUSTER_ID
    TRANSACTIONAL_ID_NOT_FOUND FETCH_SESSION_TOPIC_ID_ERROR INELIGIBLE_REPLICA NEW_LEADER_ELECTED
    OFFSET_MOVED_TO_TIERED_STORAGE FENCED_MEMBER_EPOCH UNRELEASED_INSTANCE_ID UNSUPPORTED_ASSIGNOR STALE_MEMBER_EPOCH
    MISMATCHED_ENDPOINT_TYPE UNSUPPORTED_ENDPOINT_TYPE UNKNOWN_CONTROLLER_ID UNKNOWN_SUBSCRIPTION_ID TELEMETRY_TOO_LARGE
    INVALID_REGISTRATION TRANSACTION_ABORTABLE INVALID_RECORD_STATE SHARE_SESSION_NOT_FOUND INVALID_SHARE_SESSION_EPOCH
    FENCED_STATE_EPOCH INVALID_VOTER_KEY DUPLICATE_VOTER VOTER_NOT_FOUND
"""
NAMES: Final = dict(enumerate(_NAMES.split(), -1))
"""By code, from -1 on."""


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
