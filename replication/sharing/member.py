"""Be a member of the group that shares a site's logs: send what ``rules.Membership`` asks for, and apply its list."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from fairlead.errors import FairleadError
from fairlead.kafka.client.cluster import CONTROL, Cluster
from fairlead.kafka.protocol.errors import AuthenticationFailed, UnsupportedBroker, WireError
from fairlead.kafka.protocol.group_codec import leave_request, list_groups_request
from fairlead.versions import fairlead_version
from fairlead.waiting import wait_set
from replication.sharing.rules import (
    SESSION_SECONDS,
    MemberInfo,
    MemberPhase,
    Membership,
    WorkShare,
    group_id,
    warning,
)
from replication.states import MemberState, now
from topologies.model import Topology

log = logging.getLogger(__name__)

ROLE: Final = "group"  # a connection of its own: an answer to a join may take seconds, and nothing may wait behind it
ANSWER_SECONDS: Final = {
    MemberPhase.SEEK: 3.0,
    MemberPhase.JOIN: SESSION_SECONDS + 4.0,  # the coordinator waits for the other members
    MemberPhase.SYNC: SESSION_SECONDS + 4.0,  # and for the leader's list
    MemberPhase.HEARTBEAT: 3.0,
}
LEAVE_SECONDS: Final = 2.0
GROUPS_SECONDS: Final = 30.0  # between two looks for other groups of the site


class GroupMember:
    """This process as a member of a group.

    Args:
        share: Gets every new list.
        on_change: Called after ``share`` has changed.
    """

    def __init__(
        self, name: str, topology: Topology, site: str, share: WorkShare, on_change: Callable[[], None]
    ) -> None:
        self._name = name
        self._share = share
        self._on_change = on_change
        info = MemberInfo(f"{socket.gethostname()}:{os.getpid()}", fairlead_version(), _digest(topology, site))
        self._membership = Membership(group_id(name), info)
        self._since = now()
        self._look = asyncio.Event()
        self._groups: Mapping[str, str] = {}  # at the target, as last listed

    async def run(self, cluster: Cluster) -> None:
        """Join the group and stay a member until cancelled; then leave, so that the others take over at once."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._stay(cluster))
                group.create_task(self._look_around(cluster))
        finally:
            with contextlib.suppress(FairleadError, TimeoutError):
                async with asyncio.timeout(LEAVE_SECONDS):
                    await self._leave(cluster)

    async def _stay(self, cluster: Cluster) -> None:
        while True:
            await asyncio.sleep(self._membership.wait)
            self._set(await self._ask(cluster, self._membership))

    async def _ask(self, cluster: Cluster, member: Membership) -> Membership:
        """Send one request; return the state after it."""
        seconds = ANSWER_SECONDS[member.phase]
        try:
            async with asyncio.timeout(seconds + 1.0):  # also for connecting
                if member.phase is MemberPhase.SEEK:
                    connection = await cluster.pool.any(CONTROL)
                else:
                    if member.node not in cluster.metadata.brokers:
                        await cluster.ask_metadata(())
                    connection = await cluster.pool.get(ROLE, member.node)
                answer = await connection.call(member.question(), seconds=seconds)
        except TimeoutError:
            return member.failed(f"the group's coordinator, broker {member.node}, does not answer")
        except (AuthenticationFailed, UnsupportedBroker) as error:
            return member.failed(error.what, refused=True)
        except WireError as error:
            return member.failed(error.what)
        return member.answered(answer)

    def _set(self, new: Membership) -> None:
        old, self._membership = self._membership, new
        if new.state is not old.state:
            self._since = now()
            level = logging.WARNING if new.state in (MemberState.REFUSED, MemberState.INCOMPATIBLE) else logging.INFO
            log.log(level, "group %s: %s%s", self._name, new.state, f": {new.cause}" if new.cause else "")
        me = new.member_id if new.roster is not None else ""
        if self._share.update(new.roster, me, time.monotonic()):
            shown = [each.name for each in new.roster.members.values()] if new.roster is not None else []
            log.info("group %s: members: %s", self._name, ", ".join(sorted(shown)) or "not a member")
            self._look.set()
            self._on_change()

    async def _leave(self, cluster: Cluster) -> None:
        member = self._membership
        if member.member_id and member.node >= 0:
            if member.phase is not MemberPhase.HEARTBEAT:
                cluster.pool.drop(ROLE, member.node)  # the coordinator may hold the answer to a join back
            connection = await cluster.pool.get(ROLE, member.node)
            await connection.call(leave_request(member.group, member.member_id), seconds=LEAVE_SECONDS)

    async def _look_around(self, cluster: Cluster) -> None:
        """List the target's groups from time to time: another group may copy to this site as well."""
        while True:
            found: dict[str, str] = {}
            for node in tuple(cluster.metadata.brokers):
                with contextlib.suppress(FairleadError):  # its groups are seen the next time
                    found |= (await cluster.control(node, list_groups_request())).groups
            before, self._groups = self.warning, found
            if self.warning and self.warning != before:
                log.warning("group %s: %s", self._name, self.warning)
            await wait_set(self._look, GROUPS_SECONDS)
            self._look.clear()

    # ---- status

    @property
    def warning(self) -> str:
        """What is wrong although this process is a member; empty if nothing is."""
        return warning(self._membership.group, self._membership.roster, self._groups)

    def snapshot(self, counts: Mapping[str, int]) -> dict[str, Any]:
        """Return JSON-ready values; ``counts`` is how many logs each member has, by its id.

        ``name``, ``state`` (``MemberState``) with ``since`` and ``cause``, ``warning``, ``me`` (this member's id, null
        outside), and ``members`` by id: ``name`` (host and process id), ``release``, ``leader``, ``logs`` (how many of
        the logs that this member sees).
        """
        member, roster = self._membership, self._membership.roster
        members = roster.members if roster is not None else {}
        leader = roster.leader if roster is not None else ""
        return {
            "name": self._name,
            "state": str(member.state),
            "since": self._since.isoformat(timespec="milliseconds"),
            "cause": member.cause,
            "warning": self.warning,
            "me": member.member_id if roster is not None else None,
            "members": {
                each: {
                    "name": info.name,
                    "release": info.release,
                    "leader": each == leader,
                    "logs": counts.get(each, 0),
                }
                for each, info in members.items()
            },
        }


def _digest(topology: Topology, site: str) -> str:
    links = sorted(link.model_dump_json() for link in topology.links_to(site))
    return hashlib.sha256("\n".join(links).encode()).hexdigest()[:16]
