"""The appender against a scripted broker: group commit, terms, and everything that can go wrong with an append."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest

from fairlead.errors import FairleadError
from fairlead.kafka.client import append_sender as module
from fairlead.kafka.client.appender import Appender
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import PRODUCER_ID, term_batch
from fairlead.kafka.protocol.batch import MAGIC_AT, parse_header
from fairlead.kafka.protocol.errors import (
    AuthenticationFailed,
    BrokerError,
    Conflict,
    ConnectionLost,
    CorruptBatch,
    Fenced,
    Misplaced,
    WireError,
)
from fairlead.kafka.protocol.record import NewRecord, encode_batch
from fairlead.kafka.protocol.types import TP, Appended, FetchedPartition, LogPosition, ProduceResult
from tests.support.kafka.fake_broker import (
    DESCRIBE_PRODUCERS,
    FETCH,
    LIST_OFFSETS,
    PRODUCE,
    FakeCluster,
    Fault,
    open_cluster,
    running,
    until,
)
from tests.support.kafka.fake_log import FakeLog, damage, marker, record, stored

A, B = TP("log.a"), TP("log.b")


def by_another(log: FakeLog, *texts: str, term: int = 1, start: int = 0) -> Callable[[], object]:
    """Another writer of the same term appends at the log's end."""
    return lambda: log.append(term_batch([record(text) for text in texts], term=term, offset=log.end, marker=start))


async def opened(fake: FakeCluster, appender: Appender, log: TP = A, term: int = 1) -> FakeLog:
    """A log whose term is open."""
    kept = fake.log(log.topic)
    await appender.open_term(log, term, marker(f"marker {term}"))
    return kept


# --- the ordinary case


async def test_term_is_opened_and_records_follow(fake: FakeCluster, appender: Appender) -> None:
    log = fake.log("log.a")
    assert await appender.position(A) is None
    assert await appender.open_term(A, 3, marker("marker")) == Appended(0, 1)
    assert await appender.position(A) == LogPosition(1, 3, 0)
    assert await appender.append(A, [record("one")]) == Appended(1, 1)
    assert await appender.append(A, [record("two"), record("three")]) == Appended(2, 2)
    assert await appender.position(A) == LogPosition(4, 3, 0)
    assert stored(log) == ["marker", "one", "two", "three"]
    for header, _ in log.batches:
        assert (header.producer_id, header.producer_epoch) == (PRODUCER_ID, 3)
        assert header.base_offset - header.base_sequence == 0


async def test_next_term_begins_at_the_logs_end(fake: FakeCluster, appender: Appender) -> None:
    log = await opened(fake, appender)
    await appender.append(A, [record("one")])
    assert await appender.open_term(A, 7, marker("seven")) == Appended(2, 1)
    assert await appender.append(A, [record("two")]) == Appended(3, 1)
    assert [(h.producer_epoch, h.base_sequence) for h, _ in log.batches] == [(1, 0), (1, 1), (7, 0), (7, 1)]
    assert await appender.position(A) == LogPosition(4, 7, 2)


async def test_appends_that_wait_share_the_next_batch(fake: FakeCluster, appender: Appender) -> None:
    log = await opened(fake, appender)
    tasks = [asyncio.ensure_future(appender.append(A, [record(f"r{index}")])) for index in range(50)]
    results = await asyncio.gather(*tasks)
    assert [result.base_offset for result in results] == list(range(1, 51))
    assert stored(log)[1:] == [f"r{index}" for index in range(50)]
    assert len(log.batches) <= 4


async def test_many_logs_share_one_request(fake: FakeCluster, cluster: Cluster) -> None:
    appender = Appender(cluster, linger=0.02)
    logs = [TP(f"log.{index}") for index in range(200)]
    for log in logs:
        fake.log(log.topic)
    await asyncio.gather(*(appender.open_term(log, 1, marker("m")) for log in logs))
    assert len(fake.seen(PRODUCE)) == 1
    for api in (LIST_OFFSETS, DESCRIBE_PRODUCERS, FETCH):
        assert len(fake.seen(api)) <= 1
    await asyncio.gather(*(appender.append(log, [record("x")]) for log in logs))
    assert len(fake.seen(PRODUCE)) == 2
    await appender.close()


async def test_never_more_than_one_batch_of_a_log_under_way(fake: FakeCluster, appender: Appender) -> None:
    await opened(fake, appender)
    await opened(fake, appender, B)
    await asyncio.gather(
        *(appender.append(log, [record(f"{index}")]) for index in range(100) for log in (A, B)),
    )
    for request in fake.seen(PRODUCE):
        names = [topic.name for topic in request.topic_data]
        assert len(names) == len(set(names))
        assert all(len(topic.partition_data) == 1 for topic in request.topic_data)


async def test_large_append_goes_in_several_batches_one_after_the_other(fake: FakeCluster, cluster: Cluster) -> None:
    appender = Appender(cluster, linger=0.0, max_batch_bytes=2000)
    log = await opened(fake, appender)
    small = asyncio.ensure_future(appender.append(A, [record("first")]))
    large = asyncio.ensure_future(appender.append(A, [record(f"r{index}", 300) for index in range(40)]))
    last = asyncio.ensure_future(appender.append(A, [record("last", 5000)]))
    assert await small == Appended(1, 1)
    assert await large == Appended(2, 40)
    assert await last == Appended(42, 1)
    assert stored(log)[1:] == ["first", *(f"r{index}" for index in range(40)), "last"]
    assert max(len(data) for header, data in log.batches if header.count > 1) <= 2061
    await appender.close()


async def test_wrong_arguments_are_refused_before_anything_is_sent(fake: FakeCluster, appender: Appender) -> None:
    with pytest.raises(FairleadError, match="at least one"):
        await appender.append(A, [])
    with pytest.raises(FairleadError, match="time -1"):
        await appender.append(A, [NewRecord(b"x", timestamp_ms=-1)])
    with pytest.raises(FairleadError, match="32767"):
        await appender.open_term(A, 0, marker("m"))
    assert fake.seen(PRODUCE) == []


# --- outcome unknown


@pytest.mark.parametrize("fault", [Fault(lose="before"), Fault(lose="after"), Fault(hang=True)], ids=repr)
async def test_lost_answer_loses_and_repeats_nothing(fake: FakeCluster, fault: Fault) -> None:
    client = await Cluster.open(fake.endpoint(), client_id="test", request_timeout=0.3)
    appender = Appender(client, linger=0.0)
    log = await opened(fake, appender)
    fake.fault(PRODUCE, fault, fault)
    results = await asyncio.gather(*(appender.append(A, [record(f"r{index}")]) for index in range(5)))
    assert [result.base_offset for result in results] == [1, 2, 3, 4, 5]
    assert stored(log)[1:] == [f"r{index}" for index in range(5)]
    await appender.close()
    await client.close()


@pytest.mark.parametrize("when", ["before", "after"])
async def test_lost_answer_to_a_marker(fake: FakeCluster, appender: Appender, when: str) -> None:
    log = await opened(fake, appender)
    fake.fault(PRODUCE, Fault(lose=when))
    assert await appender.open_term(A, 2, marker("two")) == Appended(1, 1)
    assert await appender.append(A, [record("x")]) == Appended(2, 1)
    assert stored(log) == ["marker 1", "two", "x"]


@pytest.mark.parametrize("code", [3, 5, 6, 7, 13, 19, 20, 56])
async def test_passing_errors_are_tried_again_with_the_same_bytes(
    fake: FakeCluster, appender: Appender, code: int
) -> None:
    log = await opened(fake, appender)
    fake.fault(PRODUCE, Fault(code=code), Fault(code=code))
    assert await appender.append(A, [record("x")]) == Appended(1, 1)
    sent = [bytes(request.topic_data[0].partition_data[0].records) for request in fake.seen(PRODUCE)[1:]]
    assert len(sent) == 3 and len(set(sent)) == 1
    assert stored(log) == ["marker 1", "x"]


async def test_own_batch_found_by_the_duplicate_answer(
    fake: FakeCluster, appender: Appender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt is stored but not yet committed, so that the guard cannot see it."""
    monkeypatch.setattr("fairlead.kafka.client.guard.SETTLE_SECONDS", 0.0)
    log = await opened(fake, appender)

    def uncommitted() -> None:
        log.lag = 1

    fake.fault(PRODUCE, Fault(lose="after", first=uncommitted))
    task = asyncio.ensure_future(appender.append(A, [record("x")]))
    await until(lambda: len(fake.seen(PRODUCE)) == 3)
    assert not task.done(), "stored is not enough: the batch must be readable to be compared"
    log.lag = 0
    fake.change()
    assert await task == Appended(1, 1)
    assert stored(log) == ["marker 1", "x"]


async def test_own_batch_found_after_error_45(
    fake: FakeCluster, appender: Appender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.kafka.client.guard.SETTLE_SECONDS", 0.0)
    log = await opened(fake, appender)

    def hidden() -> None:
        log.lag = 1

    def forgotten() -> None:
        log.lag = 0
        log.producers[PRODUCER_ID].recent.clear()

    fake.fault(PRODUCE, Fault(lose="after", first=hidden), Fault(first=forgotten))
    assert await appender.append(A, [record("x")]) == Appended(1, 1)
    assert fake.seen(PRODUCE)[-1].topic_data and stored(log) == ["marker 1", "x"]


async def test_lost_connection_at_one_log_leaves_the_others_with_one_request(
    fake: FakeCluster, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two logs' batches are looked for at once, and one look ends with a lost connection: the other log goes on, and
    stays with the request that carries it. In two requests at once its next batch would be sent twice."""
    appender = Appender(cluster, linger=0.0)
    logs = {log: await opened(fake, appender, log) for log in (A, B)}
    first = [asyncio.ensure_future(appender.append(log, [record("first")])) for log in logs]
    lost, second_sent, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()
    sent: list[TP] = []
    fetch, produce_to = cluster.fetch, cluster.produce_to

    async def scripted_fetch(positions: dict[TP, int], **settings: Any) -> dict[TP, FetchedPartition]:
        if not lost.is_set() and A in positions:
            lost.set()
            raise ConnectionLost("cut")
        await lost.wait()
        return await fetch(positions, **settings)

    async def scripted_produce(node: int, batches: dict[TP, bytes], *rest: Any) -> dict[TP, ProduceResult]:
        if not lost.is_set():
            await produce_to(node, batches, *rest)
            return dict.fromkeys(batches, ProduceResult(45))
        sent.extend(batches)
        if B in batches:
            second_sent.set()
            await go_on.wait()
        return await produce_to(node, batches, *rest)

    monkeypatch.setattr(module, "backoff", lambda _attempt: 0.5)
    monkeypatch.setattr(cluster, "fetch", scripted_fetch)
    monkeypatch.setattr(cluster, "produce_to", scripted_produce)
    await lost.wait()
    second = asyncio.ensure_future(appender.append(B, [record("second")]))
    async with asyncio.timeout(5):
        await second_sent.wait()
        await asyncio.gather(*first)  # A rests before it is looked at again: as long as B would have
        await appender.append(A, [record("second")])
    assert sent.count(B) == 1
    go_on.set()
    assert await second == Appended(2, 1)
    await appender.close()
    for log in logs.values():
        assert stored(log)[1:] == ["first", "second"]


async def test_broker_restart_in_the_middle(fake: FakeCluster, appender: Appender) -> None:
    log = await opened(fake, appender)
    tasks = [asyncio.ensure_future(appender.append(A, [record(f"r{index}")])) for index in range(3)]
    await fake.stop(0)
    await asyncio.sleep(0.1)  # the first attempts fail
    await fake.start(0)
    assert [result.base_offset for result in await asyncio.gather(*tasks)] == [1, 2, 3]
    assert stored(log) == ["marker 1", "r0", "r1", "r2"]


async def test_leader_moves_in_the_middle(two: FakeCluster) -> None:
    async with await Cluster.open(two.endpoint(), client_id="test", request_timeout=2) as client:
        appender = Appender(client, linger=0.0)
        log = await opened(two, appender)
        await appender.append(A, [record("on 0")])
        log.leader = 1
        assert await appender.append(A, [record("on 1")]) == Appended(2, 1)
        log.leader = -1
        waiting = asyncio.ensure_future(appender.append(A, [record("later")]))
        await asyncio.sleep(0.2)  # without a leader for a while
        assert not waiting.done()
        log.leader = 0
        assert await waiting == Appended(3, 1)
        await appender.close()
    assert stored(log) == ["marker 1", "on 0", "on 1", "later"]


async def test_leader_has_moved_and_somebody_else_has_heard_of_it(two: FakeCluster) -> None:
    """The connection to the old leader is still up, so nothing but the metadata says that the log is elsewhere now."""
    async with await Cluster.open(two.endpoint(), client_id="test", request_timeout=2) as client:
        appender = Appender(client, linger=0.0)
        log = await opened(two, appender)
        log.leader = 1
        await client.refresh({A.topic})
        async with asyncio.timeout(10):
            assert await appender.append(A, [record("on 1")]) == Appended(1, 1)
        await appender.close()
    assert stored(log) == ["marker 1", "on 1"]


async def test_the_position_of_a_log_whose_leader_has_died_is_read_from_the_next(two: FakeCluster) -> None:
    """Nothing is appended to the log, so only the lost connection says that the log is led elsewhere now."""
    async with await Cluster.open(two.endpoint(), client_id="test", request_timeout=2) as client:
        appender = Appender(client, linger=0.0)
        log = await opened(two, appender)
        await two.stop(0)
        await until(lambda: client.pool.incarnation("produce", 0) == 0)
        log.leader = 1
        assert await appender.position(A) == LogPosition(1, 1, 0)
        assert await appender.renew(A) == LogPosition(1, 1, 0)
        assert await appender.adopt(A, term=1) == LogPosition(1, 1, 0)
        assert await appender.append(A, [record("on 1")]) == Appended(1, 1)
        await two.stop(1)
        await until(lambda: client.pool.incarnation("produce", 1) == 0)
        with pytest.raises(ConnectionLost):
            async with asyncio.timeout(1):  # at once, and not after the requests' timeout
                await appender.position(A)
        await appender.close()
    assert stored(log) == ["marker 1", "on 1"]


# --- somebody else


@pytest.mark.parametrize("texts", [("theirs",), ("their", "two")], ids=["duplicate answer", "error 45"])
async def test_another_writers_record_at_our_offset_is_a_conflict(
    fake: FakeCluster, appender: Appender, texts: tuple[str, ...]
) -> None:
    log = await opened(fake, appender)
    fake.fault(PRODUCE, Fault(first=by_another(log, *texts)))
    queued: list[asyncio.Future[Appended]] = []
    first = asyncio.ensure_future(appender.append(A, [record("mine")]))
    await until(lambda: len(fake.seen(PRODUCE)) == 2)
    queued.append(asyncio.ensure_future(appender.append(A, [record("behind it")])))
    with pytest.raises(Conflict) as caught:
        await first
    assert caught.value.fields["offset"] == 1 and not caught.value.retriable
    await asyncio.gather(*queued, return_exceptions=True)
    assert "mine" not in stored(log)
    end = log.end
    assert await appender.append(A, [record("after looking")]) == Appended(end, 1)


async def test_a_log_that_never_rests_is_looked_at_all_the_same(fake: FakeCluster, appender: Appender) -> None:
    """Else whoever opens a term waits as long as the old holder writes."""
    log = await opened(fake, appender)
    fake.fault(LIST_OFFSETS, *(Fault(first=by_another(log, f"theirs {index}")) for index in range(20)))
    asked = len(fake.seen(LIST_OFFSETS))
    found = await appender.renew(A)
    assert found is not None and (found.end, found.term, found.marker) == (log.end, 1, 0)
    assert len(fake.seen(LIST_OFFSETS)) == asked + 2


async def test_conflict_fails_what_waits_behind_it(fake: FakeCluster, appender: Appender) -> None:
    """Else a caller's later record would be stored although its earlier one was not."""
    log = await opened(fake, appender)
    held: list[asyncio.Future[Appended]] = []

    def meanwhile() -> None:
        by_another(log, "theirs")()
        held.append(asyncio.ensure_future(appender.append(A, [record("behind")])))

    fake.fault(PRODUCE, Fault(first=meanwhile))
    with pytest.raises(Conflict):
        await appender.append(A, [record("mine")])
    with pytest.raises(Conflict):
        await held[0]
    assert stored(log) == ["marker 1", "theirs"]


async def test_later_term_fences_for_good(fake: FakeCluster, appender: Appender) -> None:
    log = await opened(fake, appender)
    fake.fault(PRODUCE, Fault(first=lambda: log.append(term_batch([marker("2")], term=2, offset=1, marker=1))))
    tasks = [asyncio.ensure_future(appender.append(A, [record(f"late {index}")])) for index in range(3)]
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(result, Fenced)
    sent = len(fake.seen(PRODUCE))
    with pytest.raises(Fenced):
        await appender.append(A, [record("again")])
    assert len(fake.seen(PRODUCE)) == sent, "a zombie stops asking"
    assert stored(log) == ["marker 1", "2"]


async def test_later_term_is_noticed_by_the_guard_even_when_the_broker_forgot(
    fake: FakeCluster, appender: Appender
) -> None:
    log = await opened(fake, appender)
    log.append(term_batch([marker("2")], term=2, offset=1, marker=1))
    log.forget_producers()
    fake.cut(0)
    with pytest.raises(Fenced) as caught:
        await appender.append(A, [record("late")])
    assert caught.value.fields["later_term"] == 2
    assert stored(log) == ["marker 1", "2"]


async def test_stored_before_the_term_was_closed_counts_as_stored(fake: FakeCluster, appender: Appender) -> None:
    log = await opened(fake, appender)
    fake.fault(PRODUCE, Fault(lose="after"))
    fake.fault(LIST_OFFSETS, Fault(first=lambda: log.append(term_batch([marker("2")], term=2, offset=2, marker=2))))
    assert await appender.append(A, [record("in time")]) == Appended(1, 1)
    with pytest.raises(Fenced):
        await appender.append(A, [record("late")])
    assert stored(log) == ["marker 1", "in time", "2"]


async def test_foreign_write_is_noticed_as_misplaced(fake: FakeCluster, appender: Appender) -> None:
    log = await opened(fake, appender)
    foreign = encode_batch([record("foreign")], producer_id=-1, epoch=-1, sequence=-1)
    fake.fault(PRODUCE, Fault(first=lambda: log.append(foreign)))
    with pytest.raises(Misplaced) as caught:
        await appender.append(A, [record("mine")])
    assert (caught.value.fields["offset"], caught.value.fields["base_offset"]) == (1, 2)
    with pytest.raises(Misplaced):
        await appender.append(A, [record("again")])
    assert stored(log) == ["marker 1", "foreign", "mine"]


async def test_log_that_lost_its_tail_is_misplaced(fake: FakeCluster, appender: Appender) -> None:
    log = await opened(fake, appender)
    await appender.append(A, [record("kept")])
    await appender.append(A, [record("lost")])
    log.batches.pop()
    log.forget_producers()
    fake.cut(0)
    with pytest.raises(Misplaced) as caught:
        await appender.append(A, [record("next")])
    assert (caught.value.fields["end"], caught.value.fields["stored"]) == (2, 3)
    assert stored(log) == ["marker 1", "kept"]


async def test_older_term_that_slipped_in_is_said(fake: FakeCluster, appender: Appender) -> None:
    """The broker's state names an older term than the log's tail: nothing can follow but a new term."""
    log = await opened(fake, appender, term=4)
    log.producers[PRODUCER_ID].epoch = 3
    with pytest.raises(Conflict, match="new term"):
        await appender.append(A, [record("x")])
    assert await appender.open_term(A, 5, marker("5")) == Appended(1, 1)
    assert await appender.append(A, [record("x")]) == Appended(2, 1)


async def test_two_writers_of_one_term_never_share_an_offset(fake: FakeCluster, cluster: Cluster) -> None:
    one = Appender(cluster, linger=0.0)
    log = await opened(fake, one)
    async with await Cluster.open(fake.endpoint(), client_id="two", request_timeout=2) as other:
        two = Appender(other, linger=0.0)
        got: dict[int, str] = {}

        async def write(appender: Appender, name: str) -> None:
            for index in range(40):
                try:
                    result = await appender.append(A, [record(f"{name}{index}")])
                except Conflict:
                    continue
                assert result.base_offset not in got
                got[result.base_offset] = f"{name}{index}"

        await asyncio.gather(write(one, "a"), write(two, "b"))
        await two.close()
    await one.close()
    assert dict(enumerate(stored(log)[1:], 1)) == got
    assert len(got) >= 40


# --- unacceptable batches


async def test_refused_batch_fails_only_whom_it_concerns(fake: FakeCluster, appender: Appender) -> None:
    log = await opened(fake, appender)
    fake.fault(PRODUCE, Fault(code=19), Fault(code=87), Fault(), Fault(code=87), Fault())
    tasks = [asyncio.ensure_future(appender.append(A, [record(name)])) for name in ("good", "bad", "fine")]
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert results[0] == Appended(1, 1) and results[2] == Appended(2, 1)
    assert isinstance(results[1], BrokerError) and results[1].code == 87 and results[1].log == A
    assert stored(log) == ["marker 1", "good", "fine"]


@pytest.mark.parametrize("code", [2, 10, 29, 32, 53, 87, -1])
async def test_refused_batch_is_never_sent_again(fake: FakeCluster, appender: Appender, code: int) -> None:
    log = await opened(fake, appender)
    fake.fault(PRODUCE, Fault(code=code))
    with pytest.raises(BrokerError) as caught:
        await appender.append(A, [record("bad")])
    assert caught.value.code == code and len(fake.seen(PRODUCE)) == 2
    assert await appender.append(A, [record("good")]) == Appended(1, 1)
    assert stored(log) == ["marker 1", "good"]


async def test_log_that_may_not_be_read_fails(fake: FakeCluster, appender: Appender) -> None:
    fake.log("log.a")
    fake.fault(LIST_OFFSETS, Fault(code=29))
    with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
        await appender.append(A, [record("x")])


async def test_missing_log_fails_in_the_end(
    fake: FakeCluster, appender: Appender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ATTEMPTS_AT_UNKNOWN", 2)
    with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        await appender.append(A, [record("x")])


async def test_refused_login_fails_the_append(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.kafka.client.pool.REFUSED_SECONDS", 0.05)
    users = {"bridge": "right"}
    async with running(users=users) as fake:
        endpoint = fake.endpoint(user="bridge", password="right")
        async with await Cluster.open(endpoint, client_id="test", request_timeout=2) as client:
            appender = Appender(client, linger=0.0)
            await opened(fake, appender)
            users.clear()
            fake.cut(0)
            with pytest.raises(AuthenticationFailed, match="bridge"):
                await appender.append(A, [record("x")])
            await appender.close()


# --- terms


async def test_same_marker_again_appends_nothing(fake: FakeCluster, cluster: Cluster) -> None:
    before = Appender(cluster, linger=0.0)
    log = await opened(fake, before)
    await before.append(A, [record("one")])
    await before.close()
    after = Appender(cluster, linger=0.0)  # the process began anew
    assert await after.open_term(A, 1, marker("marker 1")) == Appended(0, 1)
    assert await after.append(A, [record("two")]) == Appended(2, 1)
    assert stored(log) == ["marker 1", "one", "two"]
    await after.close()


async def test_term_that_somebody_else_opened_is_a_conflict(fake: FakeCluster, appender: Appender) -> None:
    log = await opened(fake, appender)
    fake.fault(PRODUCE, Fault(first=lambda: log.append(term_batch([marker("theirs")], term=2, offset=1, marker=1))))
    with pytest.raises(Conflict):
        await appender.open_term(A, 2, marker("mine"))
    with pytest.raises(Conflict):
        await appender.open_term(A, 2, marker("mine"))
    assert stored(log) == ["marker 1", "theirs"]


async def test_older_term_cannot_be_opened(fake: FakeCluster, appender: Appender) -> None:
    log = await opened(fake, appender, term=5)
    with pytest.raises(Fenced) as caught:
        await appender.open_term(A, 4, marker("4"))
    assert caught.value.fields["later_term"] == 5
    fake.fault(PRODUCE, Fault(first=lambda: log.append(term_batch([marker("9")], term=9, offset=1, marker=1))))
    with pytest.raises(Fenced):
        await appender.open_term(A, 6, marker("6"))
    assert stored(log) == ["marker 5", "9"]


async def test_expected_end_is_held(fake: FakeCluster, appender: Appender) -> None:
    log = await opened(fake, appender)
    with pytest.raises(Conflict) as caught:
        await appender.open_term(A, 2, marker("2"), expected_end=5)
    assert caught.value.fields["end"] == 1
    assert await appender.open_term(A, 2, marker("2"), expected_end=1) == Appended(1, 1)
    fake.fault(PRODUCE, Fault(first=by_another(log, "between", term=2, start=1)))
    with pytest.raises(Misplaced) as misplaced:
        await appender.open_term(A, 3, marker("3"), expected_end=2)
    assert misplaced.value.fields["base_offset"] == 3


async def test_without_expected_end_the_marker_closes_wherever_the_log_ends(
    fake: FakeCluster, appender: Appender
) -> None:
    log = await opened(fake, appender)
    fake.fault(PRODUCE, Fault(first=by_another(log, "last of the old holder")))
    assert await appender.open_term(A, 2, marker("2")) == Appended(2, 1)
    assert await appender.append(A, [record("x")]) == Appended(3, 1)
    assert [h.base_sequence for h, _ in log.batches] == [0, 1, 0, 1]


async def test_granted_log_takes_no_more_appends_until_it_is_adopted(fake: FakeCluster, appender: Appender) -> None:
    log = await opened(fake, appender)
    early = asyncio.ensure_future(appender.append(A, [record("early")]))
    grant = asyncio.ensure_future(appender.open_term(A, 2, marker("to the ship"), hold=False))
    late = asyncio.ensure_future(appender.append(A, [record("late")]))
    assert await early == Appended(1, 1)
    assert await grant == Appended(2, 1)
    with pytest.raises(Fenced, match="granted"):
        await late
    with pytest.raises(Fenced, match="granted"):
        await appender.append(A, [record("later still")])
    # The ship appends, gives the log back, and both arrive here with the replica.
    log.append(term_batch([record("at sea")], term=2, offset=3, marker=2))
    log.append(term_batch([marker("back")], term=3, offset=4, marker=4))
    assert await appender.adopt(A, term=3) == LogPosition(5, 3, 4)
    assert await appender.append(A, [record("home")], term=3) == Appended(5, 1)
    assert stored(log) == ["marker 1", "early", "to the ship", "at sea", "back", "home"]


async def test_adopting_needs_the_marker_at_the_end(fake: FakeCluster, appender: Appender) -> None:
    log = fake.log("log.a")
    with pytest.raises(Misplaced) as empty:
        await appender.adopt(A, term=2)
    assert empty.value.fields["end"] == 0
    log.append(term_batch([marker("1")], term=1, offset=0, marker=0))
    with pytest.raises(Misplaced) as early:
        await appender.adopt(A, term=2)
    assert (early.value.fields["end"], early.value.fields["term"]) == (1, 1)
    log.append(term_batch([marker("2")], term=2, offset=1, marker=1))
    assert await appender.adopt(A, term=2) == LogPosition(2, 2, 1)
    log.append(term_batch([record("x")], term=2, offset=2, marker=1))
    with pytest.raises(Misplaced) as behind:
        await appender.adopt(A, term=2)
    assert (behind.value.fields["end"], behind.value.fields["term"], behind.value.fields["marker"]) == (3, 2, 1)
    log.append(term_batch([marker("3")], term=3, offset=3, marker=3))
    with pytest.raises(Fenced):
        await appender.adopt(A, term=2)


async def test_many_logs_are_adopted_with_the_requests_of_one(fake: FakeCluster, appender: Appender) -> None:
    logs = [TP(f"log.{number}") for number in range(20)]
    for number, log in enumerate(logs):
        copy = fake.log(log.topic)
        copy.append(term_batch([marker(f"1 {number}")], term=1, offset=0, marker=0))
        if number != 7:
            copy.append(term_batch([marker(f"2 {number}")], term=2, offset=1, marker=1))
    late = fake.log("log.b")
    late.append(term_batch([marker("3")], term=3, offset=0, marker=0))
    before = len(fake.requests)
    found = await appender.adopt_many({**dict.fromkeys(logs, 2), B: 2})
    asked = len(fake.requests) - before
    assert isinstance(found.pop(logs[7]), Misplaced)
    assert isinstance(found.pop(B), Fenced)
    assert set(found.values()) == {LogPosition(2, 2, 1)} and len(found) == 19
    assert asked < 10
    assert await appender.append(logs[0], [record("x")], term=2) == Appended(2, 1)
    assert await appender.adopt_many({}) == {}


async def test_a_log_whose_last_header_is_damaged_stops_no_other(fake: FakeCluster, appender: Appender) -> None:
    """The last batches of many logs are read with one request, once the broker has forgotten who wrote them."""
    for tp in (A, B):
        log = fake.log(tp.topic)
        log.append(term_batch([marker(tp.topic)], term=1, offset=0, marker=0))
        log.forget_producers()
    damage(fake.logs[A.topic], at=MAGIC_AT)
    appends = [appender.append(tp, [record("x")]) for tp in (A, B)]
    broken, appended = await asyncio.gather(*appends, return_exceptions=True)
    assert isinstance(broken, CorruptBatch) and broken.what.startswith("log.a: a record batch has format")
    assert appended == Appended(1, 1)
    found = await appender.renew_all([A, B])
    assert isinstance(found[A], CorruptBatch) and found[B] == LogPosition(2, 1, 0)


async def test_caller_may_name_the_term_it_believes_in(fake: FakeCluster, appender: Appender) -> None:
    log = await opened(fake, appender, term=2)
    assert await appender.append(A, [record("x")], term=2) == Appended(1, 1)
    for other in (1, 3):
        with pytest.raises(Fenced):
            await appender.append(A, [record("y")], term=other)
    assert stored(log) == ["marker 2", "x"]


async def test_ensure_open_opens_once(fake: FakeCluster, appender: Appender) -> None:
    log = fake.log("log.a")
    assert await appender.ensure_open(A, marker("first")) == LogPosition(1, 1, 0)
    assert await appender.ensure_open(A, marker("second")) == LogPosition(1, 1, 0)
    other = fake.log("log.b")
    fake.fault(PRODUCE, Fault(first=lambda: other.append(term_batch([marker("t")], term=1, offset=0, marker=0))))
    assert await appender.ensure_open(B, marker("mine")) == LogPosition(1, 1, 0)
    assert (stored(log), stored(other)) == (["first"], ["t"])


async def test_nothing_is_appended_where_no_term_is_open(fake: FakeCluster, appender: Appender) -> None:
    fake.log("log.a")
    foreign = fake.log("log.b")
    foreign.append(encode_batch([record("kcat")], producer_id=-1, epoch=-1, sequence=-1))
    for log in (A, B):
        with pytest.raises(Misplaced, match="open a term first"):
            await appender.append(log, [record("x")])
    assert await appender.position(B) == LogPosition(1, 0, -1)
    assert await appender.open_term(B, 1, marker("m")) == Appended(1, 1)
    assert await appender.append(B, [record("x")]) == Appended(2, 1)
    assert stored(foreign) == ["kcat", "m", "x"]


# --- positions


async def test_positions_of_many_logs_are_a_few_requests(fake: FakeCluster, appender: Appender) -> None:
    logs = [TP(f"log.{index}") for index in range(300)]
    for index, log in enumerate(logs):
        kept = fake.log(log.topic)
        if index % 3:
            kept.append(term_batch([marker("m")], term=index, offset=0, marker=0))
            kept.append(term_batch([record("x"), record("y")], term=index, offset=1, marker=0))
        if index % 3 == 2:
            kept.forget_producers()
    found = await appender.positions(logs)
    assert found == {log: LogPosition(3, i, 0) if i % 3 else None for i, log in enumerate(logs)}
    assert [len(fake.seen(api)) for api in (LIST_OFFSETS, DESCRIBE_PRODUCERS, FETCH)] == [2, 1, 1]
    before = len(fake.requests)
    assert await appender.positions(logs) == found
    assert len(fake.requests) == before, "known positions are not asked for again"


async def test_a_log_that_grows_while_it_is_looked_at_is_looked_at_again(fake: FakeCluster, appender: Appender) -> None:
    """A replicator brings the marker of the next term between the two questions: end and state must fit each other."""
    log = fake.log("log.a")
    log.append(term_batch([marker("1")], term=1, offset=0, marker=0))
    next_term = term_batch([marker("2")], term=2, offset=1, marker=1)
    fake.fault(DESCRIBE_PRODUCERS, Fault(first=lambda: log.append(next_term)))
    assert await appender.position(A) == LogPosition(2, 2, 1)
    assert await appender.append(A, [record("x")], term=2) == Appended(2, 1)


async def test_position_is_read_again_after_a_lost_connection(
    fake: FakeCluster, cluster: Cluster, appender: Appender
) -> None:
    log = await opened(fake, appender)
    assert await appender.position(A) == LogPosition(1, 1, 0)
    by_another(log, "x")()
    assert await appender.position(A) == LogPosition(1, 1, 0)
    fake.cut(0)
    await until(lambda: cluster.pool.incarnation("produce", 0) == 0)
    assert await appender.position(A) == LogPosition(2, 1, 0)


async def test_uncommitted_tail_of_a_replicated_log_is_waited_for(fake: FakeCluster, appender: Appender) -> None:
    log = fake.log("log.a", replicas=3)
    for offset, text in enumerate(("m", "one", "two")):
        log.append(term_batch([record(text)], term=1, offset=offset, marker=0))
    log.lag = 1
    task = asyncio.ensure_future(appender.position(A))
    await until(lambda: len(fake.seen(DESCRIBE_PRODUCERS)) >= 2)
    log.lag = 0
    assert await task == LogPosition(3, 1, 0)


async def test_positions_of_a_missing_log_is_an_error(
    fake: FakeCluster, appender: Appender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.kafka.client.cluster.UNKNOWN_FOR", 0.0)
    with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        await appender.position(A)


# --- giving up


async def test_cancelled_append_that_still_waits_is_never_sent(fake: FakeCluster, appender: Appender) -> None:
    log = await opened(fake, appender)
    tasks = [asyncio.ensure_future(appender.append(A, [record(f"r{index}")])) for index in range(3)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert results[0] == Appended(1, 1) and results[2] == Appended(2, 1)
    assert stored(log) == ["marker 1", "r0", "r2"]


async def test_cancelled_append_under_way_disturbs_nobody(fake: FakeCluster, appender: Appender) -> None:
    log = await opened(fake, appender)
    fake.fault(PRODUCE, Fault(lose="after"))
    gone = asyncio.ensure_future(appender.append(A, [record("gone")]))
    await until(lambda: len(fake.seen(PRODUCE)) == 2)
    gone.cancel()
    assert await appender.append(A, [record("next")]) == Appended(2, 1)
    assert stored(log) == ["marker 1", "gone", "next"], "its outcome is unknown to the caller, not to the log"


async def test_closing_fails_what_waits(fake: FakeCluster, appender: Appender) -> None:
    await opened(fake, appender)
    fake.fault(PRODUCE, Fault(hang=True))
    waiting = [asyncio.ensure_future(appender.append(A, [record(f"r{index}")])) for index in range(3)]
    await until(lambda: len(fake.seen(PRODUCE)) == 2)
    await appender.close()
    for result in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(result, ConnectionLost)
    with pytest.raises(WireError, match="closed"):
        await appender.append(A, [record("x")])


async def test_trouble_at_one_log_does_not_hold_up_another(fake: FakeCluster, cluster: Cluster) -> None:
    appender = Appender(cluster, linger=0.0, max_in_flight=1)
    stuck = await opened(fake, appender)
    await opened(fake, appender, B)
    stuck.leader = -1  # no leader for it, for as long as it likes
    await cluster.topics(["log.a"], refresh=True)
    blocked = asyncio.ensure_future(appender.append(A, [record("blocked")]))
    for index in range(20):
        assert (await appender.append(B, [record(f"r{index}")])).base_offset == index + 1
    assert not blocked.done()
    stuck.leader = 0
    assert await blocked == Appended(1, 1)
    await appender.close()


async def test_marker_offset_is_in_every_stored_batch_after_a_restart_of_everything(fake: FakeCluster) -> None:
    for process in range(3):
        async with await Cluster.open(fake.endpoint(), client_id=f"p{process}", request_timeout=2) as client:
            appender = Appender(client, linger=0.0)
            if process == 0:
                await opened(fake, appender)
            for index in range(4):
                await appender.append(A, [record(f"{process}.{index}")])
            await appender.close()
    headers = [parse_header(data) for _, data in fake.logs["log.a"].batches]
    assert {header.base_offset - header.base_sequence for header in headers} == {0}
    assert len(stored(fake.logs["log.a"])) == 13


def test_nothing_listens_on_the_ports_of_a_stopped_fake() -> None:
    """The fake's own promise: ``stop`` frees the port, so that "unreachable" is really tested."""

    async def scenario() -> int:
        async with running() as fake:
            port = fake.ports[0]
            await fake.stop(0)
            return port

    port = asyncio.run(scenario())
    with socket.socket() as client, pytest.raises(ConnectionRefusedError):
        client.connect(("127.0.0.1", port))


@pytest.mark.parametrize("highest", [12, 13])
async def test_a_topic_that_was_made_anew_takes_nothing_of_the_old_one(fake: FakeCluster, highest: int) -> None:
    """By its id the broker refuses the batch; by its name alone, the new topic has it before anybody notices."""
    fake.offered[PRODUCE] = highest
    async with await open_cluster(fake) as cluster:
        appender = Appender(cluster, linger=0.0)
        await opened(fake, appender)
        await appender.append(A, [record("one")])
        fake.log(A.topic)
        with pytest.raises(Misplaced):
            await appender.append(A, [record("two")])
        assert fake.logs[A.topic].end == (0 if highest == 13 else 1)
        with pytest.raises(Misplaced):
            await appender.append(A, [record("three")])
        assert fake.logs[A.topic].end == (0 if highest == 13 else 1)
        await appender.close()
