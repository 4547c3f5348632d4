"""A dedicated broker under load is killed, restarted, and requires logins to be renewed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from fairlead.kafka.admin import create_logs
from fairlead.kafka.client.appender import Appender
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import Tail, read_log
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.errors import ConnectionLost
from fairlead.kafka.protocol.types import TP
from fairlead.local.sites import LocalSites, SiteSpec
from tests.support.kafka.records import marker, record
from tests.support.sites import NewSites
from tests.support.waits import PATIENCE

pytestmark = [pytest.mark.long, pytest.mark.integration]
LOGS = [TP(f"faults.{index}") for index in range(20)]
REAUTHENTICATE = {"listener.name.client.connections.max.reauth.ms": "2000"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, new_sites: NewSites) -> Iterator[LocalSites]:
    local = new_sites(tmp_path_factory.mktemp("faults"))
    local.up([SiteSpec("gamma", ("bridge",), properties=REAUTHENTICATE)])
    create_logs(local.kafka("gamma", "admin"), {log.topic: {} for log in LOGS})
    yield local
    local.down(purge=True)


@pytest.fixture
def endpoint(site: LocalSites) -> KafkaEndpoint:
    return site.kafka("gamma", "admin")


async def test_killed_broker_loses_and_repeats_nothing(site: LocalSites, endpoint: KafkaEndpoint) -> None:
    """Writers continue through two kill -9 with restarts, and through renewals of the login every two seconds."""
    stop = asyncio.Event()
    acknowledged: dict[TP, dict[int, bytes]] = {log: {} for log in LOGS}
    async with await Cluster.open(endpoint, client_id="writer", request_timeout=10) as cluster:
        await cluster.wait_writable([log.topic for log in LOGS])
        appender = Appender(cluster)
        await asyncio.gather(*(appender.ensure_open(log, marker()) for log in LOGS))

        async def write(log: TP) -> None:
            turn = 0
            while not stop.is_set():
                texts = [f"{log} {turn} {index}" for index in range(1 + turn % 3)]
                result = await appender.append(log, [record(text) for text in texts])
                for index, text in enumerate(texts):
                    assert result.base_offset + index not in acknowledged[log]
                    acknowledged[log][result.base_offset + index] = text.encode()
                turn += 1

        async def grow(records: int) -> None:
            goal = sum(map(len, acknowledged.values())) + records
            async with asyncio.timeout(PATIENCE):
                while sum(map(len, acknowledged.values())) < goal:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

        writers = [asyncio.create_task(write(log)) for log in LOGS]
        for _ in range(2):
            await grow(500)
            await asyncio.to_thread(site.kill, "gamma")
            await asyncio.to_thread(site.restart, "gamma")
            await grow(500)
        stop.set()
        await asyncio.gather(*writers)
        for log in LOGS:
            stored = {kept.offset: kept.value async for kept in read_log(cluster, log, 1)}
            assert stored == acknowledged[log]
        await appender.close()


async def test_login_is_renewed_on_busy_and_idle_connections(endpoint: KafkaEndpoint) -> None:
    async with await Cluster.open(endpoint, client_id="renewal") as cluster:
        appender = Appender(cluster)
        await cluster.wait_writable([LOGS[0].topic])
        await appender.ensure_open(LOGS[0], marker())
        loop = asyncio.get_running_loop()

        async def keeps_its_connection() -> bool:
            """Work for longer than two login lifetimes; return whether the connection is the same afterwards."""
            incarnation, ends = cluster.pool.incarnation("produce", 1), loop.time() + 5
            while loop.time() < ends:
                await appender.append(LOGS[0], [record("x")])
                await cluster.end_offsets([LOGS[0]])
            return incarnation != 0 and cluster.pool.incarnation("produce", 1) == incarnation

        # A login that is due while the machine is held up comes too late, and the broker closes the connection.
        # Without renewals, no round would keep it.
        for _ in range(6):
            if await keeps_its_connection():
                break
        else:
            pytest.fail("the connection was lost in each round")
        await appender.close()


async def test_tail_survives_a_restart(site: LocalSites, endpoint: KafkaEndpoint) -> None:
    log = LOGS[1]
    async with await Cluster.open(endpoint, client_id="tail", request_timeout=10) as cluster:
        appender = Appender(cluster)
        await cluster.wait_writable([log.topic])
        await appender.ensure_open(log, marker())
        start = (await appender.append(log, [record("before")])).base_offset
        tail = Tail(cluster, {log: start})
        found: list[bytes | None] = [kept.value for kept in (await anext(tail))[1]]

        async def follow() -> None:
            while len(found) < 2:
                try:
                    found.extend(kept.value for kept in (await anext(tail))[1])
                except ConnectionLost:
                    await asyncio.sleep(0.1)

        following = asyncio.create_task(follow())
        await asyncio.to_thread(site.kill, "gamma")
        await asyncio.to_thread(site.restart, "gamma")
        await appender.append(log, [record("after")])
        async with asyncio.timeout(PATIENCE):
            await following
        assert found == [b"before", b"after"]
        await tail.close()
        await appender.close()
