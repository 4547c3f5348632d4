"""Divide a site's logs among the members of a group, and decide what a member asks the group's coordinator next. Pure.

Membership is Kafka's own: the members join a group at the target's coordinator. It removes a member that it has not
heard of for ``SESSION_SECONDS`` by its own clock, and tells the others at their next heartbeat. The group's leader
sends every member the same list of members. Who follows a log is computed from that list and the log's name alone
(``Division``), so members with the same list agree.

Two members may follow one log for a moment: while a list is on its way, or while a removed member has not noticed yet.
That does no harm, because an append is accepted only at the offset that it has at the source
(docs/append-convention.md). So a member goes on with its last list while the coordinator does not answer, and follows
nothing only after the coordinator has said that it is not a member any more.
"""

from __future__ import annotations

import functools
import hashlib
import zlib
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, NamedTuple

import msgspec

from fairlead.kafka.protocol.coding import Question
from fairlead.kafka.protocol.errors import NAMES, UNKNOWN
from fairlead.kafka.protocol.group_codec import (
    Coordinator,
    Joined,
    Synced,
    coordinator_request,
    heartbeat_request,
    join_request,
    sync_request,
)
from fairlead.kafka.protocol.types import TopicPartition
from replication.states import MemberState
from topologies.users import REPLICATOR_GROUPS

KIND: Final = "fairlead-replicator"
PROTOCOL: Final = "fairlead-1"  # another name for another meaning of metadata, lists or division
SESSION_SECONDS: Final = 6.0  # the least that a broker allows by default (group.min.session.timeout.ms)
HEARTBEAT_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 5.0  # after a refusal
BACKOFF: Final = (0.25, 0.5, 1.0)
SLOTS: Final = 4096


def group_id(name: str) -> str:
    """Return the Kafka group of the replicators that share a site's logs under this name."""
    return REPLICATOR_GROUPS + name


# ---- the division


class Division(NamedTuple):
    """Which member follows which log. Every log has one of ``SLOTS`` slots, every slot an owner."""

    owners: tuple[str, ...]

    def owner(self, tp: TopicPartition) -> str:
        """Return the id of the member that follows a log."""
        return self.owners[zlib.crc32(str(tp).encode()) % SLOTS]


@functools.lru_cache(maxsize=64)
def divide(members: frozenset[str]) -> Division:
    """Divide all logs among members, by rendezvous hashing: with a member that comes or goes, only its logs move."""

    def weight(member: str, slot: int) -> bytes:
        return hashlib.blake2b(
            slot.to_bytes(4, "big"), digest_size=8, key=hashlib.sha256(member.encode()).digest()
        ).digest()

    return Division(tuple(max(members, key=lambda member: (weight(member, slot), member)) for slot in range(SLOTS)))


class MemberInfo(msgspec.Struct, frozen=True):
    """What a member says about itself.

    Args:
        name: How people see it: host and process id.
        release: Of Fairlead.
        links: A digest of the links that its topology has to the site.
    """

    name: str
    release: str = ""
    links: str = ""


class Roster(msgspec.Struct, frozen=True):
    """The list of members that the leader sends to each of them."""

    leader: str
    members: dict[str, MemberInfo]


_info: Final = msgspec.json.Decoder(MemberInfo)
_roster: Final = msgspec.json.Decoder(Roster)


class WorkShare:
    """What this process does of a site's work: everything (``group`` False), or what its group's list gives it."""

    def __init__(self, *, group: bool) -> None:
        self.is_shared = group
        self.roster: Roster | None = None
        self.me = ""
        self.changes = 0  # of the list so far
        self._division: Division | None = None
        self._ended: deque[tuple[float, Division | None, str]] = deque()  # earlier divisions, with their ends

    @property
    def members(self) -> int:
        """How many processes share the site's work; 1 while this one has no share."""
        return len(self.roster.members) if self.roster is not None else 1

    @property
    def leads(self) -> bool:
        """Whether this process does what one process of a site does."""
        return not self.is_shared or (self.roster is not None and self.roster.leader == self.me)

    def owns(self, tp: TopicPartition) -> bool:
        """Return whether this process follows a log."""
        return not self.is_shared or _owns(self._division, self.me, tp)

    def owned_since(self, tp: TopicPartition, moment: float) -> bool:
        """Return whether this process has followed a log since ``moment`` without a break (seconds, monotonic, at most
        ``REMEMBERED`` back)."""
        return self.owns(tp) and (
            not self.is_shared or all(_owns(division, me, tp) for ended, division, me in self._ended if ended > moment)
        )

    def counts(self, logs: Collection[TopicPartition]) -> dict[str, int]:
        """Return how many of these logs each member has, by its id."""
        found = dict.fromkeys(self.roster.members if self.roster is not None else (), 0)
        if self._division is not None:
            for tp in logs:
                found[self._division.owner(tp)] += 1
        return found

    def update(self, roster: Roster | None, me: str, now: float) -> bool:
        """Set the list and this member's id in it; False if neither has changed."""
        if (roster, me) == (self.roster, self.me):
            return False
        self._ended.append((now, self._division, self.me))
        while self._ended and self._ended[0][0] < now - REMEMBERED:
            self._ended.popleft()
        self.roster, self.me = roster, me
        self._division = divide(frozenset(roster.members)) if roster is not None else None
        self.changes += 1
        return True


REMEMBERED: Final = 600.0  # seconds


def _owns(division: Division | None, me: str, tp: TopicPartition) -> bool:
    return division is not None and division.owner(tp) == me


# ---- the member


class MemberPhase(StrEnum):
    """What a member asks next."""

    SEEK = "seek"  # the coordinator, from any broker
    JOIN = "join"
    SYNC = "sync"
    HEARTBEAT = "heartbeat"


COORDINATOR_LOADING: Final = 14
COORDINATOR_ELSEWHERE: Final = (15, 16)
ILLEGAL_GENERATION: Final = 22
INCONSISTENT_PROTOCOL: Final = 23
UNKNOWN_MEMBER: Final = 25
REBALANCE: Final = 27
NOT_AUTHORIZED: Final = 30
MEMBER_ID_REQUIRED: Final = 79

_REFUSALS: Final = {
    24: "the broker does not accept the group's name",
    26: f"the target's brokers do not allow a session of {SESSION_SECONDS:.0f} s: set group.min.session.timeout.ms to "
    "6000 or less and group.max.session.timeout.ms to 6000 or more",
    NOT_AUTHORIZED: "the replicator's user has no READ on the group: run 'fairlead acl apply'",
    81: "the group is full: raise the target's group.max.size",
}


@dataclass(frozen=True, slots=True)
class Membership:
    """One member's state. Send ``question()`` after ``wait`` seconds, then call ``answered`` or ``failed``.

    Args:
        info: What the member says about itself.
        node: The coordinator, as far as it is known.
        generation: Of the group, as joined last; -1 outside.
        roster: The list that applies, with ``roster_generation``; None while the member has no share.
        given: What this member, as the leader, sends to the others in the next ``SYNC``.
    """

    group: str
    info: MemberInfo
    phase: MemberPhase = MemberPhase.SEEK
    wait: float = 0.0
    node: int = -1
    member_id: str = ""
    generation: int = -1
    roster: Roster | None = None
    roster_generation: int = -1
    given: Roster | None = None
    state: MemberState = MemberState.JOINING
    cause: str = ""
    failures: int = 0

    def question(self) -> Question[Any]:
        """Return the request to send: to any broker in ``SEEK``, else to ``node``."""
        match self.phase:
            case MemberPhase.SEEK:
                return coordinator_request(self.group)
            case MemberPhase.JOIN:
                return join_request(
                    self.group,
                    kind=KIND,
                    protocol=PROTOCOL,
                    metadata=msgspec.json.encode(self.info),
                    member_id=self.member_id,
                    session_ms=int(SESSION_SECONDS * 1000),
                    rebalance_ms=int(SESSION_SECONDS * 1000),
                )
            case MemberPhase.SYNC:
                roster = msgspec.json.encode(self.given) if self.given is not None else b""
                return sync_request(
                    self.group,
                    generation=self.generation,
                    member_id=self.member_id,
                    kind=KIND,
                    protocol=PROTOCOL,
                    assignments=dict.fromkeys(self.given.members if self.given is not None else (), roster),
                )
            case MemberPhase.HEARTBEAT:
                return heartbeat_request(self.group, generation=self.generation, member_id=self.member_id)

    def answered(self, answer: Coordinator | Joined | Synced | int) -> Membership:
        """Return the state after the coordinator's answer to ``question``."""
        code = answer if isinstance(answer, int) else answer.error_code
        if code:
            return self._on_error(code, answer)
        match answer:
            case Coordinator():
                is_current = self.roster is not None and self.roster_generation == self.generation
                phase = MemberPhase.HEARTBEAT if is_current else MemberPhase.JOIN
                return replace(self, phase=phase, node=answer.node, wait=0.0)
            case Joined():
                given = _list(answer) if answer.leader == answer.member_id else None
                return replace(
                    self,
                    phase=MemberPhase.SYNC,
                    wait=0.0,
                    member_id=answer.member_id,
                    generation=answer.generation,
                    given=given,
                )
            case Synced():
                return self._on_list(answer.assignment)
            case _:
                return self._well()

    def failed(self, cause: str, *, refused: bool = False) -> Membership:
        """Return the state after a request without an answer; ``refused``: the login was refused."""
        state = MemberState.REFUSED if refused else MemberState.UNAVAILABLE
        return self._again(state, cause, MemberPhase.SEEK)

    # ---- answers

    def _well(self) -> Membership:
        return replace(
            self, phase=MemberPhase.HEARTBEAT, wait=HEARTBEAT_SECONDS, state=MemberState.MEMBER, cause="", failures=0
        )

    def _on_list(self, data: bytes) -> Membership:
        try:
            roster = _roster.decode(data)
        except msgspec.MsgspecError:
            roster = None
        if roster is None or self.member_id not in roster.members or roster.leader not in roster.members:
            cause = "the group's leader sent no list of members that this release can read"
            return replace(self._again(MemberState.INCOMPATIBLE, cause, MemberPhase.JOIN), roster=None)
        return replace(self._well(), roster=roster, roster_generation=self.generation, given=None)

    def _on_error(self, code: int, answer: object) -> Membership:
        name = NAMES.get(code, UNKNOWN)
        if code == MEMBER_ID_REQUIRED and isinstance(answer, Joined):
            return replace(self, member_id=answer.member_id, wait=0.0)
        if code in (REBALANCE, ILLEGAL_GENERATION):
            return replace(self, phase=MemberPhase.JOIN, wait=0.0, given=None)
        if code == UNKNOWN_MEMBER:  # others follow this member's logs now
            return replace(
                self,
                phase=MemberPhase.JOIN,
                wait=0.0,
                member_id="",
                generation=-1,
                roster=None,
                given=None,
                state=MemberState.JOINING,
                cause="the coordinator had not heard of this member in time, and removed it",
            )
        if code == COORDINATOR_LOADING:
            return self._again(MemberState.UNAVAILABLE, f"the coordinator is loading its groups ({name})", self.phase)
        if code in COORDINATOR_ELSEWHERE:
            cause = f"the group has no coordinator yet, or it moves ({name})"
            return self._again(MemberState.UNAVAILABLE, cause, MemberPhase.SEEK)
        if code == INCONSISTENT_PROTOCOL:
            cause = (
                "the group's members are of a release that divides logs in another way, or no replicators; stop them, "
                "or use another --group"
            )
            refused = self._again(MemberState.INCOMPATIBLE, cause, MemberPhase.JOIN)
            return replace(refused, roster=None, member_id="", generation=-1)
        return self._again(
            MemberState.REFUSED, f"{_REFUSALS.get(code, 'the coordinator refuses')} ({name})", MemberPhase.SEEK
        )

    def _again(self, state: MemberState, cause: str, phase: MemberPhase) -> Membership:
        is_passing = state is MemberState.UNAVAILABLE
        wait = BACKOFF[min(self.failures, len(BACKOFF) - 1)] if is_passing else RETRY_SECONDS
        return replace(self, phase=phase, wait=wait, state=state, cause=cause, failures=self.failures + 1, given=None)


def _list(joined: Joined) -> Roster:
    """Return the list that the leader sends to all members."""
    return Roster(joined.leader, {member: _info_of(member, data) for member, data in joined.members.items()})


def _info_of(member: str, data: bytes) -> MemberInfo:
    try:
        return _info.decode(data)
    except msgspec.MsgspecError:
        return MemberInfo(member)


def warning(group: str, roster: Roster | None, groups: Mapping[str, str]) -> str:
    """Return what is wrong with a group that works; empty if nothing is.

    Args:
        groups: The groups that the target's brokers have, with their states.
    """
    found = []
    if roster is not None and len({each.links for each in roster.members.values()}) > 1:
        some = ", ".join(f"{each.name} (release {each.release})" for each in roster.members.values())
        found.append(
            "the members have different links to this site, so a log may be followed by nobody; start all of them with "
            f"the same topology: {some}"
        )
    others = sorted(
        each.removeprefix(REPLICATOR_GROUPS)
        for each, state in groups.items()
        if each.startswith(REPLICATOR_GROUPS) and each != group and state not in ("Empty", "Dead")
    )
    if others:
        found.append(
            f"the group {', '.join(others)} copies to this site as well: everything is fetched twice, and stored once; "
            "start all replicators of a site with one --group"
        )
    return "; besides, ".join(found)
