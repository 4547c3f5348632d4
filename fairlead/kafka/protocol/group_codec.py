"""Requests of group membership (the classic protocol): find the coordinator, join, share out, stay, leave, list. Pure.

Members that share one protocol's name form a group. The coordinator, a broker, notices who is gone; the group's leader,
one of the members, decides what each member does. Both are opaque bytes for the broker: what a member says about itself
(``metadata``), and what the leader gives it (``assignment``).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

from fairlead.kafka.protocol.coding import NO_TAGS, FieldReader, Question, blob, count, text
from fairlead.kafka.protocol.versions import (
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    SYNC_GROUP,
)

_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")
_GROUP: Final = b"\0"  # kind of coordinator: a group's, not a transaction's
_NULL: Final = b"\0"  # a compact string or array that is null


class Coordinator(NamedTuple):
    """The broker that keeps a group; ``error_code`` is 0 if there is one."""

    error_code: int
    node: int


class Joined(NamedTuple):
    """The answer to a member that joins. ``members`` (what each says about itself) is empty except for the leader."""

    error_code: int
    generation: int
    leader: str
    member_id: str
    members: Mapping[str, bytes]


class Synced(NamedTuple):
    """What the leader gave to this member."""

    error_code: int
    assignment: bytes


class ListedGroups(NamedTuple):
    """The groups of one broker that the user may see: name to state (``Stable``, ``Empty``, ...)."""

    error_code: int
    groups: Mapping[str, str]


def coordinator_request(group: str) -> Question[Coordinator]:
    """Ask any broker for the group's coordinator."""
    return Question(*FIND_COORDINATOR, text(group) + _GROUP + NO_TAGS, _coordinator)


def join_request(
    group: str,
    *,
    kind: str,
    protocol: str,
    metadata: bytes,
    member_id: str,
    session_ms: int,
    rebalance_ms: int,
) -> Question[Joined]:
    """Join a group, or join it again. The answer comes when all members have joined, after ``rebalance_ms`` at most.

    Args:
        kind: The protocol's type, the same for all members of a group.
        protocol: Its name; a broker refuses a member that has none in common with the others.
        member_id: As the coordinator gave it; empty at first.
        session_ms: A member that is not heard of for so long is removed.
    """
    body = (
        text(group)
        + _I32.pack(session_ms)
        + _I32.pack(rebalance_ms)
        + text(member_id)
        + _NULL  # no static member
        + text(kind)
        + count(1)
        + text(protocol)
        + blob(metadata)
        + NO_TAGS
        + NO_TAGS
    )
    return Question(*JOIN_GROUP, body, _joined)


def sync_request(
    group: str, *, generation: int, member_id: str, kind: str, protocol: str, assignments: Mapping[str, bytes]
) -> Question[Synced]:
    """Get what the leader gives to this member; the leader itself says what each member gets."""
    given = b"".join(text(member) + blob(what) + NO_TAGS for member, what in assignments.items())
    body = (
        text(group)
        + _I32.pack(generation)
        + text(member_id)
        + _NULL
        + text(kind)
        + text(protocol)
        + count(len(assignments))
        + given
        + NO_TAGS
    )
    return Question(*SYNC_GROUP, body, _synced)


def heartbeat_request(group: str, *, generation: int, member_id: str) -> Question[int]:
    """Say that the member is there. The answer is an error code."""
    body = text(group) + _I32.pack(generation) + text(member_id) + _NULL + NO_TAGS
    return Question(*HEARTBEAT, body, _code)


def leave_request(group: str, member_id: str) -> Question[int]:
    """Leave the group, so that nobody waits for the end of the member's session. The answer is an error code."""
    member = text(member_id) + _NULL + NO_TAGS
    return Question(*LEAVE_GROUP, text(group) + count(1) + member + NO_TAGS, _code)


def list_groups_request() -> Question[ListedGroups]:
    """List the groups that one broker coordinates; each broker has others."""
    return Question(*LIST_GROUPS, count(0) + NO_TAGS, _listed)


def _coordinator(body: memoryview) -> Coordinator:
    reader = FieldReader(body)
    reader.unpack(_I32)  # throttle time
    (code,) = reader.unpack(_I16)
    reader.text()  # the broker's words for the error
    (node,) = reader.unpack(_I32)
    return Coordinator(code, node)


def _joined(body: memoryview) -> Joined:
    reader = FieldReader(body)
    reader.unpack(_I32)
    (code,) = reader.unpack(_I16)
    (generation,) = reader.unpack(_I32)
    reader.text()  # the protocol's type
    reader.text()  # and name
    leader, member_id = reader.text() or "", reader.text() or ""
    members: dict[str, bytes] = {}
    for _ in range(reader.count()):
        member = reader.text() or ""
        reader.text()  # the name of a static member
        members[member] = reader.blob() or b""
        reader.tags()
    return Joined(code, generation, leader, member_id, members)


def _synced(body: memoryview) -> Synced:
    reader = FieldReader(body)
    reader.unpack(_I32)
    (code,) = reader.unpack(_I16)
    reader.text()
    reader.text()
    return Synced(code, reader.blob() or b"")


def _code(body: memoryview) -> int:
    reader = FieldReader(body)
    reader.unpack(_I32)
    (code,) = reader.unpack(_I16)
    return int(code)


def _listed(body: memoryview) -> ListedGroups:
    reader = FieldReader(body)
    reader.unpack(_I32)
    (code,) = reader.unpack(_I16)
    groups: dict[str, str] = {}
    for _ in range(reader.count()):
        name = reader.text() or ""
        reader.text()  # the protocol's type
        groups[name] = reader.text() or ""
        reader.tags()
    return ListedGroups(code, groups)
