"""Retention on real brokers: old records go once every site that keeps them longer has them, never the last batch."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from acl.compile import compile_site
from fairlead.kafka.client.appender import Appender
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import is_data, marker_record
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.errors import ConnectionLost, RequestTimeout
from fairlead.kafka.protocol.record import NewRecord, encode_batch
from fairlead.kafka.protocol.types import TopicPartition
from fairlead.local.sites import LocalSites
from fairlead.records import encode
from fairlead.records.ends import EndsEntry, LogEnd
from replication.plan import retention
from replication.plan.retention import delete_expired
from replication.replicator import Replicator
from tests.support.access_rules import permitted
from tests.support.chaos import fill_disk, impatient
from tests.support.replication.lab import Lab, until
from topologies.model import Topology

pytestmark = pytest.mark.integration

HOUR = 3_600_000
DAY = 24 * HOUR
LONG_AGO = 1_000_000_000_000  # ms, in 2001: older than any retention by the wall clock


async def test_old_records_are_deleted_but_never_the_last(
    kafka: Callable[..., KafkaEndpoint], new_log: Callable[..., str]
) -> None:
    aged, still = TopicPartition(new_log("alpha")), TopicPartition(new_log("alpha"))
    async with await Cluster.open(kafka("alpha"), client_id="test") as cluster:
        appender = Appender(cluster)
        for log, hours in ((aged, (0, 1, 2, 30, 31)), (still, (0, 1))):
            await appender.open_term(log, 1, marker_record(b"{}", timestamp_ms=LONG_AGO))
            for hour in hours:
                await appender.append(log, [NewRecord(value=b"x", timestamp_ms=LONG_AGO + hour * HOUR)])
        kept = {aged: 24 * HOUR, still: 24 * HOUR}
        assert (await delete_expired(cluster, kept)).cut == {aged: 4}  # marker and hours 0 to 2 are deleted
        assert (await delete_expired(cluster, kept)).cut == {}
        assert (await delete_expired(cluster, {aged: 1, still: 1})).cut == {
            aged: 5,
            still: 2,
        }  # the last record always stays
        for log in (aged, still):
            await appender.append(log, [NewRecord(value=b"y", timestamp_ms=LONG_AGO)])
        await appender.close()


def spread(lab: Lab) -> Topology:
    """Return the form of ``fan-in``: alpha keeps a day, beta everything, and confirms what it has."""
    return lab.topology(
        sites={
            "alpha": {"kind": "datacentre", "retention": {"default": "1d"}},
            "beta": {"kind": "datacentre", "retention": {"default": "10y"}},
        },
        streams={lab.stream: {}, "ends": {}},
        links=[
            {"from": "alpha", "to": "beta", "streams": {lab.stream: "all"}},
            {"from": "beta", "to": "alpha", "streams": {"ends": ["beta"]}},
        ],
    )


def allowed(lab: Lab, topology: Topology) -> AbstractContextManager[None]:
    """Give the services at both real sites the rules that follow from the topology, and no more."""
    here = [site for site in topology.sites if site in ("alpha", "beta")]
    return permitted(lab.kafka, {site: compile_site(topology, site) for site in here})


async def write_at(lab: Lab, topic: str, count: int, timestamp_ms: int, *, size: int = 100) -> None:
    """Append records of one time at alpha, as an ordinary client does."""
    some = [NewRecord(value=b"x" * size, timestamp_ms=timestamp_ms) for _ in range(count)]
    await lab.append("alpha", {topic: encode_batch(some, producer_id=-1, epoch=-1, sequence=-1)})


async def start_of(lab: Lab, site: str, topic: str) -> int:
    found = (await (await lab.cluster(site)).start_offsets([TopicPartition(topic)]))[TopicPartition(topic)]
    return found if isinstance(found, int) else -1


@dataclass(frozen=True)
class Spread:
    """An edge (alpha) and a centre (beta), whose replicators have the rights that the topology gives them."""

    lab: Lab
    topology: Topology
    log: str

    def replicator(self, site: str, group: str | None = None) -> Replicator:
        user = f"replicator.{site}"
        kafka = self.lab.kafka
        return Replicator(
            self.topology, site, kafka(site, "replicator"), lambda source: kafka(source, user), group=group
        )

    async def told(self, edge: Replicator, records: int) -> None:
        """Wait until the edge says how many records wait for the centre."""

        async def so() -> bool:
            return (waits(edge)["beta"]["records"] if waits(edge) else 0) == records

        await until(so, f"{records} records are not said to wait for beta, but {waits(edge)}")

    async def confirmed(self, end: int) -> None:
        """Wait until the edge has the centre's confirmation that it has everything before this offset."""

        async def so() -> bool:
            if await self.lab.end("alpha", "ends.beta") < 1:
                return False
            stored = [each.value for each in await self.lab.read("alpha", "ends.beta") if is_data(each) and each.value]
            return any(msgspec.json.decode(value)["ends"].get(self.log, [0])[0] == end for value in stored)

        await until(so, "beta's confirmation does not reach alpha")

    async def starts(self, offset: int) -> None:
        async def so() -> bool:
            return await start_of(self.lab, "alpha", self.log) == offset

        await until(so, f"{self.log} does not start at {offset}")


async def test_members_of_a_group_confirm_and_delete_their_own_logs(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has more rights than the topology gives. One member stops, and another cuts its logs."""
    monkeypatch.setattr(retention, "SWEEP_SECONDS", 0.2)
    monkeypatch.setattr(retention, "SETTLED_SECONDS", 0.5)
    logs, present = [lab.log(f"alpha.{number}") for number in range(8)], int(time.time() * 1000)
    here = Spread(lab, spread(lab), logs[0])

    async def start_at(offset: int) -> None:
        async def so() -> bool:
            return {await start_of(lab, "alpha", log) for log in logs} == {offset}

        await until(so, f"not all logs start at {offset}")

    async def write(count: int, days: int) -> None:
        for log in logs:
            await write_at(lab, log, count, present - days * DAY)

    with allowed(lab, here.topology):
        await lab.make("alpha", *logs)
        await write(10, 5)
        await write(2, 3)
        edges = [here.replicator("alpha", lab.stream) for _ in range(2)]
        centres = [here.replicator("beta", lab.stream) for _ in range(2)]
        async with lab.running(edges[0], centres[0]):
            async with lab.running(edges[1], centres[1]):
                await start_at(10)
                members = [each.snapshot()["group"]["members"] for each in (*edges, *centres)]
                assert [len(each) for each in members] == [2, 2, 2, 2]
            await write(2, 0)
            await start_at(12)
        for log in logs:
            assert (await lab.stored("beta", log))[0]  # the centre keeps everything
            assert await start_of(lab, "beta", log) == 0


def waits(edge: Replicator) -> Mapping[str, Any]:
    found: Mapping[str, Any] = edge.snapshot()["retention"]["waits_for"]
    return found


async def test_an_edge_deletes_only_what_the_centre_has(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records older than an edge keeps them stay while the link is cut, over restarts too, and status names the site
    that they wait for. The services have no more rights than the topology gives them.
    """
    monkeypatch.setattr(retention, "SWEEP_SECONDS", 0.2)
    log, present = lab.log("alpha.cpu"), int(time.time() * 1000)
    here = Spread(lab, spread(lab), log)
    with allowed(lab, here.topology):
        await lab.make("alpha", log)
        await write_at(lab, log, 10, present - 5 * DAY)
        edge = here.replicator("alpha")
        async with lab.running(edge):
            async with lab.running(here.replicator("beta")):
                await lab.reaches("beta", log, 10)
                await here.confirmed(10)
            await write_at(lab, log, 7, present - 4 * DAY)
            await write_at(lab, log, 3, present)
            await here.starts(10)  # beta confirmed these before the link was cut
            await here.told(edge, 7)
            delay = waits(edge)["beta"]
            assert delay["example"] == log
            assert delay["logs"] == 1
            assert 700 < delay["bytes"] < 2000
        edge = here.replicator("alpha")
        async with lab.running(edge):
            await here.told(edge, 7)  # a new process knows it from its own site's logs
            assert await start_of(lab, "alpha", log) == 10
            async with lab.running(here.replicator("beta")):
                await here.starts(17)  # the newest records are young
                await here.told(edge, 0)
    assert await start_of(lab, "beta", log) == 0
    stored = [msgspec.json.decode(each.value or b"{}") for each in await lab.read("beta", "ends.beta") if is_data(each)]
    first = next(number for number, each in enumerate(stored) if log in each["ends"])
    # A list of all comes first, so that older entries may go; on these sites another test may have caused it.
    assert any(each.get("parts", 0) >= 1 for each in stored[: first + 1])


async def test_a_stolen_site_gives_up_its_own_records_and_nobody_elses(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thief at gamma writes gamma's log of ends. It may claim what gamma lacks; for beta it cannot speak."""
    monkeypatch.setattr(retention, "SWEEP_SECONDS", 0.2)
    log, present, long = lab.log("alpha.cpu"), int(time.time() * 1000), {"default": "10y"}
    topology = lab.topology(
        sites={
            "alpha": {"kind": "datacentre", "retention": {"default": "1d"}},
            "beta": {"kind": "datacentre", "retention": long},
            "gamma": {"kind": "datacentre", "retention": long},
        },
        streams={lab.stream: {}, "ends": {}},
        links=[
            *({"from": "alpha", "to": to, "streams": {lab.stream: "all"}} for to in ("beta", "gamma")),
            *({"from": site, "to": "alpha", "streams": {"ends": [site]}} for site in ("beta", "gamma")),
        ],
    )
    nowhere = KafkaEndpoint("gamma", (("127.0.0.1", 1),))
    here = Spread(lab, topology, log)
    edge = Replicator(
        topology,
        "alpha",
        lab.kafka("alpha", "replicator"),
        lambda source: nowhere if source == "gamma" else lab.kafka(source, "replicator.alpha"),
    )
    await lab.make("alpha", log, "ends.gamma")
    await write_at(lab, log, 10, present - 5 * DAY)
    await write_at(lab, log, 1, present)
    forged = [
        EndsEntry(site=site, ends={log: LogEnd(end=end, term=0)}) for site in ("beta", "gamma") for end in (10, 99)
    ]
    with allowed(lab, topology):
        async with lab.running(edge):
            await here.told(edge, 10)
            assert set(waits(edge)) == {"beta", "gamma"}
            appender = Appender(await lab.cluster("alpha"))
            ends = TopicPartition("ends.gamma")
            await appender.open_term(ends, 1, marker_record(b"{}", timestamp_ms=present))
            await appender.append(ends, [NewRecord(value=encode(each), timestamp_ms=present) for each in forged])
            await appender.close()

            async def believed() -> bool:
                return set(waits(edge)) == {"beta"}

            await until(believed, f"gamma's claim about itself does not count: {waits(edge)}")
            await here.told(edge, 10)
            assert await start_of(lab, "alpha", log) == 0
            async with lab.running(here.replicator("beta")):
                await here.starts(10)


@pytest.mark.long
async def test_an_edge_keeps_what_the_centre_cannot_store(
    lab: Lab, sites: LocalSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk of the site ahead is full: records that are too old for the edge stay there until the centre has them,
    and status says how many."""
    monkeypatch.setattr(retention, "SWEEP_SECONDS", 0.2)
    log, present = lab.log("alpha.cpu"), int(time.time() * 1000)
    here = Spread(lab, spread(lab), log)
    with impatient(3.0, client="fairlead-replicator"), allowed(lab, here.topology):
        await lab.make("alpha", log)
        await write_at(lab, log, 10, present - 5 * DAY)
        edge, centre = here.replicator("alpha"), here.replicator("beta")
        async with lab.running(edge), lab.running(centre):
            await lab.reaches("beta", log, 10)
            await here.confirmed(10)
            halted = fill_disk(sites, "beta")
            written = 10
            while not await halted():
                await write_at(lab, log, 10, present - 4 * DAY, size=40_000)
                written += 10

                async def copied_or_halted(end: int = written) -> bool:
                    with contextlib.suppress(ConnectionLost, RequestTimeout):  # the broker is halting
                        return await halted() or await lab.end("beta", log) >= end
                    return False

                await until(copied_or_halted, "beta neither copies nor halts")
            await write_at(lab, log, 10, present - 4 * DAY, size=40_000)
            written += 10
            await write_at(lab, log, 1, present)

            async def all_wait() -> bool:
                left = written - await start_of(lab, "alpha", log)
                return left > 0 and bool(waits(edge)) and waits(edge)["beta"]["records"] == left

            await until(all_wait, "what is too old is not said to wait for beta")
            assert waits(edge)["beta"]["bytes"] > 40_000
            await asyncio.to_thread(sites.restart, "beta")
            await here.starts(written)
            await here.told(edge, 0)
    assert await start_of(lab, "beta", log) == 0
    assert await lab.end("beta", log) == written + 1


async def test_a_site_without_links_deletes_what_shore_wrote_there(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Feeds are cut by the replicator of the site where they are written, though no link leads there."""
    monkeypatch.setattr(retention, "SWEEP_SECONDS", 0.2)
    topology = lab.topology(
        sites={"alpha": {"kind": "datacentre", "retention": {lab.stream: "1d"}}, "beta": {"kind": "datacentre"}},
        streams={lab.stream: {"insert_point": "shore"}, "ends": {}},
        shore={"at": "alpha"},
        links=[],
    )
    feed = lab.log("ducks")
    await lab.make("alpha", feed)
    appender = Appender(await lab.cluster("alpha"))
    await appender.open_term(TopicPartition(feed), 1, marker_record(b"{}", timestamp_ms=LONG_AGO))
    for hour in (0, 1, 30):
        await appender.append(TopicPartition(feed), [NewRecord(value=b"x", timestamp_ms=LONG_AGO + hour * HOUR)])
    await appender.close()
    assert topology.has_replicator("alpha")
    assert not topology.has_replicator("beta")
    async with lab.running(lab.replicator(topology, "alpha")):

        async def cut() -> bool:
            return await start_of(lab, "alpha", feed) == 3

        await until(cut, f"{feed} is not cut")
