"""Copy committed offsets of the consumer groups that a link selects.

Every few seconds a round reads both ends, decides with ``replication.groups.rules`` and commits at the target. Only the
last round's result is kept; a restart begins with a first round.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from fairlead.errors import FairleadError
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.endpoint import Endpoint, KafkaEndpoint, current
from fairlead.kafka.protocol.types import TopicPartition
from replication.groups.client import GroupClient
from replication.groups.rules import (
    REASON,
    Commit,
    CommitDecision,
    GroupLogState,
    ReplicaBounds,
    SeenCommit,
    decide_commit,
    probe_name,
    select_groups,
    summarize_states,
    unmatched_patterns,
)
from replication.states import ELSEWHERE, now
from topologies.model import Link

log = logging.getLogger(__name__)

AT_ONCE: Final = 8  # groups read at the same time
SHARE: Final = 4.0  # pauses at least this many times as long as a round took
SHOWN: Final = 20  # logs of a group that are shown one by one
REQUEST_TIMEOUT: Final = 10.0
LOOK_SECONDS: Final = 1.0


@dataclass(slots=True)
class Following:
    """One group after the last round."""

    seen: dict[TopicPartition, SeenCommit] = field(default_factory=dict)
    states: dict[TopicPartition, GroupLogState] = field(default_factory=dict)
    refusals: Counter[str] = field(default_factory=Counter)
    behind: int = 0
    copied_at: dt.datetime | None = None
    trouble: str = ""

    def as_json(self) -> dict[str, Any]:
        copied, reason = summarize_states(self.states.values())
        if self.refusals:
            reason += " (" + ", ".join(f"{name}: {count}" for name, count in sorted(self.refusals.items())) + ")"
        special = [(tp, state) for tp, state in self.states.items() if REASON[state]]
        return {
            "state": "copied" if copied and not self.trouble else "skipped",
            "reason": self.trouble or reason,
            "copied_at": _iso(self.copied_at),
            "behind": self.behind,
            "logs": len(self.states),
            "not_plain": {str(tp): str(state) for tp, state in sorted(special)[:SHOWN]},
        }


class GroupSync:
    """The groups of one link.

    Args:
        link: Its ``groups`` are the patterns.
        source: Returns the source's Kafka as user ``replicator.<target>``; called for every connection.
        target: The target's Kafka as user ``replicator``; a callable is called for every connection.
        carries: Whether offsets of a topic are copied: those of every log in the link's streams, also of logs that the
            target holds itself, so that a group that comes home brings its position.
        origins: The sites whose positions the source may have.
        is_mine: Whether this process copies them; another one does while it does not.
        interval: Least seconds between two rounds.
    """

    def __init__(
        self,
        link: Link,
        source: Callable[[], KafkaEndpoint],
        target: Endpoint,
        *,
        carries: Callable[[str], bool],
        origins: Collection[str],
        is_mine: Callable[[], bool] = lambda: True,
        interval: float = 15.0,
    ) -> None:
        self._link = link
        self._source = source
        self._target = target
        self._carries = carries
        self._origins = origins
        self._is_mine = is_mine
        self._interval = interval
        self._on_bytes: Callable[[int], None] | None = None
        self._from: GroupClient | None = None
        self._to: GroupClient | None = None
        self._logs: Cluster | None = None
        self._groups: dict[str, Following] = {}
        self._unmatched: list[str] = []
        self._state = "connecting"
        self._since = now()
        self._cause = ""
        self._looked_at: dt.datetime | None = None

    async def run(self, on_bytes: Callable[[int], None] | None = None) -> None:
        """Copy until cancelled. Calls ``on_bytes`` with the bytes that rounds take on the link.

        Failures are shown, logged and retried. May be called again, for example after a link was closed; the result of
        the last round is kept.
        """
        self._on_bytes = on_bytes
        try:
            while True:
                began, pause = time.monotonic(), self._interval
                if not self._is_mine():
                    await self._rest()
                    continue
                try:
                    await self.sync_once()
                    pause = max(pause, SHARE * (time.monotonic() - began))
                    if self._from is not None:
                        await self._from.flush_counts()
                except FairleadError as error:
                    self._set_state("unavailable", error.what)
                    await self.close()
                await asyncio.sleep(pause)
        finally:
            await self.close()

    async def _rest(self) -> None:
        """Wait a moment, because another process copies the groups; it starts with a first round, and so will this."""
        if self._state != ELSEWHERE:
            self._set_state(ELSEWHERE, "")
            self._groups.clear()
            self._unmatched = []
            await self.close()
        await asyncio.sleep(LOOK_SECONDS)

    async def sync_once(self) -> None:
        """Run one round.

        Raises:
            FairleadError: an end cannot be asked; trouble of single groups is only shown.
        """
        source, target, logs = await self._connect()
        there, here = await source.groups(), await target.groups()
        chosen = select_groups(self._link.groups, there.active)
        self._unmatched = unmatched_patterns(self._link.groups, there.active)
        if not there.errors:  # with errors, a group that is not listed may still be there
            for gone in self._groups.keys() - set(chosen):
                del self._groups[gone]
        permitted = await self._permitted(source)
        commits = await self._commits(source, chosen)
        bounds = await _bounds(logs, {tp for some in commits.values() for tp in some})
        await _each(
            commits, lambda group: self._follow(target, group, commits[group], bounds, here.active.get(group, False))
        )
        self._looked_at = now()
        partly = ", ".join(f"{self._link.from_}: {name}" for name in there.errors)
        cause = "; ".join(filter(None, (permitted, f"not all groups are shown ({partly})" if partly else "")))
        self._set_state("up", cause)

    async def _connect(self) -> tuple[GroupClient, GroupClient, Cluster]:
        if self._logs is None:
            client = f"fairlead-groups.{self._link.to}"
            self._logs = await Cluster.open(self._target, client_id=client, request_timeout=REQUEST_TIMEOUT)
        if self._from is None:
            self._from = await asyncio.to_thread(GroupClient, self._source(), on_bytes=_on_loop(self._on_bytes))
        if self._to is None:
            self._to = await asyncio.to_thread(GroupClient, current(self._target))
        return self._from, self._to, self._logs

    async def close(self) -> None:
        """Close all connections; the next round opens new ones."""
        self._from = self._to = None
        if self._logs is not None:
            logs, self._logs = self._logs, None
            await logs.close()

    async def _permitted(self, source: GroupClient) -> str:
        """Return the rights that are missing for patterns without a group; empty if there is just no such group."""
        try:
            for pattern in self._unmatched:
                await source.offsets(probe_name(pattern))
        except FairleadError as trouble:
            return trouble.what
        return ""

    async def _commits(self, source: GroupClient, groups: Collection[str]) -> dict[str, dict[TopicPartition, Commit]]:
        """Return the commits of each group in logs of the link; groups without any are left out."""
        found: dict[str, dict[TopicPartition, Commit]] = {}

        async def ask(group: str) -> None:
            try:
                committed = await source.offsets(group)
            except FairleadError as trouble:
                self._set_trouble(group, trouble)
                return
            carried = {tp: commit for tp, commit in committed.items() if self._carries(tp.topic)}
            if carried:
                found[group] = carried
            else:
                self._groups.pop(group, None)

        await _each(groups, ask)
        return found

    async def _follow(
        self,
        target: GroupClient,
        group: str,
        commits: Mapping[TopicPartition, Commit],
        bounds: Mapping[TopicPartition, ReplicaBounds],
        active: bool,
    ) -> None:
        """Copy one group's offsets. Commits right after reading, since a consumer's commit in between would be
        overwritten unless the consumer is still a member."""
        following = self._groups.setdefault(group, Following())
        try:
            committed = await target.offsets(group)
            link, now_ms = (self._link.from_, self._link.to), time.time_ns() // 1_000_000
            verdicts: dict[TopicPartition, CommitDecision] = {
                tp: decide_commit(
                    commit,
                    committed.get(tp),
                    bounds.get(tp),
                    following.seen.get(tp),
                    link=link,
                    origins=self._origins,
                    active=active,
                    now_ms=now_ms,
                )
                for tp, commit in commits.items()
            }
            writes = {tp: verdict.write for tp, verdict in verdicts.items() if verdict.write is not None}
            refused = await target.commit(group, writes) if writes else {}
        except FairleadError as trouble:
            self._set_trouble(group, trouble)
            return
        if len(writes) > len(refused):
            following.copied_at = now()
        following.trouble = ""
        following.seen = {tp: verdict.seen for tp, verdict in verdicts.items() if verdict.seen is not None}
        following.states = {tp: verdict.state for tp, verdict in verdicts.items()}
        following.behind = sum(verdict.behind for verdict in verdicts.values())
        following.refusals = Counter(refusal.name for refusal in refused.values() if not refusal.by_members)
        for tp, refusal in refused.items():
            stands = committed[tp].offset if tp in committed else bounds[tp].start
            following.behind += max(0, writes[tp].offset - stands)
            following.states[tp] = GroupLogState.ACTIVE if refusal.by_members else GroupLogState.REFUSED
            if refusal.by_members and tp in following.seen:
                following.seen[tp] = following.seen[tp]._replace(due=False)  # what they commit is later

    def _set_trouble(self, group: str, trouble: FairleadError) -> None:
        following = self._groups.setdefault(group, Following())
        if following.trouble != trouble.what:
            log.warning("%s: group %s: %s", self._link.name, group, trouble.what)
        following.trouble = trouble.what

    def _set_state(self, state: str, cause: str) -> None:
        if (state, cause) != (self._state, self._cause):
            if cause:
                log.warning("%s: groups: %s", self._link.name, cause)
            self._state, self._cause, self._since = state, cause, now()

    def snapshot(self) -> dict[str, Any]:
        """Return JSON-ready values.

        ``state`` (connecting, up, unavailable; elsewhere: the leader of the replicators' group copies them) with
        ``since`` and ``cause``; ``looked_at``; ``unmatched``, the patterns without a group; ``groups`` by name:
        ``state`` (copied or skipped), ``reason``, ``copied_at`` (the last commit here), ``behind`` (records that
        consumers moved here would read again), ``logs`` (their number), ``not_plain`` (logs in special states).
        """
        return {
            "link": self._link.name,
            "state": self._state,
            "since": _iso(self._since),
            "cause": self._cause,
            "looked_at": _iso(self._looked_at),
            "unmatched": list(self._unmatched),
            "groups": {group: self._groups[group].as_json() for group in sorted(self._groups)},
        }


async def _bounds(logs: Cluster, wanted: Collection[TopicPartition]) -> dict[TopicPartition, ReplicaBounds]:
    """Return the first and end offset of the wanted logs that exist at the target."""
    if not wanted:
        return {}
    known = await logs.topics({tp.topic for tp in wanted}, refresh=True)
    here = [tp for tp in wanted if tp.topic in known and tp.partition in known[tp.topic].partitions]
    starts, ends = await logs.start_offsets(here), await logs.end_offsets(here)
    found: dict[TopicPartition, ReplicaBounds] = {}
    for tp in here:
        start, end = starts[tp], ends[tp]
        if isinstance(start, int) and isinstance(end, int):
            found[tp] = ReplicaBounds(min(start, end), end)
    return found


async def _each(groups: Collection[str], work: Callable[[str], Any]) -> None:
    """Run ``work`` for every group, a few at a time; stop at the first error."""
    names = iter(groups)

    async def worker() -> None:
        for group in names:
            await work(group)

    workers = [asyncio.ensure_future(worker()) for _ in range(min(AT_ONCE, len(groups)))]
    try:
        await asyncio.gather(*workers)
    finally:
        for each in workers:
            each.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


def _iso(moment: dt.datetime | None) -> str | None:
    return moment.isoformat(timespec="milliseconds") if moment else None


def _on_loop(on_bytes: Callable[[int], None] | None) -> Callable[[int], object] | None:
    """Return a function that any thread may call to have ``on_bytes`` called in this event loop."""
    if on_bytes is None:
        return None
    loop = asyncio.get_running_loop()
    return lambda count: loop.call_soon_threadsafe(on_bytes, count)
