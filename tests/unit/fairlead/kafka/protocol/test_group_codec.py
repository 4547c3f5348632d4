"""The requests of group membership, byte for byte against kafka-python's."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.admin.groups import ListGroupsRequest, ListGroupsResponse
from kafka.protocol.consumer.group import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kafka.protocol.metadata.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

from fairlead.kafka.protocol.group_codec import (
    coordinator_request,
    heartbeat_request,
    join_request,
    leave_request,
    list_groups_request,
    sync_request,
)
from tests.support.kafka.oracle import I16, I32, NAMES, TEXT, read, same

BYTES = st.binary(max_size=40)
MEMBERS = st.dictionaries(NAMES, BYTES, max_size=3)


def made(kind: Any, version: int, **fields: Any) -> Any:
    return kind(version=version, **fields)


@given(NAMES)
def test_the_coordinator_is_asked_for(group: str) -> None:
    same(coordinator_request(group), made(FindCoordinatorRequest, 3, key=group, key_type=0))


@given(I16, I32, NAMES, TEXT)
def test_the_coordinator_is_named(code: int, node: int, host: str, message: str | None) -> None:
    answer = made(
        FindCoordinatorResponse,
        3,
        throttle_time_ms=1,
        error_code=code,
        error_message=message,
        node_id=node,
        host=host,
        port=9092,
    )
    assert read(coordinator_request("g"), answer) == (code, node)


@given(NAMES, NAMES, NAMES, BYTES, I32, I32)
def test_a_member_joins(group: str, member: str, protocol: str, metadata: bytes, session: int, rebalance: int) -> None:
    kind = JoinGroupRequest
    name = kind.JoinGroupRequestProtocol(version=7, name=protocol, metadata=metadata)
    oracle = made(
        kind,
        7,
        group_id=group,
        session_timeout_ms=session,
        rebalance_timeout_ms=rebalance,
        member_id=member,
        group_instance_id=None,
        protocol_type="kind",
        protocols=[name],
    )
    asked = join_request(
        group,
        kind="kind",
        protocol=protocol,
        metadata=metadata,
        member_id=member,
        session_ms=session,
        rebalance_ms=rebalance,
    )
    same(asked, oracle)


@given(I16, I32, NAMES, NAMES, TEXT, MEMBERS)
def test_the_answer_to_a_join(
    code: int, generation: int, leader: str, me: str, name: str | None, members: dict[str, bytes]
) -> None:
    kind = JoinGroupResponse
    answer = made(
        kind,
        7,
        throttle_time_ms=0,
        error_code=code,
        generation_id=generation,
        protocol_type=name,
        protocol_name=name,
        leader=leader,
        member_id=me,
        members=[
            kind.JoinGroupResponseMember(version=7, member_id=member, group_instance_id=name, metadata=metadata)
            for member, metadata in members.items()
        ],
    )
    asked = join_request("g", kind="k", protocol="p", metadata=b"", member_id="", session_ms=1, rebalance_ms=1)
    assert read(asked, answer) == (code, generation, leader, me, members)


@given(NAMES, NAMES, I32, MEMBERS)
def test_the_leader_shares_out(group: str, member: str, generation: int, given_out: dict[str, bytes]) -> None:
    kind = SyncGroupRequest
    oracle = made(
        kind,
        5,
        group_id=group,
        generation_id=generation,
        member_id=member,
        group_instance_id=None,
        protocol_type="k",
        protocol_name="p",
        assignments=[
            kind.SyncGroupRequestAssignment(version=5, member_id=each, assignment=what)
            for each, what in given_out.items()
        ],
    )
    same(
        sync_request(group, generation=generation, member_id=member, kind="k", protocol="p", assignments=given_out),
        oracle,
    )


@given(I16, TEXT, BYTES)
def test_what_a_member_gets(code: int, name: str | None, assignment: bytes) -> None:
    answer = made(
        SyncGroupResponse,
        5,
        throttle_time_ms=0,
        error_code=code,
        protocol_type=name,
        protocol_name=name,
        assignment=assignment,
    )
    asked = sync_request("g", generation=1, member_id="m", kind="k", protocol="p", assignments={})
    assert read(asked, answer) == (code, assignment)


@given(NAMES, NAMES, I32, I16)
def test_a_member_stays(group: str, member: str, generation: int, code: int) -> None:
    asked = heartbeat_request(group, generation=generation, member_id=member)
    same(
        asked,
        made(HeartbeatRequest, 4, group_id=group, generation_id=generation, member_id=member, group_instance_id=None),
    )
    assert read(asked, made(HeartbeatResponse, 4, throttle_time_ms=0, error_code=code)) == code


@given(NAMES, NAMES, I16)
def test_a_member_leaves(group: str, member: str, code: int) -> None:
    kind = LeaveGroupRequest
    asked = leave_request(group, member)
    leaving = kind.MemberIdentity(version=4, member_id=member, group_instance_id=None)
    same(asked, made(kind, 4, group_id=group, members=[leaving]))
    assert read(asked, made(LeaveGroupResponse, 4, throttle_time_ms=0, error_code=code, members=[])) == code


@given(I16, st.dictionaries(NAMES, NAMES, max_size=3))
def test_groups_are_listed(code: int, groups: dict[str, str]) -> None:
    asked = list_groups_request()
    same(asked, made(ListGroupsRequest, 4, states_filter=[]))
    kind = ListGroupsResponse
    listed = [
        kind.ListedGroup(version=4, group_id=name, protocol_type="k", group_state=state)
        for name, state in groups.items()
    ]
    assert read(asked, made(kind, 4, throttle_time_ms=0, error_code=code, groups=listed)) == (code, groups)
