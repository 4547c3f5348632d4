"""Streams of a test's own on two sites, what is written to them, and what replicators say of them."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairlead.kafka.admin import create_logs, delete_logs
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import marker_record, term_batch
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.batch import HEADER_BYTES, split
from fairlead.kafka.protocol.codecs import Codec
from fairlead.kafka.protocol.errors import OFFSET_OUT_OF_RANGE
from fairlead.kafka.protocol.record import NewRecord, Record, decode_batch
from fairlead.kafka.protocol.types import TopicPartition
from replication.replicator import Replicator
from tests.support.waits import PATIENCE
from topologies.model import Topology

NOW_MS = int(time.time() * 1000)
WHEN = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)  # of custody entries


def records(first: int, count: int, *, size: int = 20) -> list[NewRecord]:
    """Return records that all differ."""
    return [
        NewRecord(
            value=f"value {n} ".encode().ljust(size, b"."), key=b"k", headers=(("h", b"1"),), timestamp_ms=NOW_MS + n
        )
        for n in range(first, first + count)
    ]


async def until(condition: Callable[[], Awaitable[bool]], what: str, patience: float = PATIENCE) -> None:
    """Wait for a condition that brokers show; fail with ``what`` after ``patience`` seconds."""
    deadline = time.monotonic() + patience
    while not await condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"after {patience} s: {what}")
        await asyncio.sleep(0.05)


@dataclass
class Lab:
    """Two sites, with streams that only this test uses."""

    kafka: Callable[..., KafkaEndpoint]
    stream: str = field(default_factory=lambda: "t" + secrets.token_hex(4))
    clusters: dict[str, Cluster] = field(default_factory=dict)

    async def close(self) -> None:
        """Close the lab's connections."""
        for cluster in self.clusters.values():
            await cluster.close()

    def topology(self, *, links: Sequence[Mapping[str, Any]], **changes: Any) -> Topology:
        """Return a topology of alpha and beta with this test's streams."""
        streams = changes.pop("streams", {self.stream: {}})
        return Topology.model_validate(
            {
                "name": "lab",
                "sites": {"alpha": {"kind": "datacentre"}, "beta": {"kind": "datacentre"}},
                "streams": streams,
                "links": list(links),
                **changes,
            }
        )

    def both_ways(self, **changes: Any) -> Topology:
        return self.topology(
            links=[{"from": "alpha", "to": "beta", "both": True, "streams": {self.stream: "all"}}], **changes
        )

    def one_way(self, **changes: Any) -> Topology:
        return self.topology(links=[{"from": "alpha", "to": "beta", "streams": {self.stream: "all"}}], **changes)

    def log(self, key: str) -> str:
        return f"{self.stream}.{key}"

    async def cluster(self, site: str) -> Cluster:
        if site not in self.clusters:
            self.clusters[site] = await Cluster.open(self.kafka(site), client_id="lab")
        return self.clusters[site]

    async def make(self, site: str, *topics: str, **settings: str) -> None:
        await asyncio.to_thread(create_logs, self.kafka(site), {topic: settings for topic in topics})
        await (await self.cluster(site)).wait_writable(topics)

    async def append(self, site: str, batches: Mapping[str, bytes]) -> dict[str, int]:
        """Append one batch to each log. Return their offsets; fail if a batch was appended before."""
        cluster = await self.cluster(site)
        answer = await cluster.produce({TopicPartition(topic): batch for topic, batch in batches.items()})
        assert all(result.appended_now for result in answer.values()), answer
        return {tp.topic: result.base_offset for tp, result in answer.items()}

    async def open_term(self, site: str, topic: str, *, term: int, at: int) -> int:
        marker = marker_record(secrets.token_bytes(16), timestamp_ms=NOW_MS)
        assert (await self.append(site, {topic: term_batch([marker], term=term, offset=at, marker=at)}))[topic] == at
        return at + 1

    async def write(
        self,
        site: str,
        topic: str,
        count: int,
        *,
        term: int = 1,
        marker: int = 0,
        at: int,
        per: int = 5,
        codec: Codec = Codec.NONE,
    ) -> int:
        """Append ``count`` records as the holder of a term; return the log's end."""
        for first in range(at, at + count, per):
            some = records(first, min(per, at + count - first))
            batch = term_batch(some, term=term, offset=first, marker=marker, codec=codec)
            assert (await self.append(site, {topic: batch}))[topic] == first
        return at + count

    async def end(self, site: str, topic: str) -> int:
        cluster = await self.cluster(site)
        found = await cluster.topics([topic], refresh=True)
        if topic not in found:
            return -1
        end = (await cluster.end_offsets([TopicPartition(topic)]))[TopicPartition(topic)]
        return end if isinstance(end, int) else -1

    async def reaches(self, site: str, topic: str, end: int, patience: float = PATIENCE) -> None:
        async def there() -> bool:
            return await self.end(site, topic) >= end

        await until(there, f"{topic} at {site} ends at {await self.end(site, topic)}, not at {end}", patience)

    async def stored(self, site: str, topic: str) -> list[bytes]:
        """Return every batch of a log as stored, without the partition leader epoch, which the broker sets."""
        cluster, tp = await self.cluster(site), TopicPartition(topic)
        start, end = (await cluster.start_offsets([tp]))[tp], (await cluster.end_offsets([tp]))[tp]
        assert isinstance(start, int) and isinstance(end, int)
        out: list[bytes] = []
        while start < end:
            part = (await cluster.fetch({tp: start}, max_wait_ms=0))[tp]
            if part.error_code == OFFSET_OUT_OF_RANGE:  # the fillers at the log's start were deleted meanwhile
                return await self.stored(site, topic)
            assert part.error_code == 0 and len(part.records) >= HEADER_BYTES
            for batch in split(part.records):
                raw = bytearray(part.records[batch.start : batch.stop])
                raw[12:16] = bytes(4)
                out.append(bytes(raw))
                start = batch.header.next_offset
        return out

    async def read(self, site: str, topic: str) -> list[Record]:
        return [record for batch in await self.stored(site, topic) for record in decode_batch(batch)]

    async def same(self, topic: str) -> bool:
        return await self.stored("alpha", topic) == await self.stored("beta", topic)

    def replicator(self, topology: Topology, site: str, **options: Any) -> Replicator:
        return Replicator(topology, site, self.kafka(site), lambda name: self.kafka(name), **options)

    @contextlib.asynccontextmanager
    async def running(self, *replicators: Replicator) -> AsyncIterator[None]:
        stop = asyncio.Event()
        tasks = [asyncio.ensure_future(each.run(stop)) for each in replicators]
        try:
            yield
        finally:
            stop.set()
            await asyncio.gather(*tasks)


def states(snapshot: Mapping[str, Any]) -> dict[str, str]:
    """Return the logs that are not mirrored, with their states."""
    return {topic: each["state"] for topic, each in snapshot["logs"].items()}


async def target_up(replicator: Replicator) -> None:
    """Wait until the replicator's status calls its target up: after the next listing of topics, which can be later than
    the first copies to a target that is back.
    """

    async def up() -> bool:
        return bool(replicator.snapshot()["target"]["state"] == "up")

    await until(up, "the target is not called up")


async def counted(replicators: Sequence[Replicator], records: Mapping[str, int]) -> None:
    """Wait until these links have counted so many records. A batch counts when the broker's answer has come, which can
    be later than others see its records.
    """

    def shown() -> dict[str, int]:
        moved = links(each.snapshot() for each in replicators)
        return {name: moved[name]["records"] for name in records}

    async def so() -> bool:
        return shown() == records

    try:
        await until(so, "not counted")
    except AssertionError as error:
        raise AssertionError(f"{error}: {shown()} instead of {records}") from error


def links(snapshots: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return all links of some snapshots by name."""
    return {link["name"]: link for snapshot in snapshots for link in snapshot["links"]}


async def remake_from_beta(lab: Lab, topic: str, end: int) -> None:
    """Delete the topic at alpha and let alpha copy it from beta, as a third site with a link only from beta would."""
    await asyncio.to_thread(delete_logs, lab.kafka("alpha"), [topic])

    async def gone() -> bool:
        return topic not in await (await lab.cluster("alpha")).topics(refresh=True)

    await until(gone, f"{topic} is not deleted")
    back = lab.topology(links=[{"from": "beta", "to": "alpha", "streams": {lab.stream: "all"}}])
    alpha = lab.replicator(back, "alpha")
    async with lab.running(alpha):
        await lab.reaches("alpha", topic, end)
        assert states(alpha.snapshot()) == {}


def link(lab: Lab, source: str, target: str) -> Topology:
    """Return two sites, and a link that copies everything from one to the other."""
    ends = {site: {"kind": "datacentre"} for site in (source, target)}
    return lab.topology(sites=ends, links=[{"from": source, "to": target, "streams": {lab.stream: "all"}}])
