"""Give link operations access to sites: Kafka as ``admin``, the sites' orders, replicators' status files.

Plans and steps use the protocol ``ClusterAccess``, so tests can use sites in memory. ``append_orders`` blocks: call
it with ``asyncio.to_thread``.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import psutil

from fairlead.errors import RefusedError, UnavailableError
from fairlead.home import is_running, run_folder
from fairlead.kafka.client.reader import extents, sweep
from fairlead.kafka.clusters import Clusters
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.order_topic import TIMEOUT, append_records
from fairlead.kafka.protocol.errors import TOPIC_AUTHORIZATION_FAILED, BrokerError, CorruptBatch, broker_error
from fairlead.kafka.protocol.types import TopicPartition
from fairlead.records import UNREADABLE
from replication.batch.header_rewrite import id_after
from replication.batch.rebuild import fence
from replication.overrides import DAMAGED_HINT, ORDERS_TOPIC, Override, OverrideKind, Overrides, decode, encode
from replication.sharing.snapshots import members_elsewhere, merge_snapshots
from replication.states import LinkState, LogState
from replication.target.appender import AppendMeaning, append_meaning

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Status:
    """The last ``Replicator.snapshot`` of one site's replicator, and whether it still runs.

    Of several that share the site's logs (``replicate --group``), ``snapshot`` is what those on this machine do
    together.
    """

    site: str
    running: bool
    snapshot: Mapping[str, Any] = field(default_factory=dict)
    elsewhere: Sequence[str] = ()  # members of the replicators' group that run on other machines

    def link(self, name: str) -> Mapping[str, Any] | None:
        """Return the snapshot of one of its links; None if the replicator has no such link."""
        return next((each for each in self.snapshot.get("links", ()) if each["name"] == name), None)

    def troubles(self) -> dict[str, Mapping[str, Any]]:
        """Return the logs that are not mirrored, except paused ones."""
        logs: Mapping[str, Mapping[str, Any]] = self.snapshot.get("logs", {})
        return {log: each for log, each in logs.items() if not _is_paused(each)}

    def released(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the logs that were promoted or failed over."""
        found: Mapping[str, Mapping[str, Any]] = self.snapshot.get("released", {})
        return found


def status_file(folder: Path, site: str) -> Path:
    """Return the path of a site's status file below a topology's state folder."""
    return run_folder(folder, site) / f"replicator.{site}.json"


def member_status_file(folder: Path, site: str) -> Path:
    """Return the path of this process's status file, as one of several replicators of a site; delete the files of
    members that have ended on this machine."""
    host = socket.gethostname()
    for file in run_folder(folder, site).glob(f"replicator.{site}.{host}-*.json"):
        pid = file.name.removesuffix(".json").rpartition("-")[2]
        if not pid.isdigit() or not psutil.pid_exists(int(pid)):
            file.unlink(missing_ok=True)
    return run_folder(folder, site) / f"replicator.{site}.{host}-{os.getpid()}.json"


def read_status(folder: Path, site: str) -> Status | None:
    """Read the status of a site's replicators; None if none has ever run on this machine or no file is readable."""
    files = [status_file(folder, site), *sorted(run_folder(folder, site).glob(f"replicator.{site}.*.json"))]
    found = [status for file in files if (status := _read_one(file, site)) is not None]
    running = [each.snapshot for each in found if each.running]
    if not running:
        return max(found, key=lambda each: str(each.snapshot["at"]), default=None)
    merged = merge_snapshots(running)
    return Status(site, True, merged, members_elsewhere(merged, running))


def _read_one(file: Path, site: str) -> Status | None:
    try:
        snapshot: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return Status(site, is_running(int(snapshot["pid"]), snapshot["at"]), snapshot)
    except (OSError, ValueError, KeyError):
        return None


def has_acted(status: Status, orders: Sequence[Override], position: int) -> bool:
    """Return whether a replicator has acted on orders before offset ``position`` of its site's topic.

    ``orders`` in its snapshot is the offset up to which its last plan had read the topic.
    """
    acted_before: int = status.snapshot["orders"]
    return acted_before >= position and all(_shows(status, order) for order in orders)


def _shows(status: Status, order: Override) -> bool:
    """Return whether nothing in the snapshot contradicts the order."""
    link = status.link(order.link) if order.link and order.stream is order.log is None else None
    released = status.released().get(order.log or "")
    match order.kind:
        case OverrideKind.PAUSE:
            return link is None or link["state"] == LinkState.PAUSED
        case OverrideKind.RESUME:
            return link is None or link["state"] != LinkState.PAUSED
        case OverrideKind.PROMOTE | OverrideKind.FAILOVER:
            if released is None:  # while no link mirrors, nothing is copied either
                return all(each["state"] != LinkState.MIRRORING for each in status.snapshot.get("links", ()))
            return dt.datetime.fromisoformat(released["since"]) == order.at
        case OverrideKind.RESTORE:
            return released is None
        case _:
            return True


def _is_paused(log: Mapping[str, Any]) -> bool:
    return bool(log["state"] == LogState.PAUSED)


ANSWER: Final = 10.0  # seconds for a site to answer
PAUSES: Final = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0)  # seconds before each attempt to append a fence
_CLIENT_ID: Final = "fairlead-orders"


class ClusterAccess(Protocol):
    """The requests by which link operations read and change sites."""

    async def ends(self, site: str, wanted: Callable[[str], bool]) -> dict[TopicPartition, int]:
        """Return the end of every partition of the wanted topics.

        Raises:
            FairleadError: the site cannot be asked.
        """

    async def orders(self, site: str) -> Overrides:
        """Return the orders in force at a site. Raises ``FairleadError`` if it cannot be asked, or they are damaged."""

    async def append(self, site: str, orders: Sequence[Override]) -> int:
        """Append orders; return the offset after the last. Raises ``FairleadError``."""

    async def fence(self, site: str, logs: Sequence[TopicPartition], time_ms: int) -> Mapping[TopicPartition, int]:
        """Append a fence (``rebuild.fence``) to each log; return their offsets. Raises ``FairleadError``."""

    def status(self, site: str) -> Status | None:
        """Return the status of the site's replicator; None if none has ever run here."""


class KafkaAccess:
    """The sites of a topology. Made by ``open_access``."""

    def __init__(self, kafka: Callable[[str], KafkaEndpoint], clusters: Clusters, folder: Path) -> None:
        self._kafka = kafka
        self._clusters = clusters
        self._folder = folder

    async def ends(self, site: str, wanted: Callable[[str], bool]) -> dict[TopicPartition, int]:
        cluster = await self._clusters.at(site)
        found = await cluster.topics(refresh=True)
        logs = [TopicPartition(topic, n) for topic, info in found.items() if wanted(topic) for n in info.partitions]
        ends: dict[TopicPartition, int] = {}
        for tp, end in (await cluster.end_offsets(logs)).items() if logs else ():
            if not isinstance(end, int):
                raise end
            ends[tp] = end
        return ends

    async def orders(self, site: str) -> Overrides:
        cluster = await self._clusters.at(site)
        found = Overrides()
        topic = [TopicPartition(name) for name in await cluster.topics([ORDERS_TOPIC], refresh=True)]
        try:
            async for _, records in sweep(cluster, await extents(cluster, topic)):
                for record in records:
                    try:
                        found.apply(decode(record.value or b""))
                    except UNREADABLE as wrong:
                        log.warning(
                            "%s at %s, offset %s, is not an order: %s", ORDERS_TOPIC, site, record.offset, wrong
                        )
        except BrokerError as error:
            if error.code != TOPIC_AUTHORIZATION_FAILED:
                raise
            raise RefusedError(f"{site}: {error.what}", hint=error.hint, site=site) from error
        except CorruptBatch as error:
            raise RefusedError(
                f"the orders of {site} cannot be read, so nobody knows which are in force: {ORDERS_TOPIC} is damaged "
                f"there: {error.what}",
                hint=DAMAGED_HINT.format(site=site),
                site=site,
            ) from error
        return found

    async def append(self, site: str, orders: Sequence[Override]) -> int:
        return await asyncio.to_thread(append_orders, self._kafka(site), orders, timeout=ANSWER)

    async def fence(self, site: str, logs: Sequence[TopicPartition], time_ms: int) -> Mapping[TopicPartition, int]:
        cluster = await self._clusters.at(site)
        found: dict[TopicPartition, int] = {}
        batches: dict[TopicPartition, memoryview] = {}
        for pause in PAUSES:
            await asyncio.sleep(pause)
            left = [tp for tp in logs if tp not in found]
            fresh = [tp for tp in left if tp not in batches]
            ends, states = await cluster.end_offsets(fresh), await cluster.producer_states(fresh)
            for tp in fresh:
                end = ends[tp]
                if not isinstance(end, int):
                    raise end
                batches[tp] = fence(id_after(end, states[tp]), time_ms)
            for tp, result in (await cluster.produce({tp: batches[tp] for tp in left})).items():
                match append_meaning(result, result.base_offset):
                    case AppendMeaning.APPENDED:
                        found[tp] = result.base_offset
                    case AppendMeaning.DOUBTFUL if result.error_code == 0:
                        found[tp] = result.base_offset  # the filler was appended, but the answer was lost
                    case AppendMeaning.DOUBTFUL:
                        del batches[tp]  # another batch was appended since the tail was read
                    case AppendMeaning.UNKNOWN | AppendMeaning.LATER:
                        pass
                    case _:
                        raise broker_error(result.error_code, tp)
            if len(found) == len(logs):
                return found
        missing = next(tp for tp in logs if tp not in found)
        raise UnavailableError(
            f"{missing} at {site} accepts no append now, so a replicator that is suspended now could append later",
            hint=f"fairlead status; when the brokers of {site} work again, repeat the command",
            site=site,
        )

    def status(self, site: str) -> Status | None:
        return read_status(self._folder, site)


@contextlib.asynccontextmanager
async def open_access(kafka: Callable[[str], KafkaEndpoint], folder: Path) -> AsyncIterator[KafkaAccess]:
    """Open access to the sites; close its connections at the end.

    Args:
        kafka: Returns a site's Kafka as its administrator.
        folder: The topology's state folder, where replicators leave their status.
    """
    async with Clusters(kafka, client_id="fairlead-link", request_timeout=ANSWER) as clusters:
        yield KafkaAccess(kafka, clusters, folder)


def append_orders(endpoint: KafkaEndpoint, orders: Sequence[Override], *, timeout: float = TIMEOUT) -> int:
    """Append orders in this sequence.

    Returns:
        The offset after the last order. A replicator that has read up to it has seen all of them.

    Raises:
        RefusedError: the user may not append orders. UnavailableError: the site does not answer within ``timeout``
            seconds; some of the orders may have been appended.
    """
    records = [(None, encode(order)) for order in orders]
    landed = append_records(endpoint, ORDERS_TOPIC, records, client_id=_CLIENT_ID, timeout=timeout)
    left = len(orders) - len(landed)
    if left or not landed:
        raise UnavailableError(
            f"{endpoint.site}'s Kafka did not confirm {left} of {len(orders)} orders",
            hint="check that it runs (fairlead status) and repeat the command; a repeated order has no effect",
            site=endpoint.site,
        )
    return max(landed) + 1
