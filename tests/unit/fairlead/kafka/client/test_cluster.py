"""Metadata, routing and retries of one cluster, against scripted brokers."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from fairlead.kafka.client import cluster as module
from fairlead.kafka.client import pool
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.connection import Connection
from fairlead.kafka.protocol import fetch_codec
from fairlead.kafka.protocol.batch import parse_header
from fairlead.kafka.protocol.errors import AuthenticationFailed, BrokerError, ConnectionLost, RequestTimeout
from fairlead.kafka.protocol.types import TP, ProduceResult, ProducerState
from tests.support.kafka.fake_broker import (
    DESCRIBE_PRODUCERS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    FakeCluster,
    Fault,
    open_cluster,
    running,
    until,
)
from tests.support.kafka.fake_log import A, B, C, batch

# --- opening and metadata


async def test_opening_an_unreachable_cluster_names_the_address() -> None:
    async with running() as fake:
        endpoint = fake.endpoint()
        await fake.stop(0)
        with pytest.raises(ConnectionLost) as caught:
            await Cluster.open(endpoint, client_id="test", request_timeout=1)
    assert caught.value.retriable and caught.value.fields["address"] == f"127.0.0.1:{endpoint.bootstrap[0][1]}"


async def test_opening_finds_the_broker_that_is_up(two: FakeCluster) -> None:
    await two.stop(0)
    async with await open_cluster(two) as cluster:
        two.log("log.a", leader=1)
        assert await cluster.end_offsets([A]) == {A: 0}


async def test_wrong_password_fails_at_once() -> None:
    async with running(users={"bridge": "right"}) as fake:
        with pytest.raises(AuthenticationFailed):
            await Cluster.open(fake.endpoint(user="bridge", password="wrong"), client_id="test")
        assert fake.connections == {0: 1}, "a refused login is not tried again"


async def test_who_was_let_in_before_may_be_refused_for_a_moment() -> None:
    """A broker that was killed opens its port before it has read its users again."""
    users = {"bridge": "right"}
    async with running(users=users) as fake:
        fake.log("log.a")
        endpoint = fake.endpoint(user="bridge", password="right")
        async with await Cluster.open(endpoint, client_id="test", request_timeout=2) as cluster:
            users.clear()
            fake.cut(0)
            with pytest.raises(ConnectionLost, match="refused the login of user 'bridge'") as caught:
                await cluster.topics(["log.a"], refresh=True)
            assert caught.value.retriable
            users["bridge"] = "right"
            assert set(await cluster.topics(["log.a"], refresh=True)) == {"log.a"}


async def test_who_is_refused_for_longer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.kafka.client.pool.REFUSED_SECONDS", 0.05)
    users = {"bridge": "right"}
    async with running(users=users) as fake:
        endpoint = fake.endpoint(user="bridge", password="right")
        async with await Cluster.open(endpoint, client_id="test", request_timeout=2) as cluster:
            users.clear()
            fake.cut(0)
            async with asyncio.timeout(10):
                with pytest.raises(AuthenticationFailed):
                    while True:
                        with contextlib.suppress(ConnectionLost):
                            await cluster.topics(["log.a"], refresh=True)


async def test_topics_leaves_out_what_is_unknown_or_forbidden(fake: FakeCluster, cluster: Cluster) -> None:
    log = fake.log("log.a")
    found = await cluster.topics(["log.a", "log.b"])
    assert list(found) == ["log.a"]
    assert found["log.a"].topic_id == log.topic_id.bytes and found["log.a"].partitions == {0: 0}
    fake.fault(METADATA, Fault(code=29))
    assert await cluster.topics(["log.a"], refresh=True) == {}


async def test_all_topics_are_always_asked_for(fake: FakeCluster, cluster: Cluster) -> None:
    fake.log("log.a")
    assert set(await cluster.topics()) == {"log.a"}
    fake.log("log.b")
    del fake.logs["log.a"]
    assert set(await cluster.topics()) == {"log.b"}


async def test_callers_at_the_same_time_share_one_metadata_request(fake: FakeCluster, cluster: Cluster) -> None:
    for index in range(50):
        fake.log(f"log.{index}")
    before = len(fake.seen(METADATA))
    await asyncio.gather(*(cluster.topics([f"log.{index}"], refresh=True) for index in range(50)))
    assert len(fake.seen(METADATA)) - before <= 2


# --- offsets and producers


async def test_offsets_of_many_logs_are_one_request_per_leader(two: FakeCluster) -> None:
    logs = [TP(f"log.{index}") for index in range(40)]
    for index, log in enumerate(logs):
        two.log(log.topic, leader=index % 2).append(batch(0, index + 1))
    async with await open_cluster(two) as cluster:
        assert await cluster.end_offsets(logs) == {log: index + 1 for index, log in enumerate(logs)}
        assert [node for node, key, _ in two.requests if key == LIST_OFFSETS] in ([0, 1], [1, 0])
        states = await cluster.producer_states(logs)
        assert states[logs[4]] == (ProducerState(2**62, 1, 4, 1004),)
        assert len(two.seen(DESCRIBE_PRODUCERS)) == 2


async def test_starts_times_and_deletion(fake: FakeCluster, cluster: Cluster) -> None:
    log = fake.log("log.a")
    for offset in range(5):
        log.append(batch(offset))
    assert await cluster.offsets_at({A: 1003}) == {A: 3}
    assert await cluster.offsets_at({A: 9999}) == {A: -1}
    assert await cluster.start_offsets([A]) == {A: 0}
    assert await cluster.delete_records({A: 2}) == {A: 2}
    assert await cluster.start_offsets([A]) == {A: 2}


@pytest.mark.parametrize("code", [3, 5, 6, 7, 78])
async def test_passing_trouble_is_retried_inside(fake: FakeCluster, cluster: Cluster, code: int) -> None:
    fake.log("log.a").append(batch(0))
    fake.fault(LIST_OFFSETS, Fault(code=code), Fault(code=code))
    assert await cluster.end_offsets([A]) == {A: 1}


async def test_leader_that_moved_is_found(two: FakeCluster) -> None:
    log = two.log("log.a", leader=0)
    log.append(batch(0))
    async with await open_cluster(two) as cluster:
        assert await cluster.end_offsets([A]) == {A: 1}
        log.leader = 1
        assert await cluster.end_offsets([A]) == {A: 1}
        assert [node for node, key, _ in two.requests if key == LIST_OFFSETS] == [0, 0, 1]


async def test_errors_that_stay_are_in_the_answer(
    fake: FakeCluster, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.kafka.client.cluster.UNKNOWN_FOR", 0.1)
    fake.log("log.a")
    answers = await cluster.end_offsets([A, B])
    error = answers[B]
    assert answers[A] == 0 and isinstance(error, BrokerError)
    assert (error.code, error.log) == (3, B)
    fake.fault(LIST_OFFSETS, Fault(code=29))
    error = (await cluster.end_offsets([A]))[A]
    assert isinstance(error, BrokerError) and error.code == 29
    fake.fault(DESCRIBE_PRODUCERS, Fault(code=29))
    with pytest.raises(BrokerError, match="29"):
        await cluster.producer_states([A])


@pytest.mark.parametrize("when", ["before", "after"])
async def test_lost_connections_are_mended(fake: FakeCluster, cluster: Cluster, when: str) -> None:
    fake.log("log.a").append(batch(0))
    fake.fault(LIST_OFFSETS, Fault(lose=when), Fault(lose=when))
    assert await cluster.end_offsets([A]) == {A: 1}


@pytest.mark.parametrize("key", [FETCH, METADATA, PRODUCE, LIST_OFFSETS])
@pytest.mark.parametrize("cut", [6, 25])
async def test_answers_that_cannot_be_decoded_are_trouble_that_passes(
    fake: FakeCluster, cluster: Cluster, key: int, cut: int
) -> None:
    fake.log("log.a").append(batch(0))
    fake.fault(key, Fault(cut=cut))
    assert (await cluster.topic_changes()) is not None
    assert await cluster.end_offsets([A]) == {A: 1}
    assert (await cluster.fetch({A: 0}))[A].high_watermark == 1
    assert (await cluster.produce({A: batch(1)}))[A].error_code == (13 if key == PRODUCE else 0)


async def test_an_answer_about_another_log_is_trouble_that_passes(
    fake: FakeCluster, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.log("log.a").append(batch(0))
    decode = fetch_codec.decode_response

    def other(frame: bytearray, position: int) -> fetch_codec.FetchAnswer:
        monkeypatch.setattr(fetch_codec, "decode_response", decode)
        found = decode(frame, position)
        return found._replace(partitions=[(bytes(16), *rest) for _, *rest in found.partitions])  # type: ignore[misc]

    await cluster.end_offsets([A])
    monkeypatch.setattr(fetch_codec, "decode_response", other)
    assert (await cluster.fetch({A: 0}))[A].high_watermark == 1


async def test_broker_that_comes_back_is_found_again(fake: FakeCluster, cluster: Cluster) -> None:
    fake.log("log.a").append(batch(0))
    assert await cluster.end_offsets([A]) == {A: 1}
    await fake.stop(0)
    call = asyncio.ensure_future(cluster.end_offsets([A]))
    await asyncio.sleep(0.2)  # long enough for the first attempts to fail
    assert not call.done()
    await fake.start(0)
    assert await call == {A: 1}


async def test_broker_that_stays_away_is_an_error_in_the_end(fake: FakeCluster) -> None:
    fake.log("log.a")
    async with await open_cluster(fake, seconds=0.3) as cluster:
        await cluster.topics(["log.a"])
        await fake.stop(0)
        with pytest.raises(ConnectionLost):
            await cluster.end_offsets([A])
        with pytest.raises(ConnectionLost):
            await cluster.topics()


async def test_closed_cluster_says_so(fake: FakeCluster) -> None:
    cluster = await open_cluster(fake, seconds=0.1)
    await cluster.close()
    with pytest.raises(ConnectionLost, match="closed"):
        await cluster.topics()


async def test_who_waits_for_a_connection_of_a_cluster_that_is_closed_goes_on(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else's task, which nobody has cancelled, must not end as if somebody had."""
    fake.log("log.a")
    cluster = await open_cluster(fake)
    begun = asyncio.Event()

    async def hang(*_: object, **__: object) -> Connection:
        begun.set()
        return await asyncio.Event().wait()  # type: ignore[return-value]

    monkeypatch.setattr(pool, "connect", hang)
    asking = asyncio.create_task(cluster.fetch({A: 0}))
    await begun.wait()
    await cluster.close()
    async with asyncio.timeout(5):
        with pytest.raises(ConnectionLost, match="was closed"):
            await asking


async def test_who_is_cancelled_while_it_waits_for_a_connection_ends(
    fake: FakeCluster, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = asyncio.Event()

    async def hang(*_: object, **__: object) -> Connection:
        begun.set()
        return await asyncio.Event().wait()  # type: ignore[return-value]

    monkeypatch.setattr(pool, "connect", hang)
    asking = asyncio.create_task(cluster.pool.get("a role of its own", 0))
    await begun.wait()
    asking.cancel()
    closing = asyncio.create_task(cluster.close())
    with pytest.raises(asyncio.CancelledError):
        await asking
    await closing


async def test_wait_writable_waits_for_topics_that_come_late(
    fake: FakeCluster, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.kafka.client.cluster.UNKNOWN_FOR", 0.0)
    fake.log("log.a")
    fake.fault(LIST_OFFSETS, Fault(code=6), Fault(code=3))
    fake.fault(METADATA, Fault(), Fault(), Fault(first=lambda: fake.log("log.b")))
    await cluster.wait_writable(["log.a", "log.b"], timeout=5)
    with pytest.raises(RequestTimeout) as caught:
        await cluster.wait_writable(["log.a", "log.c"], timeout=0.2)
    assert caught.value.fields["logs"] == ["log.c"]
    assert [tp.topic for tp in await cluster.unserved(["log.a", "log.c"], timeout=0.2)] == ["log.c"]


# --- produce


async def test_produce_is_one_request_per_leader(two: FakeCluster) -> None:
    for index in range(20):
        two.log(f"log.{index}", leader=index % 2)
    async with await open_cluster(two) as cluster:
        results = await cluster.produce({TP(f"log.{index}"): batch(0) for index in range(20)})
        assert len(results) == 20 and all(result.appended_now for result in results.values())
        assert sorted(node for node, key, _ in two.requests if key == PRODUCE) == [0, 1]


async def test_overlapping_calls_keep_their_order(fake: FakeCluster, cluster: Cluster) -> None:
    """From the very first call on, when neither metadata nor a connection are there yet."""
    log = fake.log("log.a")
    answers = await asyncio.gather(*(cluster.produce({A: batch(offset)}) for offset in range(60)))
    assert [answer[A].base_offset for answer in answers] == list(range(60))
    assert all(answer[A].appended_now for answer in answers)
    assert [header.base_offset for header, _ in log.batches] == list(range(60))


async def test_produce_passes_on_what_the_broker_says(fake: FakeCluster, cluster: Cluster) -> None:
    fake.log("log.a")
    assert (await cluster.produce({A: batch(0)}))[A] == ProduceResult(0, 0, -1, 0)
    duplicate = (await cluster.produce({A: batch(0)}))[A]
    assert duplicate == ProduceResult(0, 0, 1000, 0) and not duplicate.appended_now
    assert (await cluster.produce({A: batch(5)}))[A].error_code == 45
    results = await cluster.produce({A: batch(1), B: batch(0)})
    assert (results[A].error_code, results[B].error_code) == (0, 3)


@pytest.mark.parametrize(
    ("fault", "code"),
    [(Fault(lose="before"), 13), (Fault(lose="after"), 13), (Fault(hang=True), 7), (Fault(code=19), 19)],
)
async def test_produce_never_raises_for_a_brokers_trouble(fake: FakeCluster, fault: Fault, code: int) -> None:
    fake.log("log.a")
    async with await open_cluster(fake, seconds=0.3) as cluster:
        fake.fault(PRODUCE, fault)
        assert (await cluster.produce({A: batch(0)}))[A].error_code == code
        assert (await cluster.produce({A: batch(0)}))[A].error_code == 0


async def test_produce_waits_while_the_broker_throttles(fake: FakeCluster) -> None:
    fake.log("log.a")
    async with await open_cluster(fake, seconds=0.3) as cluster:
        fake.fault(PRODUCE, Fault(throttle_ms=900))
        for number in range(2):
            assert (await cluster.produce({A: batch(number)}))[A].appended_now


@pytest.mark.parametrize("highest", [9, 12, 13])
async def test_produce_by_the_version_that_the_broker_offers(fake: FakeCluster, highest: int) -> None:
    fake.offered[PRODUCE] = highest
    fake.log(A.topic)
    async with await open_cluster(fake) as cluster:
        assert (await cluster.produce({A: batch(0)}))[A].appended_now
    [sent] = [request for _, key, request in fake.requests if key == PRODUCE]
    assert bool(sent.topic_data[0].topic_id) == (highest == 13)


async def test_a_topic_that_was_made_anew_takes_no_batch_of_the_old_one(fake: FakeCluster, cluster: Cluster) -> None:
    fake.log(A.topic)
    await cluster.topics([A.topic])
    pinned = cluster.topic_ids([A])
    fake.log(A.topic)
    assert (await cluster.produce({A: batch(0)}, topic_ids=pinned))[A].error_code == 100
    assert fake.logs[A.topic].end == 0
    await cluster.topics([A.topic], refresh=True)
    assert (await cluster.produce({A: batch(0)}, topic_ids=pinned))[A].error_code == 100
    assert (await cluster.produce({A: batch(0)}))[A].appended_now  # for a caller that does not mind


async def test_an_older_broker_appends_to_a_topic_that_was_made_anew(fake: FakeCluster) -> None:
    fake.offered[PRODUCE] = 12
    fake.log(A.topic)
    async with await open_cluster(fake) as cluster:
        await cluster.topics([A.topic])
        pinned = cluster.topic_ids([A])
        fake.log(A.topic)
        assert (await cluster.produce({A: batch(0)}, topic_ids=pinned))[A].appended_now


async def test_a_log_whose_topic_id_is_not_given_is_not_sent(fake: FakeCluster, cluster: Cluster) -> None:
    fake.log(A.topic)
    fake.log(B.topic)
    await cluster.topics([A.topic, B.topic])
    results = await cluster.produce({A: batch(0), B: batch(0)}, topic_ids=cluster.topic_ids([A]))
    assert (results[A].error_code, results[B].error_code) == (0, 3)
    assert fake.logs[B.topic].end == 0


async def test_produce_finds_the_new_leader_with_the_next_call(two: FakeCluster) -> None:
    log = two.log("log.a", leader=0)
    async with await open_cluster(two) as cluster:
        assert (await cluster.produce({A: batch(0)}))[A].error_code == 0
        log.leader = 1
        assert (await cluster.produce({A: batch(1)}))[A].error_code == 6
        assert (await cluster.produce({A: batch(1)}))[A].error_code == 0


async def test_nothing_is_sent_over_a_replaced_connection(fake: FakeCluster, cluster: Cluster) -> None:
    fake.log("log.a")
    await cluster.produce({A: batch(0)})
    incarnation = cluster.pool.incarnation(module.PRODUCE, 0)
    fake.cut(0)
    await until(lambda: cluster.pool.ready(module.PRODUCE, 0) is None)
    sent = len(fake.seen(PRODUCE))
    assert (await cluster.produce_to(0, {A: batch(1)}, 1000, incarnation, None))[A].error_code == 13
    assert len(fake.seen(PRODUCE)) == sent
    assert (await cluster.produce({A: batch(1)}))[A].error_code == 0
    assert cluster.pool.incarnation(module.PRODUCE, 0) == incarnation + 1


# --- fetch without a session


async def test_fetch_gives_stored_batches_and_where_the_log_stands(fake: FakeCluster, cluster: Cluster) -> None:
    log = fake.log("log.a")
    for offset in range(3):
        log.append(batch(offset))
    fake.log("log.b")
    found = await cluster.fetch({A: 1, B: 0, C: 0}, max_wait_ms=0)
    assert found[A].high_watermark == 3 and found[A].log_start_offset == 0
    assert bytes(found[A].records) == b"".join(data for _, data in log.batches[1:])
    assert found[B].error_code == 0 and not found[B].records
    assert found[C].error_code == 3
    assert parse_header(found[A].records).base_offset == 1


async def test_fetch_beyond_the_end_says_so(fake: FakeCluster, cluster: Cluster) -> None:
    fake.log("log.a")
    assert (await cluster.fetch({A: 5}, max_wait_ms=0))[A].error_code == 1


async def test_fetch_retries_what_passes(fake: FakeCluster, cluster: Cluster) -> None:
    fake.log("log.a").append(batch(0))
    fake.fault(FETCH, Fault(code=6), Fault(lose="before"))
    assert (await cluster.fetch({A: 0}))[A].high_watermark == 1


async def test_fetch_waits_for_new_records(fake: FakeCluster, cluster: Cluster) -> None:
    log = fake.log("log.a")
    call = asyncio.ensure_future(cluster.fetch({A: 0}, max_wait_ms=5000))
    await until(lambda: fake.seen(FETCH))
    log.append(batch(0))
    fake.change()
    async with asyncio.timeout(2):
        assert (await call)[A].high_watermark == 1
