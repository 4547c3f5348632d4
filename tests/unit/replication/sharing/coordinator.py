"""A group's coordinator and its members in virtual time. The members are ``rules.Membership``, which ships.

The coordinator follows Kafka's classic protocol: a join waits for the other members, a sync for the leader, and a
member that is not heard of for its session is removed. A coordinator that comes back has what it knew when the group
was stable last.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from fairlead.kafka.protocol.group_codec import Coordinator, Joined, Synced
from replication.sharing.rules import (
    ILLEGAL_GENERATION,
    MEMBER_ID_REQUIRED,
    REBALANCE,
    SESSION_SECONDS,
    UNKNOWN_MEMBER,
    MemberInfo,
    MemberPhase,
    Membership,
    Roster,
)

TICK = 0.25
TIMEOUT = 10.0
Answer = Coordinator | Joined | Synced | int


class Stage(StrEnum):
    EMPTY = "empty"
    PREPARING = "preparing"
    COMPLETING = "completing"
    STABLE = "stable"


@dataclass
class GroupCoordinator:
    """One group's coordinator; ``ask`` returns None while the answer has to wait."""

    now: float = 0.0
    stage: Stage = Stage.EMPTY
    generation: int = 0
    leader: str = ""
    members: dict[str, bytes] = field(default_factory=dict)
    heard: dict[str, float] = field(default_factory=dict)
    joined: set[str] = field(default_factory=set)
    offered: set[str] = field(default_factory=set)  # ids of members that have not joined yet
    roster: Roster | None = None
    began: float = 0.0
    stored: tuple[int, dict[str, bytes], str, Roster] | None = None
    _ids: Iterator[int] = field(default_factory=itertools.count)

    def ask(self, member: Membership, *, is_new: bool) -> Answer | None:
        match member.phase:
            case MemberPhase.SEEK:
                return Coordinator(0, 1)
            case MemberPhase.JOIN:
                return self._join(member, is_new=is_new)
            case MemberPhase.SYNC:
                return self._sync(member)
            case MemberPhase.HEARTBEAT:
                code = self._known(member)
                if not code:
                    self.heard[member.member_id] = self.now
                return code or (REBALANCE if self.stage is Stage.PREPARING else 0)

    def _known(self, member: Membership) -> int:
        if member.member_id not in self.members:
            return UNKNOWN_MEMBER
        return ILLEGAL_GENERATION if member.generation != self.generation else 0

    def _join(self, member: Membership, *, is_new: bool) -> Answer | None:
        me = member.member_id
        if not me:
            self.offered.add(offered := f"m{next(self._ids)}")
            return Joined(MEMBER_ID_REQUIRED, -1, "", offered, {})
        if me not in self.members and me not in self.offered:
            return Joined(UNKNOWN_MEMBER, -1, "", "", {})
        if is_new:
            self.offered.discard(me)
            self.members[me] = msgspec.json.encode(member.info)
            if self.stage is not Stage.PREPARING:
                self._prepare()
            self.joined.add(me)
        if self.stage is Stage.PREPARING:
            return None
        members = dict(self.members) if self.leader == me else {}
        return Joined(0, self.generation, self.leader, me, members)

    def _sync(self, member: Membership) -> Answer | None:
        if code := self._known(member):
            return Synced(code, b"")
        if self.stage is Stage.PREPARING:
            return Synced(REBALANCE, b"")
        self.heard[member.member_id] = self.now
        if self.stage is Stage.COMPLETING and member.member_id == self.leader:
            assert member.given is not None
            self.roster, self.stage = member.given, Stage.STABLE
            self.stored = self.generation, dict(self.members), self.leader, self.roster
        return None if self.stage is Stage.COMPLETING else Synced(0, msgspec.json.encode(self.roster))

    def _prepare(self) -> None:
        self.stage, self.joined, self.began = Stage.PREPARING, set(), self.now

    def advance(self, now: float) -> None:
        """Remove members that were not heard of, and complete the joining."""
        self.now = now
        for each in [each for each in self.members if now - self.heard.get(each, now) > SESSION_SECONDS]:
            if not (self.stage is Stage.PREPARING and each in self.joined):
                self.leave(each)
        waiting = self.members.keys() - self.joined
        if self.stage is Stage.PREPARING and (not waiting or now - self.began >= SESSION_SECONDS):
            self.members = {each: data for each, data in self.members.items() if each in self.joined}
            if not self.members:
                self.stage = Stage.EMPTY
                return
            self.generation += 1
            self.leader = self.leader if self.leader in self.members else min(self.members)
            self.stage, self.heard = Stage.COMPLETING, dict.fromkeys(self.members, now)

    def leave(self, member: str) -> None:
        if self.members.pop(member, None) is not None:
            self.joined.discard(member)
            if not self.members:
                self.stage = Stage.EMPTY
            elif self.stage is not Stage.PREPARING:
                self._prepare()

    def come_back(self, now: float) -> None:
        """Become another broker's, which reads what was stored last."""
        self.now = now
        self.offered.clear()
        if self.stored is None:
            self.members, self.stage = {}, Stage.EMPTY
            return
        self.generation, members, self.leader, self.roster = self.stored
        self.members, self.stage = dict(members), Stage.STABLE
        self.heard = dict.fromkeys(self.members, self.now)

    def forget(self) -> None:
        """Lose everything, as with the disk of the only broker that has it."""
        self.members, self.stage, self.generation, self.stored = {}, Stage.EMPTY, 0, None
        self.offered.clear()


@dataclass
class Process:
    """One member's process. ``asked_at``: when the request under way was sent; None before it is."""

    member: Membership
    due: float = 0.0
    asked_at: float | None = None
    is_hung: bool = False


@dataclass
class Site:
    """Members that come and go, and their coordinator, which may be away."""

    coordinator: GroupCoordinator = field(default_factory=GroupCoordinator)
    processes: dict[int, Process] = field(default_factory=dict)
    now: float = 0.0
    is_away: bool = False
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def start(self) -> int:
        number = next(self._numbers)
        self.processes[number] = Process(Membership("g", MemberInfo(f"p{number}")), due=self.now)
        return number

    def kill(self, number: int) -> None:
        del self.processes[number]

    def stop(self, number: int) -> None:
        self.coordinator.leave(self.processes.pop(number).member.member_id)

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now += TICK
            if not self.is_away:
                self.coordinator.advance(self.now)
            for process in self.processes.values():
                if not process.is_hung:
                    self._step(process)
            self.check()

    def _step(self, process: Process) -> None:
        is_new = process.asked_at is None
        if is_new:
            if process.due > self.now:
                return
            process.asked_at = self.now
        answer = None if self.is_away else self.coordinator.ask(process.member, is_new=is_new)
        assert process.asked_at is not None
        if answer is not None:
            process.member = process.member.answered(answer)
        elif self.is_away or self.now - process.asked_at > TIMEOUT:
            process.member = process.member.failed("no answer")
        else:
            return
        process.asked_at, process.due = None, self.now + process.member.wait

    def check(self) -> None:
        """Check what must always hold."""
        lists: dict[tuple[int, str], Roster] = {}  # a coordinator that has lost everything counts from 1 again
        for process in self.processes.values():
            member = process.member
            if member.roster is not None and not self.is_away and self.coordinator.stored is not None:
                assert member.roster.leader in member.roster.members
                key = member.roster_generation, member.roster.leader
                assert lists.setdefault(key, member.roster) == member.roster

    def live(self) -> Mapping[int, Membership]:
        return {number: each.member for number, each in self.processes.items() if not each.is_hung}
