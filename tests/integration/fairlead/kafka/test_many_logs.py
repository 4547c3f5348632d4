"""Hundreds of logs at once on a real broker: produce, offsets, fetch sessions, reading, tailing."""

from __future__ import annotations

import asyncio

import pytest

from fairlead.kafka.client.appender import Appender
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.fetch_session import FetchSession
from fairlead.kafka.client.reader import Tail, read_log
from fairlead.kafka.convention import is_data, is_marker
from fairlead.kafka.protocol.batch import split, verify_crc
from fairlead.kafka.protocol.types import TP, LogPosition
from tests.integration.fairlead.kafka.conftest import MANY
from tests.support.kafka.records import marker, record
from tests.support.waits import PATIENCE

pytestmark = pytest.mark.integration


async def test_many_logs_from_creation_to_reading(cluster: Cluster, appender: Appender, many_logs: list[TP]) -> None:
    await cluster.wait_writable([log.topic for log in many_logs])
    infos = await cluster.topics([log.topic for log in many_logs])
    assert len(infos) == MANY and len({info.topic_id for info in infos.values()}) == MANY
    assert set((await appender.positions(many_logs)).values()) == {None}

    opened = await asyncio.gather(*(appender.open_term(log, 1, marker()) for log in many_logs))
    assert {result.base_offset for result in opened} == {0}
    for turn in range(3):
        results = await asyncio.gather(*(appender.append(log, [record(f"{log}:{turn}")]) for log in many_logs))
        assert {result.base_offset for result in results} == {turn + 1}
    assert set((await cluster.end_offsets(many_logs)).values()) == {4}
    assert set((await cluster.start_offsets(many_logs)).values()) == {0}

    fresh = Appender(cluster)
    assert set((await fresh.positions(many_logs)).values()) == {LogPosition(4, 1, 0)}
    await fresh.close()

    # A session: everything once, then only what changed.
    session = cluster.fetch_session()
    for log in many_logs:
        session.set(log, 0)
    ends: dict[TP, int] = {}
    async with asyncio.timeout(PATIENCE):
        while len(ends) < MANY:
            for log, content in (await session.poll(max_wait_ms=200)).items():
                assert content.error_code == 0
                for view in split(content.records):
                    assert verify_crc(content.records, view.start, view.stop)
                    ends[log] = view.header.next_offset
                if log in ends:
                    session.set(log, ends[log])
    assert set(ends.values()) == {4}
    while await session.poll(max_wait_ms=50):
        pass  # answers that contain only the moved positions
    await appender.append(many_logs[123], [record("news")])
    async with asyncio.timeout(PATIENCE):
        assert await heard(session) == {many_logs[123]}
    session.forget(many_logs[7])
    session.set(many_logs[123], 5)
    await appender.append(many_logs[7], [record("unheard")])
    await appender.append(many_logs[8], [record("heard")])
    async with asyncio.timeout(PATIENCE):
        assert await heard(session) == {many_logs[8]}
    await session.close()

    found = [kept async for kept in read_log(cluster, many_logs[3])]
    assert [kept.offset for kept in found] == [0, 1, 2, 3] and is_marker(found[0])
    assert [kept.value for kept in found if is_data(kept)] == [f"{many_logs[3]}:{i}".encode() for i in range(3)]
    tail = Tail(cluster, dict.fromkeys(many_logs, 0))
    counts: dict[TP, int] = dict.fromkeys(many_logs, 0)
    async with asyncio.timeout(PATIENCE):
        while sum(counts.values()) < 4 * MANY + 3:
            log, records = await anext(tail)
            assert records[0].offset == counts[log]
            counts[log] += len(records)
    await tail.close()


async def heard(session: FetchSession) -> set[TP]:
    """Return the logs of the first answer that contains any."""
    while not (content := await session.poll(max_wait_ms=5000)):
        pass
    return set(content)


async def test_old_records_are_deleted_up_to_an_offset(
    cluster: Cluster, appender: Appender, many_logs: list[TP]
) -> None:
    log = many_logs[0]
    await cluster.wait_writable([log.topic])
    await appender.ensure_open(log, marker())
    for index in range(5):
        await appender.append(log, [record(str(index))])
    end = (await cluster.end_offsets([log]))[log]
    assert isinstance(end, int)
    assert await cluster.delete_records({log: end - 1}) == {log: end - 1}
    assert await cluster.start_offsets([log]) == {log: end - 1}
    assert [kept.offset async for kept in read_log(cluster, log)] == [end - 1]
    assert (await cluster.fetch({log: 0}))[log].error_code == 1
