"""Incremental fetch: what the broker is told, what comes back, and what happens when things go wrong."""

from __future__ import annotations

import asyncio
import dataclasses
import uuid
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.fetch_session import BrokerSession, FetchSession
from fairlead.kafka.protocol.errors import NETWORK_EXCEPTION, ConnectionLost
from fairlead.kafka.protocol.fetch_codec import EPOCH_OPEN, FetchAnswer
from fairlead.kafka.protocol.types import TP
from tests.support.examples import examples
from tests.support.kafka.fake_broker import FETCH, FakeCluster, Fault, open_cluster, running, until
from tests.support.kafka.fake_log import A, B, C, batch

LOGS = [TP(f"log.{index}") for index in range(6)]
IDS = {log: uuid.uuid4().bytes for log in LOGS}
STEPS = st.one_of(
    st.tuples(st.just("set"), st.sampled_from(LOGS), st.integers(0, 5)),
    st.tuples(st.just("remove"), st.sampled_from(LOGS), st.just(0)),
    st.tuples(st.just("send"), st.none(), st.just(0)),
    st.tuples(st.just("lost"), st.none(), st.just(0)),
)


@given(st.lists(STEPS, max_size=60))
@settings(max_examples=examples(400))
def test_broker_knows_exactly_the_wanted_positions_after_every_request(steps: list[tuple[str, Any, int]]) -> None:
    session, offsets = BrokerSession(), {}
    broker: dict[tuple[bytes, int], int] = {}
    for action, log, offset in steps:
        if action == "set":
            offsets[log] = offset
            session.move(log) if log in session.logs else session.add(log, IDS[log])
        elif action == "remove":
            offsets.pop(log, None)
            session.remove(log)
        else:
            opening = session.epoch == EPOCH_OPEN
            before = dict(broker)
            wanted, forgotten = session.next_request(offsets)
            if opening:
                broker.clear()
            for each in wanted:
                key = each.topic_id, each.partition
                assert opening or broker.get(key) != each.offset, "what is known is not repeated"
                broker[key] = each.offset
            for key in forgotten:
                assert key in before, "only what is known is forgotten"
                del broker[key]
            assert broker == {(IDS[log], 0): position for log, position in offsets.items()}
            if action == "lost":
                session.reset(session.session_id)
            else:
                session.answered(FetchAnswer(0, 77, [], {}))


def test_epochs_count_and_wrap() -> None:
    session = BrokerSession()
    session.answered(FetchAnswer(0, 9, [], {}))
    assert (session.session_id, session.epoch) == (9, 1)
    session.epoch = 0x7FFFFFFF
    session.answered(FetchAnswer(0, 9, [], {}))
    assert session.epoch == 1
    session.answered(FetchAnswer(0, 0, [], {}))
    assert (session.session_id, session.epoch) == (0, EPOCH_OPEN), "the broker keeps no session: begin anew"


async def until_data(session: FetchSession, log: TP) -> bytes:
    async with asyncio.timeout(5):
        while True:
            content = (await session.poll(max_wait_ms=200)).get(log)
            if content is not None and content.records:
                return bytes(content.records)


async def test_only_what_changed_is_asked_and_answered(fake: FakeCluster, cluster: Cluster) -> None:
    logs = [TP(f"log.{index}") for index in range(30)]
    session = cluster.fetch_session()
    for log in logs:
        fake.log(log.topic)
        session.set(log, 0)
    while not (first := await session.poll(max_wait_ms=100)):  # nothing is new, so the answer may miss the first poll
        pass
    assert set(first) == set(logs), "the first answer tells where every log stands"
    assert await session.poll(max_wait_ms=0) == {}
    fake.logs["log.7"].append(batch(0))
    found = await session.poll(max_wait_ms=5000)
    assert set(found) == {logs[7]} and found[logs[7]].records
    again = await session.poll(max_wait_ms=5000)
    assert set(again) == {logs[7]}, "data comes again until the position is moved"
    session.set(logs[7], 1)
    session.forget(logs[3])
    assert await session.poll(max_wait_ms=0) == {}
    last = fake.seen(FETCH)[-1]
    assert [part.fetch_offset for topic in last.topics for part in topic.partitions] == [1]
    assert [topic.topic_id for topic in last.forgotten_topics_data] == [fake.logs["log.3"].topic_id]
    fake.logs["log.3"].append(batch(0))
    assert await session.poll(max_wait_ms=0) == {}
    assert [request.session_epoch for request in fake.seen(FETCH)] == list(range(len(fake.seen(FETCH))))
    await session.close()
    assert fake.sessions == {}, "a closed session is given back"


async def test_long_poll_returns_when_a_log_grows(fake: FakeCluster, cluster: Cluster) -> None:
    fake.log("log.a")
    session = cluster.fetch_session()
    session.set(A, 0)
    await session.poll(max_wait_ms=0)
    poll = asyncio.ensure_future(session.poll(max_wait_ms=10_000))
    await until(lambda: len(fake.seen(FETCH)) == 2)
    fake.logs["log.a"].append(batch(0))
    fake.change()
    async with asyncio.timeout(2):
        assert (await poll)[A].high_watermark == 1
    await session.close()


async def test_poll_without_logs_waits_for_one(fake: FakeCluster, cluster: Cluster) -> None:
    fake.log("log.a").append(batch(0))
    session = cluster.fetch_session()
    poll = asyncio.ensure_future(session.poll(max_wait_ms=10_000))
    await asyncio.sleep(0)
    session.set(A, 0)
    async with asyncio.timeout(2):
        assert (await poll)[A].records
    await session.close()


@pytest.mark.parametrize("log", [A, B], ids=["moved", "new"])
async def test_hurry_ends_a_long_poll_for_a_log_that_changed(fake: FakeCluster, cluster: Cluster, log: TP) -> None:
    fake.log("log.a").append(batch(0))
    fake.log("log.b").append(batch(0))
    session = cluster.fetch_session()
    session.set(A, 1)
    await session.poll(max_wait_ms=0)
    poll = asyncio.ensure_future(session.poll(max_wait_ms=60_000))
    await until(lambda: len(fake.seen(FETCH)) == 2)
    session.set(log, 0)
    session.cut_poll_short()  # at once: nobody has asked yet who leads the new log
    async with asyncio.timeout(5):
        assert (await poll)[log].records
    session.set(log, 1)
    await session.poll(max_wait_ms=0)
    session.cut_poll_short()
    assert await session.poll(max_wait_ms=0) == {}, "without a change no poll is cut short"
    await session.close()


@pytest.mark.parametrize("code", [70, 71])
async def test_lost_session_is_opened_anew(fake: FakeCluster, cluster: Cluster, code: int) -> None:
    fake.log("log.a").append(batch(0))
    session = cluster.fetch_session()
    session.set(A, 1)
    await session.poll(max_wait_ms=0)
    fake.fault(FETCH, Fault(code=code))
    fake.logs["log.a"].append(batch(1))
    assert await until_data(session, A) == fake.logs["log.a"].batches[1][1]
    assert len(fake.sessions) == 1, "no old session is left behind"
    await session.close()


@pytest.mark.parametrize("fault", [Fault(lose="before"), Fault(lose="after"), Fault(hang=True), Fault(cut=20)])
async def test_lost_connection_loses_no_records(fake: FakeCluster, fault: Fault) -> None:
    fake.log("log.a")
    async with await open_cluster(fake, seconds=0.3) as cluster:
        session = cluster.fetch_session()
        session.set(A, 0)
        await session.poll(max_wait_ms=0)
        fake.logs["log.a"].append(batch(0))
        fake.fault(FETCH, fault)
        assert await until_data(session, A) == fake.logs["log.a"].batches[0][1]
        await session.close()


async def test_a_broker_whose_answers_are_always_late_is_given_more_time(fake: FakeCluster) -> None:
    """Each of its answers takes longer than the usual request may take."""
    fake.log("log.a").append(batch(0))
    async with await open_cluster(fake, seconds=0.2) as cluster:
        session = cluster.fetch_session()
        session.set(A, 0)
        fake.fault(FETCH, *[Fault(late=0.5)] * 100)
        async with asyncio.timeout(10):
            while A not in await session.poll(max_wait_ms=20):
                pass
        await session.close()


async def test_unreachable_cluster_is_said_and_later_found(fake: FakeCluster) -> None:
    fake.log("log.a").append(batch(0))
    async with await open_cluster(fake, seconds=0.5) as cluster:
        session = cluster.fetch_session()
        session.set(A, 0)
        assert await until_data(session, A)
        await fake.stop(0)
        async with asyncio.timeout(5):
            with pytest.raises(ConnectionLost):
                while True:
                    await session.poll(max_wait_ms=100)
        await fake.start(0)
        assert await until_data(session, A)
        await session.close()


async def test_log_follows_its_leader(two: FakeCluster) -> None:
    log = two.log("log.a", leader=0)
    two.log("log.b", leader=1).append(batch(0))
    async with await open_cluster(two) as cluster:
        session = cluster.fetch_session()
        session.set(A, 0)
        session.set(B, 0)
        assert await until_data(session, B)
        session.set(B, 1)
        log.leader = 1
        log.append(batch(0))
        assert await until_data(session, A) == log.batches[0][1]
        await session.close()


async def test_a_log_whose_leader_is_away_is_named_until_it_is_served(two: FakeCluster) -> None:
    """The others are served meanwhile, so nothing else shows it."""
    two.log("log.a", leader=0).append(batch(0))
    two.log("log.b", leader=1)
    async with await open_cluster(two) as cluster:
        session = cluster.fetch_session()
        session.set(A, 0)
        session.set(B, 0)
        assert await until_data(session, A)
        assert session.unserved(0.0) == {}
        await two.stop(1)
        async with asyncio.timeout(5):
            while not session.unserved(0.2):
                assert await until_data(session, A)
        assert session.unserved(0.2) == {B: NETWORK_EXCEPTION}
        await two.start(1)
        async with asyncio.timeout(5):
            while session.unserved(0.0):  # also if it has nothing new
                await session.poll(max_wait_ms=50)
        await two.stop(1)
        async with asyncio.timeout(5):
            while not session.unserved(0.0):
                assert await until_data(session, A)
        session.forget(B)
        assert session.unserved(0.0) == {}
        await session.close()


async def test_offset_that_is_gone_is_said_once_and_the_log_rests(fake: FakeCluster, cluster: Cluster) -> None:
    log = fake.log("log.a")
    for offset in range(3):
        log.append(batch(offset))
    log.start = 2
    session = cluster.fetch_session()
    session.set(A, 0)
    assert (await session.poll(max_wait_ms=200))[A].error_code == 1
    assert len(session) == 0
    assert await session.poll(max_wait_ms=50) == {}
    session.set(A, 2)
    assert await until_data(session, A) == log.batches[2][1]
    await session.close()


async def test_recreated_topic_is_never_served_quietly(fake: FakeCluster, cluster: Cluster) -> None:
    fake.log("log.a").append(batch(0))
    session = cluster.fetch_session()
    session.set(A, 1)
    await session.poll(max_wait_ms=0)
    fake.log("log.a")  # another id
    for offset in range(3):
        fake.logs["log.a"].append(batch(offset, value=b"other"))
    codes: set[int] = set()
    async with asyncio.timeout(5):
        while not codes:
            codes = {content.error_code for content in (await session.poll(max_wait_ms=200)).values()}
    assert codes == {100}
    session.set(A, 0)
    assert await until_data(session, A)
    await session.close()


async def test_topic_that_does_not_exist_yet_is_waited_for(fake: FakeCluster, cluster: Cluster) -> None:
    session = cluster.fetch_session()
    session.set(C, 0)
    assert await session.poll(max_wait_ms=50) == {}
    fake.log("log.c").append(batch(0))
    assert await until_data(session, C)
    await session.close()


async def test_forbidden_topic_is_said(fake: FakeCluster, cluster: Cluster) -> None:
    fake.log("log.a")
    fake.fault(FETCH, Fault(code=29))
    session = cluster.fetch_session()
    session.set(A, 0)
    assert (await session.poll(max_wait_ms=500))[A].error_code == 29
    await session.close()


async def test_cancelled_poll_loses_nothing(fake: FakeCluster, cluster: Cluster) -> None:
    log = fake.log("log.a")
    session = cluster.fetch_session()
    session.set(A, 0)
    await session.poll(max_wait_ms=0)
    poll = asyncio.ensure_future(session.poll(max_wait_ms=5000))
    await until(lambda: len(fake.seen(FETCH)) == 2)
    poll.cancel()
    await asyncio.gather(poll, return_exceptions=True)
    log.append(batch(0))
    fake.change()
    assert (await session.poll(max_wait_ms=5000))[A].records
    await session.close()


async def test_answer_for_a_position_that_was_moved_meanwhile_is_dropped(fake: FakeCluster, cluster: Cluster) -> None:
    log = fake.log("log.a")
    for offset in range(2):
        log.append(batch(offset))
    session = cluster.fetch_session()
    session.set(A, 0)
    fake.fault(FETCH, Fault(first=lambda: session.set(A, 1)))
    assert await until_data(session, A) == log.batches[1][1]
    await session.close()


async def test_one_slow_leader_does_not_hold_up_the_other() -> None:
    async with running(brokers=2) as two:
        two.log("log.a", leader=0)
        two.log("log.b", leader=1).append(batch(0))
        async with await open_cluster(two) as cluster:
            session = cluster.fetch_session()
            session.set(A, 0)
            session.set(B, 0)
            async with asyncio.timeout(3):
                assert await until_data(session, B)
            await session.close()


@pytest.mark.parametrize("known", [True, False])
async def test_a_log_that_is_forgotten_while_its_leader_is_asked_for(
    fake: FakeCluster, cluster: Cluster, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not followed, whatever the answer is, and the others are."""
    fake.log("log.a").append(batch(0))
    if known:
        fake.log("log.b")
    ask = cluster.by_leader

    async def slow(logs: Iterable[TP]) -> dict[int, list[TP]]:
        found = await ask(logs)
        session.forget(B)
        return found

    monkeypatch.setattr(cluster, "by_leader", slow)
    session = cluster.fetch_session()
    session.set(A, 0)
    session.set(B, 0)
    assert await until_data(session, A)
    assert len(session) == 1
    assert await session.poll(max_wait_ms=0) != {}
    assert all(len(request.topics) <= 1 for request in fake.seen(FETCH))
    await session.close()


# --- followers (KIP-392)


@pytest.fixture
async def near(two: FakeCluster) -> AsyncIterator[Cluster]:
    """Connect to two brokers from rack ``east``. Broker 0 leads ``log.a`` and names broker 1 there."""
    two.log("log.a", leader=0, near={"east": 1}).append(batch(0))
    endpoint = dataclasses.replace(two.endpoint(), rack="east")
    async with await Cluster.open(endpoint, client_id="test", request_timeout=2.0) as cluster:
        yield cluster


def fetched(fake: FakeCluster) -> list[tuple[int, str]]:
    """Return the node and the rack of each Fetch request."""
    return [(node, request.rack_id) for node, key, request in fake.requests if key == FETCH]


async def test_a_log_is_fetched_from_the_follower_that_its_leader_names(two: FakeCluster, near: Cluster) -> None:
    session = near.fetch_session()
    session.set(A, 0)
    assert await until_data(session, A)
    session.set(A, 1)
    two.logs["log.a"].append(batch(1))
    assert await until_data(session, A)
    assert [node for node, _ in fetched(two)][:1] == [0] and {node for node, _ in fetched(two)[1:]} == {1}
    await session.close()


async def test_with_a_rack_no_request_waits_long(two: FakeCluster, near: Cluster) -> None:
    """A log that another broker has given to this one would wait for the request that is under way."""
    session = near.fetch_session()
    session.set(A, 1)
    assert A in await session.poll(max_wait_ms=5000)
    two.requests.clear()
    poll = asyncio.ensure_future(session.poll(max_wait_ms=60_000))
    await until(lambda: fetched(two))
    assert all(request.max_wait_ms <= 1001 for request in two.seen(FETCH))
    two.log("log.b", leader=1).append(batch(0))
    session.set(B, 0)
    async with asyncio.timeout(10):
        assert B in await poll
    await session.close()


async def test_without_a_rack_leaders_are_asked(two: FakeCluster) -> None:
    two.log("log.a", leader=0, near={"east": 1}).append(batch(0))
    async with await open_cluster(two) as cluster:
        session = cluster.fetch_session()
        session.set(A, 0)
        assert await until_data(session, A)
        assert set(fetched(two)) == {(0, "")}
        await session.close()


async def test_the_leader_serves_when_the_follower_dies_although_it_still_names_it(
    two: FakeCluster, near: Cluster
) -> None:
    session = near.fetch_session()
    session.set(A, 0)
    assert await until_data(session, A)
    session.set(A, 1)
    await two.stop(1)
    two.requests.clear()
    two.logs["log.a"].append(batch(1))
    assert await until_data(session, A)
    assert fetched(two)[-1] == (0, "")
    await session.close()


@pytest.mark.parametrize("code", [1, 3, 9, 29, 74, 78])
async def test_the_leader_decides_after_an_error_of_the_follower(two: FakeCluster, near: Cluster, code: int) -> None:
    """Nothing is reported to the caller, whatever a follower says."""
    session = near.fetch_session()
    session.set(A, 0)
    assert await until_data(session, A)
    session.set(A, 1)
    two.logs["log.a"].append(batch(1))
    two.fault(FETCH, Fault(code=code))
    async with asyncio.timeout(5):
        while not (found := (await session.poll(max_wait_ms=200)).get(A)):
            pass
    assert (found.error_code, bool(found.records)) == (0, True)
    await session.close()


async def test_leaders_are_asked_again_from_time_to_time(
    two: FakeCluster, near: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.kafka.client.fetch_session.PREFERRED_SECONDS", 0.05)
    session = near.fetch_session()
    session.set(A, 0)
    assert await until_data(session, A)
    two.logs["log.a"].near = {"west": 1}
    two.logs["log.a"].append(batch(1))
    two.requests.clear()
    session.set(A, 1)
    async with asyncio.timeout(5):
        while (0, "east") not in fetched(two):
            await session.poll(max_wait_ms=50)
    assert await until_data(session, A)
    assert fetched(two)[-1][0] == 0
    await session.close()
