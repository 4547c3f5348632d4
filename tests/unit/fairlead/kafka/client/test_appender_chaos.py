"""Any order of faults: what was acknowledged is stored once, where it was said to be, and in the order of the calls;
and a log that was taken over has nothing of its old writer after the new term's marker."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairlead.kafka.client.appender import Appender
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.protocol.errors import Fenced, WireError
from fairlead.kafka.protocol.types import TP
from tests.support.examples import examples
from tests.support.kafka.fake_broker import DESCRIBE_PRODUCERS, FETCH, LIST_OFFSETS, PRODUCE, Fault, running
from tests.support.kafka.fake_log import marker, record, stored

FAULTS = st.sampled_from(
    [
        Fault(),
        Fault(),
        Fault(lose="before"),
        Fault(lose="after"),
        Fault(code=6),
        Fault(code=7),
        Fault(code=19),
    ]
)
SCHEDULES = st.fixed_dictionaries(
    {
        PRODUCE: st.lists(FAULTS, max_size=12),
        LIST_OFFSETS: st.lists(FAULTS, max_size=4),
        DESCRIBE_PRODUCERS: st.lists(FAULTS, max_size=4),
        FETCH: st.lists(FAULTS, max_size=4),
    }
)
LOGS = [TP("log.a"), TP("log.b"), TP("log.c")]


async def scenario(schedule: dict[int, list[Fault]], writers: int, appends: int) -> None:
    async with running() as fake:
        for log in LOGS:
            fake.log(log.topic)
        clients = [
            await Cluster.open(fake.endpoint(), client_id=f"writer {index}", request_timeout=2)
            for index in range(writers)
        ]
        appenders = [Appender(client, linger=0.0) for client in clients]
        for log in LOGS:
            await appenders[0].open_term(log, 1, marker(f"marker of {log}"))
        for key, faults in schedule.items():
            fake.fault(key, *faults)
        acknowledged: dict[TP, dict[int, str]] = {log: {} for log in LOGS}
        refused: dict[TP, set[str]] = {log: set() for log in LOGS}

        async def write(writer: int, log: TP) -> None:
            async def one(text: str) -> None:
                try:
                    result = await appenders[writer].append(log, [record(text)])
                except WireError:
                    refused[log].add(text)
                    return
                assert result.base_offset not in acknowledged[log]
                acknowledged[log][result.base_offset] = text

            for burst in range(appends):  # two calls at a time, so that they may share a batch
                await asyncio.gather(one(f"{writer}.{burst}.0"), one(f"{writer}.{burst}.1"))

        await asyncio.gather(*(write(writer, log) for writer in range(writers) for log in LOGS))
        for appender, client in zip(appenders, clients, strict=True):
            await appender.close()
            await client.close()
        for log in LOGS:
            texts = stored(fake.logs[log.topic])
            assert dict(enumerate(texts[1:], 1)) == acknowledged[log], "stored = acknowledged"
            assert not refused[log].intersection(texts)
            for writer in range(writers):
                own = [text for text in texts if text.startswith(f"{writer}.")]
                assert own == sorted(own), "in the order of the calls"
        if writers == 1:
            assert not any(refused.values()), "a lone writer always gets through"


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@given(schedule=SCHEDULES, writers=st.integers(1, 2))
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_acknowledged_is_stored_once_and_in_order(
    run: Callable[[Coroutine[Any, Any, None]], None], schedule: dict[int, list[Fault]], writers: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fairlead.kafka.client.connection.FIRST", 0.002)
        run(asyncio.wait_for(scenario(schedule, writers, 4), 60))


async def takeover(schedule: dict[int, list[Fault]], early: int) -> None:
    log = LOGS[0]
    async with running() as fake:
        fake.log(log.topic)
        clients = [await Cluster.open(fake.endpoint(), client_id=name, request_timeout=2) for name in ("old", "new")]
        old, new = (Appender(client, linger=0.0) for client in clients)
        await old.open_term(log, 1, marker("one"))
        for key, faults in schedule.items():
            fake.fault(key, *faults)
        acknowledged: dict[int, str] = {0: "one"}
        enough = asyncio.Event()

        async def write_until_fenced() -> None:
            for index in itertools.count():
                if index == early:
                    enough.set()
                acknowledged[(await old.append(log, [record(f"old {index}")])).base_offset] = f"old {index}"

        writing = asyncio.create_task(write_until_fenced())
        await enough.wait()
        opened = (await new.open_term(log, 2, marker("two"))).base_offset
        acknowledged[opened] = "two"
        for index in range(3):
            acknowledged[(await new.append(log, [record(f"new {index}")])).base_offset] = f"new {index}"
        with pytest.raises(Fenced):
            await writing
        for appender, client in zip((old, new), clients, strict=True):
            await appender.close()
            await client.close()
        texts = stored(fake.logs[log.topic])
        assert dict(enumerate(texts)) == acknowledged, "stored = acknowledged"
        assert all(text.startswith("old") for text in texts[1:opened])
        assert texts[opened:] == ["two", "new 0", "new 1", "new 2"]


@given(schedule=SCHEDULES, early=st.integers(0, 5))
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_old_writer_leaves_nothing_after_the_new_terms_marker(schedule: dict[int, list[Fault]], early: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fairlead.kafka.client.connection.FIRST", 0.002)
        asyncio.run(asyncio.wait_for(takeover(schedule, early), 60))
