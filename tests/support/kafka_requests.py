"""Build one request of each kind that a Kafka broker knows, about resources of somebody else, and read its answer.

Bodies are built with kafka-python's schemas; those it lacks are written out here, from Kafka's own message definitions.
Each request is harmless even where it is allowed (validated only, or about something that does not exist), so a test
can send it as the administrator too, which shows that the broker understood it.
"""

from __future__ import annotations

import importlib
import pkgutil
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import kafka.protocol as protocol
from kafka.protocol.api_key import ApiKey

from fairlead.kafka.client.connection import Connection, body_at

SWITCHED_OFF = 61
"""Delegation tokens are not used at all, so nobody may do anything with them."""

REFUSALS = {29: "TOPIC", 30: "GROUP", 31: "CLUSTER", 53: "TRANSACTIONAL_ID", 65: "DELEGATION_TOKEN"}
"""Error codes that deny authorization, by the kind of resource they protect."""

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """A broker's answer to a request: its error codes, without those for success; ``told`` is the whole answer."""

    errors: tuple[int, ...]
    told: Any

    @property
    def refused(self) -> bool:
        """Return whether the answer denies authorization and contains nothing else."""
        return bool(self.errors) and all(code in REFUSALS for code in self.errors)


@dataclass(frozen=True, slots=True)
class Request:
    """One request: ``label`` describes it, ``codes`` finds the error codes in the body of the answer."""

    label: str
    key: int
    version: int
    body: bytes
    flexible: bool
    read: Callable[[memoryview], Answer]

    async def ask(self, connection: Connection) -> Answer:
        frame = await connection.send(self.key, self.version, [self.body], flexible=self.flexible)
        return self.read(memoryview(frame)[body_at(frame, self.flexible) :])


def classes() -> dict[str, Any]:
    """Return every message class of kafka-python, by name."""
    found: dict[str, Any] = {}
    for module in pkgutil.iter_modules(protocol.__path__):
        if module.ispkg and module.name in ("admin", "consumer", "metadata", "producer"):
            found.update(vars(importlib.import_module(f"kafka.protocol.{module.name}")))
    return found


def schema_request(label: str, name: str, version: int, values: Values) -> Request:
    """Build a request from kafka-python's schema; structures are mappings."""
    known = classes()
    asked, answered = known[f"{name}Request"], known[f"{name}Response"]
    message = filled(asked, values, version)
    body = bytes(message.encode(version=version))

    def read(data: memoryview) -> Answer:
        told = answered.decode(data, version=version).to_dict()
        return Answer(tuple(code for code in _error_codes(told) if code), told)

    return Request(label, int(ApiKey[name]), version, body, asked.flexible_version_q(version), read)


def filled(kind: Any, values: Values, version: int) -> Any:
    """Return a message of a class of kafka-python; structures are mappings."""
    made: dict[str, Any] = {}
    for name, value in values.items():
        field = kind._struct.fields[name]  # noqa: SLF001 - kafka-python's only way from a name to its structure
        if isinstance(value, list) and value and isinstance(value[0], dict):
            made[name] = [filled(field.data_class, item, version) for item in value]
        else:
            made[name] = value
    return kind(version=version, **made)


def _error_codes(told: Any) -> Iterator[int]:
    if isinstance(told, dict):
        for name, value in told.items():
            if name.endswith("error_code"):
                yield value
            yield from _error_codes(value)
    elif isinstance(told, list | tuple):
        for item in told:
            yield from _error_codes(item)


# --- written out by hand: strings, arrays and structures in the flexible encoding of Kafka's protocol

NO_TAGS = b"\0"
NONE = b"\0"  # a null string or array
NO_STRUCT = b"\xff"
EMPTY = b"\1"  # an array
UUID = bytes(16)


def text(value: str) -> bytes:
    return bytes([len(value) + 1]) + value.encode()


def array(*items: bytes) -> bytes:
    return bytes([len(items) + 1]) + b"".join(items)


def i32(*values: int) -> bytes:
    return struct.pack(f">{len(values)}i", *values)


def i64(value: int) -> bytes:
    return struct.pack(">q", value)


def written_request(label: str, name: str, version: int, body: bytes, *, error_at: int = 4) -> Request:
    """Build a request with the given body. ``error_at`` is the offset of the only error code in the answer's body,
    usually after the four bytes of throttle time.
    """

    def read(data: memoryview) -> Answer:
        (code,) = struct.unpack_from(">h", data, error_at)
        return Answer((code,) if code else (), bytes(data))

    return Request(label, int(ApiKey[name]), version, body + NO_TAGS, True, read)


def requests(*, topic: str, own: str, group: str, user: str) -> list[Request]:
    """Return every request of a Kafka 4.3 broker that names a resource.

    Args:
        topic: A log of somebody else; no request changes it even where it is allowed.
        own: A log that the attacker may read.
        group: Somebody else's consumer group; it should not exist.
        user: A user who does not exist.
    """
    partition = {"partition_index": 0}
    transaction = {"transactional_id": f"{user}.tx", "producer_id": 4711, "producer_epoch": 0}
    member = {"group_id": group, "generation_id": 1, "member_id": ""}
    gone = f"{topic}-that-is-not-there"
    acl = {"resource_type": 2, "resource_pattern_type": 3, "principal": f"User:{user}", "host": "*", "operation": 3,
           "permission_type": 3}  # fmt: skip
    filters = {"resource_type_filter": 2, "resource_name_filter": gone, "pattern_type_filter": 3,
               "principal_filter": f"User:{user}", "host_filter": "*", "operation": 3,
               "permission_type": 3}  # fmt: skip
    setting = {"resource_type": 2, "resource_name": own, "configs": [{"name": "retention.ms", "value": "1"}]}
    increment = {"name": "retention.ms", "config_operation": 0, "value": "1"}
    fetch = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1000, "isolation_level": 0, "session_id": 0,
             "session_epoch": -1, "forgotten_topics_data": [], "rack_id": ""}  # fmt: skip
    fetched = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "last_fetched_epoch": -1,
               "log_start_offset": -1, "partition_max_bytes": 1000}  # fmt: skip
    by_schema: list[tuple[str, str, int, Values]] = [
        ("writing nothing to a log of others", "Produce", 9, {
            "transactional_id": None, "acks": -1, "timeout_ms": 1000,
            "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": b""}]}]}),
        ("writing nothing to its own feed", "Produce", 9, {
            "transactional_id": None, "acks": -1, "timeout_ms": 1000,
            "topic_data": [{"name": own, "partition_data": [{"index": 0, "records": b""}]}]}),
        ("reading a log of others", "Fetch", 12, {
            **fetch, "replica_id": -1, "topics": [{"topic": topic, "partitions": [fetched]}]}),
        ("reading as if it were a broker", "Fetch", 12, {
            **fetch, "replica_id": 1, "topics": [{"topic": own, "partitions": [fetched]}]}),
        ("asking for the end of a log of others", "ListOffsets", 7, {
            "replica_id": -1, "isolation_level": 0,
            "topics": [{"name": topic, "partitions": [
                {**partition, "current_leader_epoch": -1, "timestamp": -1}]}]}),
        ("asking for a topic of others", "Metadata", 9, {
            "topics": [{"name": topic}], "allow_auto_topic_creation": True,
            "include_cluster_authorized_operations": True, "include_topic_authorized_operations": True}),
        ("committing in a group of others", "OffsetCommit", 8, {
            "group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None,
            "topics": [{"name": own, "partitions": [
                {**partition, "committed_offset": 0, "committed_leader_epoch": -1, "committed_metadata": ""}]}]}),
        ("reading offsets of a group of others", "OffsetFetch", 8, {
            "groups": [{"group_id": group, "topics": None}], "require_stable": False}),
        ("finding a group of others", "FindCoordinator", 4, {"key_type": 0, "coordinator_keys": [group]}),
        ("finding a transaction of others", "FindCoordinator", 4, {"key_type": 1, "coordinator_keys": [f"{user}.tx"]}),
        ("joining a group of others", "JoinGroup", 5, {
            "group_id": group, "session_timeout_ms": 6000, "rebalance_timeout_ms": 6000, "member_id": "",
            "group_instance_id": None, "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}]}),
        ("keeping alive a member of others", "Heartbeat", 3, {**member, "group_instance_id": None}),
        ("throwing others out of their group", "LeaveGroup", 3, {
            "group_id": group, "members": [{"member_id": "m", "group_instance_id": None}]}),
        ("giving out partitions in a group of others", "SyncGroup", 3, {
            **member, "group_instance_id": None, "assignments": []}),
        ("describing a group of others", "DescribeGroups", 4, {
            "groups": [group], "include_authorized_operations": True}),
        ("creating a topic", "CreateTopics", 5, {
            "topics": [{"name": gone, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}],
            "timeout_ms": 1000, "validate_only": True}),
        ("deleting a topic", "DeleteTopics", 4, {"topic_names": [gone], "timeout_ms": 1000}),
        ("deleting records of its own feed", "DeleteRecords", 1, {
            "topics": [{"name": own, "partitions": [{**partition, "offset": 0}]}], "timeout_ms": 1000}),
        ("taking a transactional id of others", "InitProducerId", 3, {
            "transactional_id": f"{user}.tx", "transaction_timeout_ms": 1000, "producer_id": -1,
            "producer_epoch": -1}),
        ("taking a producer id", "InitProducerId", 3, {
            "transactional_id": None, "transaction_timeout_ms": 1000, "producer_id": -1, "producer_epoch": -1}),
        ("asking for epochs of a log of others", "OffsetForLeaderEpoch", 3, {
            "replica_id": -1, "topics": [{"topic": topic, "partitions": [
                {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]}]}),
        ("writing in a transaction of others", "AddPartitionsToTxn", 3, {
            f"v3_and_below_{name}": value
            for name, value in {**transaction, "topics": [{"name": topic, "partitions": [0]}]}.items()}),
        ("committing in a transaction of others", "AddOffsetsToTxn", 3, {**transaction, "group_id": group}),
        ("ending a transaction of others", "EndTxn", 3, {**transaction, "committed": True}),
        ("marking transactions as done", "WriteTxnMarkers", 1, {"markers": [
            {"producer_id": 4711, "producer_epoch": 0, "transaction_result": True, "coordinator_epoch": 0,
             "topics": [{"name": gone, "partition_indexes": [0]}]}]}),
        ("committing offsets in a transaction of others", "TxnOffsetCommit", 3, {
            **transaction, "group_id": group, "generation_id": -1, "member_id": "", "group_instance_id": None,
            "topics": [{"name": own, "partitions": [
                {**partition, "committed_offset": 0, "committed_leader_epoch": -1, "committed_metadata": ""}]}]}),
        ("reading the access rules", "DescribeAcls", 2, {
            "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1,
            "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}),
        ("creating an access rule", "CreateAcls", 2, {"creations": [{**acl, "resource_name": gone}]}),
        ("removing an access rule", "DeleteAcls", 2, {"filters": [filters]}),
        ("reading settings of a broker", "DescribeConfigs", 4, {
            "resources": [{"resource_type": 4, "resource_name": "1", "configuration_keys": None}],
            "include_synonyms": False, "include_documentation": False}),
        ("reading settings of a log of others", "DescribeConfigs", 4, {
            "resources": [{"resource_type": 2, "resource_name": topic, "configuration_keys": None}],
            "include_synonyms": False, "include_documentation": False}),
        ("changing settings of its own feed", "AlterConfigs", 1, {"resources": [setting], "validate_only": True}),
        ("changing a setting of its own feed", "IncrementalAlterConfigs", 1, {
            "resources": [{"resource_type": 2, "resource_name": own, "configs": [increment]}],
            "validate_only": True}),
        ("changing a setting of a broker", "IncrementalAlterConfigs", 1, {
            "resources": [{"resource_type": 4, "resource_name": "1", "configs": [
                {"name": "log.cleaner.threads", "config_operation": 0, "value": "1"}]}], "validate_only": True}),
        ("moving replicas between disks", "AlterReplicaLogDirs", 2, {
            "dirs": [{"path": "/nowhere", "topics": [{"name": gone, "partitions": [0]}]}]}),
        ("looking at the disks", "DescribeLogDirs", 4, {"topics": None}),
        ("adding partitions to its own feed", "CreatePartitions", 2, {
            "topics": [{"name": own, "count": 2, "assignments": None}], "timeout_ms": 1000, "validate_only": True}),
        ("deleting a group of others", "DeleteGroups", 2, {"groups_names": [group]}),
        ("electing leaders", "ElectLeaders", 2, {
            "election_type": 0, "topic_partitions": [{"topic": gone, "partitions": [0]}], "timeout_ms": 1000}),
        ("moving partitions", "AlterPartitionReassignments", 0, {
            "timeout_ms": 1000, "topics": [{"name": gone, "partitions": [{**partition, "replicas": [1]}]}]}),
        ("looking at moves of partitions", "ListPartitionReassignments", 0, {"timeout_ms": 1000, "topics": None}),
        ("deleting offsets of a group of others", "OffsetDelete", 0, {
            "group_id": group, "topics": [{"name": own, "partitions": [partition]}]}),
        ("reading quotas", "DescribeClientQuotas", 1, {"components": [], "strict": False}),
        ("changing quotas", "AlterClientQuotas", 1, {
            "entries": [{"entity": [{"entity_type": "user", "entity_name": user}],
                         "ops": [{"key": "request_percentage", "value": 1.0, "remove": False}]}],
            "validate_only": True}),
        ("reading who has passwords", "DescribeUserScramCredentials", 0, {"users": [{"name": user}]}),
        ("removing somebody's password", "AlterUserScramCredentials", 0, {
            "deletions": [{"name": user, "mechanism": 2}], "upsertions": []}),
        ("looking at the controllers", "DescribeQuorum", 1, {
            "topics": [{"topic_name": "__cluster_metadata", "partitions": [partition]}]}),
        ("changing the cluster's version", "UpdateFeatures", 1, {
            "timeout_ms": 1000, "validate_only": True, "feature_updates": [
                {"feature": "metadata.version", "max_version_level": 25, "upgrade_type": 1}]}),
        ("looking at the writers of a log of others", "DescribeProducers", 0, {
            "topics": [{"name": topic, "partition_indexes": [0]}]}),
        ("looking at a transaction of others", "DescribeTransactions", 0, {"transactional_ids": [f"{user}.tx"]}),
        ("listing what has settings", "ListConfigResources", 1, {"resource_types": []}),
        ("looking at partitions of others", "DescribeTopicPartitions", 0, {
            "topics": [{"name": topic}], "response_partition_limit": 10, "cursor": None}),
    ]  # fmt: skip

    def share_state(*numbers: bytes) -> bytes:
        return text(group) + array(UUID + array(i32(0) + b"".join(numbers) + NO_TAGS) + NO_TAGS)

    in_partition = 1 + 16 + 1 + 4  # after the arrays' lengths, the topic's id and the partition's number
    describe = array(text(group)) + b"\1"
    written = [
        written_request("making a token", "CreateDelegationToken", 3, NONE + NONE + EMPTY + i64(-1), error_at=0),
        written_request("renewing a token", "RenewDelegationToken", 2, b"\2x" + i64(1000), error_at=0),
        written_request("ending a token", "ExpireDelegationToken", 2, b"\2x" + i64(-1), error_at=0),
        written_request("reading tokens", "DescribeDelegationToken", 3, NONE, error_at=0),
        written_request("taking a broker away", "UnregisterBroker", 0, i32(99)),
        written_request("joining a group of others, the newer way", "ConsumerGroupHeartbeat", 0,
                        text(group) + text("m") + i32(1) + NONE + NONE + i32(-1) + NONE + NONE + NONE),
        written_request("describing a group of others, the newer way", "ConsumerGroupDescribe", 0, describe,
                        error_at=5),
        written_request("joining a share group of others", "ShareGroupHeartbeat", 1,
                        text(group) + text("m") + i32(1) + NONE + NONE),
        written_request("describing a share group of others", "ShareGroupDescribe", 1, describe, error_at=5),
        written_request("reading in a share group of others", "ShareFetch", 1,
                        text(group) + text("AAAAAAAAAAAAAAAAAAAAAA") + i32(0, 0, 0, 1000, 1, 1) + EMPTY + EMPTY),
        written_request("acknowledging in a share group of others", "ShareAcknowledge", 1,
                        text(group) + text("AAAAAAAAAAAAAAAAAAAAAA") + i32(1) + EMPTY),
        written_request("adding a controller", "AddRaftVoter", 0, NONE + i32(1000, 99) + UUID + EMPTY),
        written_request("taking a controller away", "RemoveRaftVoter", 0, NONE + i32(99) + UUID),
        written_request("beginning the state of a share group", "InitializeShareGroupState", 0,
                        share_state(i32(0), i64(0)), error_at=in_partition),
        written_request("reading the state of a share group", "ReadShareGroupState", 0,
                        share_state(i32(0)), error_at=in_partition),
        written_request("writing the state of a share group", "WriteShareGroupState", 0,
                        share_state(i32(0, 0), i64(0), EMPTY), error_at=in_partition),
        written_request("deleting the state of a share group", "DeleteShareGroupState", 0,
                        share_state(), error_at=in_partition),
        written_request("reading the state of a share group in short", "ReadShareGroupStateSummary", 0,
                        share_state(i32(0)), error_at=in_partition),
        written_request("joining a streams group of others", "StreamsGroupHeartbeat", 0,
                        text(group) + text("m") + i32(1, 0) + NONE + NONE + i32(-1) + NO_STRUCT + NONE * 4
                        + NO_STRUCT + NONE * 3 + b"\0"),
        written_request("describing a streams group of others", "StreamsGroupDescribe", 0, describe, error_at=5),
        written_request("reading offsets of a share group of others", "DescribeShareGroupOffsets", 0,
                        array(text(group) + NONE + NO_TAGS), error_at=4 + 1 + 1 + len(group) + 1),
        written_request("changing offsets of a share group of others", "AlterShareGroupOffsets", 0,
                        text(group) + array(text(gone) + array(i32(0) + i64(0) + NO_TAGS) + NO_TAGS)),
        written_request("deleting offsets of a share group of others", "DeleteShareGroupOffsets", 0,
                        text(group) + array(text(gone) + NO_TAGS)),
    ]  # fmt: skip
    return [*(schema_request(*one) for one in by_schema), *written]


def listings() -> list[Request]:
    """Return requests that list the resources the requesting user may see."""
    return [
        schema_request("listing topics", "Metadata", 9, {
            "topics": None, "allow_auto_topic_creation": False, "include_cluster_authorized_operations": True,
            "include_topic_authorized_operations": True}),
        schema_request("listing groups", "ListGroups", 4, {"states_filter": []}),
        schema_request("listing transactions", "ListTransactions", 0, {
            "state_filters": [], "producer_id_filters": []}),
        schema_request("asking for the cluster", "DescribeCluster", 0, {
            "include_cluster_authorized_operations": True}),
    ]  # fmt: skip


async def advertised(connection: Connection) -> dict[int, str]:
    """Return the API keys that a broker advertises."""
    request = schema_request("versions", "ApiVersions", 0, {})
    answer = await request.ask(connection)
    keys = (cast("int", one["api_key"]) for one in answer.told["api_keys"])
    return {key: ApiKey(key).name for key in keys}
