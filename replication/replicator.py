"""Run one replicator: it runs at one target site and copies over the links that lead there.

It keeps no state of its own: the target's log ends are the checkpoint. So it can be killed at any moment, started
twice, or moved without harm. With a group, several replicators divide the site's logs (``replication.sharing``).
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import gc
import itertools
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from fairlead.errors import FairleadError
from fairlead.home import replace_file
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.endpoint import Endpoint, KafkaEndpoint
from fairlead.kafka.protocol.types import TopicPartition
from replication.catalog import Catalog
from replication.changes import PlanChanges
from replication.custody.ledger import Ledger
from replication.groups.rules import origins_of
from replication.groups.sync import GroupSync
from replication.link.cut_off import SourceRules
from replication.link.source_link import REQUEST_TIMEOUT, SourceLink
from replication.overrides import ORDERS_TOPIC
from replication.plan.planner import Planner
from replication.sharing.member import GroupMember
from replication.sharing.rules import WorkShare
from replication.states import LogTrouble, now, now_ms
from replication.target.appender import TargetAppender
from topologies.model import Topology

log = logging.getLogger(__name__)

MEMORY: Final = 256_000_000
STATUS_SECONDS: Final = 1.0
STATUS_SHARE: Final = 0.1  # of the time may be spent on the status file
STATUS_AT_LEAST: Final = 4.0  # seconds; readers treat a file older than 10 s as abandoned
BACKOFF: Final = (0.25, 0.5, 1.0, 2.0, 4.0)
LEDGER_RETRY: Final = 1.0
GARBAGE: Final = 20_000  # new objects between two garbage collections; batches are many objects without cycles


class Replicator:
    """Keep one site's copies of other sites' logs up to date.

    Args:
        topology: The topology, with the links that lead here.
        site: The target.
        target: Its Kafka, as user ``replicator``; a callable is called at every attempt to connect.
        upstream: Returns another site's Kafka, as user ``replicator.<site>``; called at every attempt to connect.
        status_file: The file for ``snapshot()`` as JSON, written every second, less often with very many logs in
            trouble; None writes nothing.
        memory: Bytes of fetched batches that may wait for the target.
        group: The group of replicators that divide the site's logs; None copies all of them.
    """

    def __init__(
        self,
        topology: Topology,
        site: str,
        target: Endpoint,
        upstream: Callable[[str], KafkaEndpoint],
        *,
        status_file: Path | None = None,
        memory: int = MEMORY,
        group: str | None = None,
    ) -> None:
        self.site = site
        self._target = target
        self._memory = memory
        self._status_file = status_file
        self._started = now()
        self._shown: tuple[dict[str, Any], dict[TopicPartition, LogTrouble]] | None = None
        self._writing: asyncio.Future[None] | None = None
        self._written = 0.0
        self._target_error: str | None = "not connected yet"
        self._target_since = now()
        self._appender: TargetAppender | None = None
        self._changes = PlanChanges()
        self._share = WorkShare(group=group is not None)
        self._member = GroupMember(group, topology, site, self._share, self._on_share) if group is not None else None
        self._ledger = Ledger(topology, site, self._changes)
        catalog = Catalog(topology)
        self._source_links = tuple(
            SourceLink(
                link,
                SourceRules(link, catalog, self._ledger.custody, self._ledger.overrides),
                _bind(upstream, link.from_, topology.sites[site].rack),
                self._changes,
                GroupSync(
                    link,
                    _bind(upstream, link.from_),
                    target,
                    carries=functools.partial(catalog.selects, link),
                    origins=origins_of(topology, link),
                    is_mine=lambda: self._share.leads,
                )
                if link.groups
                else None,
            )
            for link in topology.links_to(site)
        )
        self._planner = Planner(topology, site, catalog, self._ledger, self._source_links, self._changes, self._share)

    async def run(self, stop: asyncio.Event) -> None:
        """Replicate until ``stop`` is set. Retry sites that cannot be reached.

        Raises the process's threshold for garbage collection: with Python's default of 700 new objects, searches took a
        seventh of the CPU.
        """
        often, *others = gc.get_threshold()
        if 0 < often < GARBAGE:  # 0 disables garbage collection
            gc.set_threshold(GARBAGE, *others)
        work = asyncio.ensure_future(self._forever())
        stopping = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            if not work.done():
                work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            if self._writing is not None:
                await asyncio.wait({self._writing})
            await self._write_status()
            if self._member is not None and self._status_file is not None:
                self._status_file.unlink(missing_ok=True)  # a member that has left is no replicator that has stopped
        if not work.cancelled():
            work.result()

    async def _forever(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._report())
            group.create_task(self._with_target())

    async def _with_target(self) -> None:
        async with await self._open_target() as cluster, asyncio.TaskGroup() as group:
            self._ledger.overrides.topic_id_of = cluster.metadata.topic_id
            appender = self._appender = TargetAppender(
                cluster,
                memory=self._memory,
                changes=self._changes,
                limit_of=lambda tp: self._planner.upkeep.limit_of(cluster, tp),
            )
            group.create_task(appender.run())
            group.create_task(self._follow_ledger(cluster))
            group.create_task(self._planner.watch_target(cluster, self._set_target_error))
            group.create_task(self._planner.run(cluster, appender))
            group.create_task(self._planner.survey(appender))
            group.create_task(self._planner.rebuilder.run(cluster, self._changes))
            group.create_task(self._planner.upkeep.keep_retention(cluster, appender))
            group.create_task(self._planner.upkeep.keep_settings(cluster))
            group.create_task(self._planner.upkeep.keep_tidy(cluster, appender.trimmer))
            group.create_task(self._planner.upkeep.keep_closed(cluster, appender))
            if self._member is not None:
                group.create_task(self._member.run(cluster))
            for source_link in self._source_links:
                elsewhere = functools.partial(self._planner.brought_first, appender, source_link.name)
                group.create_task(source_link.run(appender, elsewhere))
            self._changes.add_all()

    def _on_share(self) -> None:
        """Act on a new list of members: their rates, and what is followed."""
        if self._share.roster is not None:
            for source_link in self._source_links:
                source_link.logs.budget.divide(self._share.members, time.monotonic())
        self._changes.add_all()

    async def _open_target(self) -> Cluster:
        """Connect to the target, however long it takes; after that the cluster reconnects by itself."""
        for wait in itertools.chain(BACKOFF, itertools.repeat(BACKOFF[-1])):
            try:
                cluster = await Cluster.open(
                    self._target, client_id=f"fairlead-replicator.{self.site}", request_timeout=REQUEST_TIMEOUT
                )
            except FairleadError as error:
                self._set_target_error(error.what)
                await asyncio.sleep(wait)
            else:
                self._set_target_error(None)
                return cluster
        raise AssertionError("the waits never end")

    async def _follow_ledger(self, cluster: Cluster) -> None:
        while True:
            try:
                await self._ledger.run(cluster)
            except FairleadError as error:
                log.warning("target %s: reading its ledger: %s", self.site, error.what)
            await asyncio.sleep(LEDGER_RETRY)

    def _set_target_error(self, error: str | None) -> None:
        if error != self._target_error:
            if error:
                log.warning("target %s: %s", self.site, error)
            self._target_error, self._target_since = error, now()

    # ---- status

    def snapshot(self) -> dict[str, Any]:
        """Return state and counters as JSON-ready values.

        ``target`` has state, since, cause and certificate_ends (Unix time, null without TLS). ``links`` has one entry
        per link (``SourceLink.snapshot``: records, batches and bytes appended since the start; lag in records, null
        while the link is down), with ``berth``: why a berthed link is open or closed, empty for other links. ``logs``
        has the logs that are not mirrored, by name, with state, cause, since, link and what_to_do.
        ``retention`` says what waits for other sites (``RetentionKeeper.snapshot``). ``group`` has the members that
        share the site's logs (``GroupMember.snapshot``), null without a group; then everything else is this member's.
        """
        return self._snapshot() | {"logs": self._logs_as_json(self._troubles())}

    def _troubles(self) -> dict[TopicPartition, LogTrouble]:
        found = itertools.chain(
            *(self._unserved_of(source_link) for source_link in self._source_links),
            *(source_link.logs.troubles.items() for source_link in self._source_links),
            self._planner.waiting.items(),
            self._appender.troubles() if self._appender else (),
            self._planner.overrides.pauses(),
            self._ledger.unread.items(),
            () if (orders := self._ledger.orders_trouble) is None else ((TopicPartition(ORDERS_TOPIC), orders),),
        )
        return {tp: trouble for tp, trouble in found if self._share.owns(tp)}

    def _unserved_of(self, source_link: SourceLink) -> Iterator[tuple[TopicPartition, LogTrouble]]:
        """Yield the logs that a link's source does not serve, and no other link's does."""
        return ((tp, each) for tp, each in source_link.logs.unserved.items() if not self._planner.is_served(tp))

    def _logs_as_json(self, troubles: Mapping[TopicPartition, LogTrouble]) -> dict[str, Any]:
        return {str(tp): trouble.as_json(str(tp), self.site) for tp, trouble in troubles.items()}

    def _snapshot(self) -> dict[str, Any]:
        """Return the snapshot without the logs."""
        appender = self._appender
        error = self._target_error or (appender.trouble if appender else None)
        return {
            "site": self.site,
            "pid": os.getpid(),
            "at": now().isoformat(timespec="milliseconds"),
            "started": self._started.isoformat(timespec="milliseconds"),
            "target": {
                "state": "unavailable" if error else "up",
                "since": self._target_since.isoformat(timespec="milliseconds"),
                "cause": error or "",
                "certificate_ends": appender.certificate_ends if appender else None,
            },
            "links": [
                {**source_link.snapshot(), "berth": self._ledger.berths.verdict(source_link.link, now_ms()).why}
                for source_link in self._source_links
            ],
            "mirroring": self._planner.mirroring,
            "orders": self._planner.orders_done,
            "released": self._planner.overrides.releases(appender.is_busy) if appender else {},
            "memory": {"queued": appender.queued if appender else 0, "limit": self._memory},
            "last_error": self._planner.last_error,
            "entries_refused": self._ledger.refused,
            "retention": self._planner.upkeep.retention.snapshot(),
            "group": self._group_snapshot(),
        }

    def _group_snapshot(self) -> dict[str, Any] | None:
        if self._member is None:
            return None
        return self._member.snapshot(self._planner.counts)

    async def _report(self) -> None:
        while True:
            began = time.monotonic()
            await self._write_status(at_least=STATUS_AT_LEAST)
            took = time.monotonic() - began
            await asyncio.sleep(min(max(STATUS_SECONDS, took / STATUS_SHARE), STATUS_AT_LEAST))

    async def _write_status(self, *, at_least: float = 0.0) -> None:
        """Write the status file if something changed or the file is ``at_least`` seconds old."""
        if self._status_file is None:
            return
        shown, troubles = self._snapshot(), self._troubles()
        lasting = {**shown, "at": ""}, troubles
        if lasting == self._shown and time.monotonic() - self._written < at_least:
            return
        self._shown, self._written = lasting, time.monotonic()
        self._writing = asyncio.ensure_future(asyncio.to_thread(self._write, self._status_file, shown, troubles))
        await asyncio.shield(self._writing)

    def _write(self, file: Path, shown: dict[str, Any], troubles: Mapping[TopicPartition, LogTrouble]) -> None:
        """Write the status file. Blocks: the troubles of very many logs take seconds."""
        try:
            replace_file(file, msgspec.json.encode(shown | {"logs": self._logs_as_json(troubles)}))
        except OSError as error:
            log.warning("the status file %s cannot be written: %s", file, error)


def _bind(upstream: Callable[[str], KafkaEndpoint], site: str, rack: str = "") -> Callable[[], KafkaEndpoint]:
    return lambda: dataclasses.replace(upstream(site), rack=rack)
