"""The appender against a broker in memory: whatever fails, the target gets the source's records once and in order."""

from __future__ import annotations

import asyncio
import functools
import random
import struct
import weakref
from typing import Any
from unittest.mock import AsyncMock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.kafka.convention import FOREIGN_PRODUCER_ID, term_batch
from fairlead.kafka.protocol import fetch_codec
from fairlead.kafka.protocol.batch import parse_header
from fairlead.kafka.protocol.errors import (
    LEADER_NOT_AVAILABLE,
    TOPIC_AUTHORIZATION_FAILED,
    ConnectionLost,
    broker_error,
)
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import ProduceResult, ProducerState, TopicPartition
from replication.batch.header_rewrite import rewrite_header
from replication.batch.prepare import prepare_batches
from replication.batch.prepared import PreparedBatch, RejectedBatch
from replication.changes import PlanChanges
from replication.link.fetch_state import tail_mismatch
from replication.states import LogState
from replication.target import appender as examiner
from replication.target.appender import TargetAppender
from replication.target.mirror import MirrorPartition
from tests.support.batches import foreign_batch
from tests.support.examples import examples
from tests.support.kafka.fake_broker import PRODUCE, open_cluster, until
from tests.support.kafka.fake_broker import running as fake_brokers
from tests.support.replication.broker import Broker, running, unlimited
from topologies.model import Priority

LUCK = functools.partial(random.Random, 1)  # a random generator for tests, not for secrets
TOPIC = "containers.BIGU1234560"


def history(sizes: list[list[int]], topic: str = TOPIC) -> list[bytes]:
    """Return a source log as stored: each term begins with its marker and has batches of the given sizes."""
    out: list[bytes] = []
    at = 0
    for term, batches in enumerate(sizes, 1):
        marker = at
        for size in [1, *batches]:
            new = [NewRecord(f"{topic} {at + n} {term}".encode(), timestamp_ms=5000 + at + n) for n in range(size)]
            batch = term_batch(new, term=term, offset=at, marker=marker)
            out.append(struct.pack(">q", at) + batch[8:])
            at += size
    return out


class Source:
    """A feed that has the whole log and submits parts of it."""

    def __init__(
        self, appender: TargetAppender, replica: MirrorPartition, batches: list[bytes], *, at_once: int = 3
    ) -> None:
        self.appender, self.replica, self.batches, self.at_once = appender, replica, batches, at_once
        self.name = "source"
        self.position = 0
        self.moved = 0
        self.rewinds = 0
        self.damaged: list[str] = []

    @property
    def end(self) -> int:
        return parse_header(self.batches[-1]).next_offset

    def submit(self) -> None:
        left = [batch for batch in self.batches if parse_header(batch).base_offset >= self.position][: self.at_once]
        made = list(prepare_batches(memoryview(bytearray(b"".join(left))), self.position))
        fit = [step for step in made if not isinstance(step, RejectedBatch)]
        if fit:
            self.appender.submit_steps(self.replica, fit, self)
            self.position = fit[-1].stop

    def rewind(self, tp: TopicPartition, end: int) -> None:
        self.position = end
        self.rewinds += 1
        before = b"".join(batch for batch in self.batches if parse_header(batch).next_offset == end)
        if before and tail_mismatch(self.replica.tail, end, memoryview(before)) is None:
            self.replica.add_agreeing(self, end)

    def on_appended(self, tp: TopicPartition, prepared: PreparedBatch) -> None:
        self.moved += prepared.records

    def on_damaged(self, tp: TopicPartition, cause: str) -> None:
        self.damaged.append(cause)


async def until_there(broker: Broker, sources: list[Source]) -> None:
    """Let the feeds submit until the target has everything or a log has stopped."""
    for _ in range(20_000):
        if all(broker.log(*each.replica.tp).end >= each.end or each.replica.trouble for each in sources):
            return
        for each in sources:
            each.submit()
        await asyncio.sleep(0)
    raise AssertionError([(each.replica.tp, broker.log(*each.replica.tp).end, each.end) for each in sources])


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examiner, "BACKOFF", (0.0,))


SIZES = st.lists(st.lists(st.integers(1, 4), max_size=8), min_size=1, max_size=4)


@settings(max_examples=examples(60), deadline=None)
@given(
    logs=st.lists(SIZES, min_size=1, max_size=4),
    seed=st.integers(0, 2**32),
    trouble=st.sampled_from([0.0, 0.1, 0.4]),
    rivals=st.booleans(),
)
def test_the_target_becomes_the_source(logs: list[list[list[int]]], seed: int, trouble: float, rivals: bool) -> None:
    """Whatever fails, the target ends up equal to the source."""
    luck = random.Random(seed)  # noqa: S311 - chance, not secrets

    async def scenario() -> None:
        broker = Broker(luck, trouble=trouble)
        stored = {f"containers.{n}": history(sizes, f"containers.{n}") for n, sizes in enumerate(logs)}

        def rival() -> None:
            """Run another replicator of the same target, which appends the next batches or repeats earlier ones."""
            topic = luck.choice(list(stored))
            log = broker.log(topic)
            following = [each for each in stored[topic] if parse_header(each).base_offset == log.end]
            if following and luck.random() < 0.5:
                log.append(bytes(8) + following[0][8:])

        if rivals:
            broker.rivals.append(rival)
        async with running(broker) as appender:
            sources = [
                Source(appender, appender.replica(TopicPartition(topic), Priority.NORMAL), batches)
                for topic, batches in stored.items()
            ]
            await appender.load_ends([each.replica for each in sources])
            await until_there(broker, sources)
            assert [each.replica.trouble for each in sources] == [None] * len(sources)
        for topic, batches in stored.items():
            assert broker.log(topic).batches == batches

    asyncio.run(scenario())


async def start(broker: Broker, batches: list[bytes], appender: TargetAppender) -> Source:
    source = Source(appender, appender.replica(TopicPartition(TOPIC), Priority.NORMAL), batches)
    await appender.load_ends([source.replica])
    return source


async def test_without_trouble_nothing_is_asked_twice() -> None:
    """Without faults, no request is repeated."""
    broker, batches = Broker(LUCK()), history([[3, 3], [3] * 10])
    async with running(broker) as appender:
        source = await start(broker, batches, appender)
        await until_there(broker, [source])
        assert (source.moved, source.rewinds) == (source.end, 0)
    assert broker.requests <= len(batches)


async def test_many_logs_share_a_request() -> None:
    """Many logs share one request."""
    broker = Broker(LUCK())
    async with running(broker) as appender:
        sources = []
        for n in range(300):
            topic = f"containers.{n}"
            sources.append(
                Source(appender, appender.replica(TopicPartition(topic), Priority.NORMAL), history([[2]], topic))
            )
        await appender.load_ends([each.replica for each in sources])
        await until_there(broker, sources)
    assert broker.requests <= 6


async def test_another_history_stops_the_log() -> None:
    """If the target has another history, its log is stopped and left unchanged."""
    broker, mine = Broker(LUCK()), history([[3, 3, 3]])
    for batch in history([[3]], "another")[:2]:
        broker.log(TOPIC).append(bytes(8) + batch[8:])
    before = list(broker.log(TOPIC).batches)
    async with running(broker) as appender:
        source = await start(broker, mine, appender)
        source.position = 0  # as if the target's end were unknown
        source.replica.set_end(0, None, source.replica.generation)
        await until_there(broker, [source])
        assert source.replica.trouble is not None
        assert source.replica.trouble.state is LogState.DIVERGED
    assert broker.log(TOPIC).batches == before


async def test_who_brings_its_first_records_while_a_log_is_examined_brings_them_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A link that submits its first records while a log is examined is told to submit them again.

    They are not kept during the examination, so the link must learn where to continue.
    """
    broker, batches = Broker(LUCK()), history([[3, 3]])
    async with running(broker) as appender:
        first = await start(broker, batches, appender)
        second = Source(appender, first.replica, batches)
        examined, go_on = asyncio.Event(), asyncio.Event()
        ask, produce = broker.end_offsets, broker.produce

        async def away(batches: Any, **_: Any) -> Any:
            return dict.fromkeys(batches, ProduceResult(7))

        async def slow(logs: Any, **_: Any) -> Any:
            examined.set()
            await go_on.wait()
            return await ask(logs)

        monkeypatch.setattr(broker, "produce", away)
        monkeypatch.setattr(broker, "end_offsets", slow)
        first.submit()
        await examined.wait()
        second.submit()
        monkeypatch.setattr(broker, "produce", produce)
        go_on.set()
        await until_there(broker, [second])
    assert broker.log(TOPIC).batches == batches


async def test_a_log_without_a_leader_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log without a leader does not delay the others.

    The target was away for a moment; when it is back, one log still has no leader.
    """
    broker, bad = Broker(LUCK()), TopicPartition("containers.bad")
    produce, ask, away, has_leader = broker.produce, broker.end_offsets, False, False
    monkeypatch.setattr(examiner, "REFUSED_SECONDS", 0.0)

    async def answer(batches: Any, **_: Any) -> Any:
        if away:
            broker.connections += 1
            raise ConnectionLost("away")
        return await produce(batches)

    async def ends(logs: Any, **_: Any) -> Any:
        found = await ask(logs)
        return found if has_leader else found | ({bad: broker_error(LEADER_NOT_AVAILABLE, bad)} if bad in logs else {})

    monkeypatch.setattr(broker, "produce", answer)
    async with running(broker) as appender:
        topics = ("containers.a", "containers.b", bad.topic, "containers.c")
        replicas = [appender.replica(TopicPartition(topic), Priority.NORMAL) for topic in topics]
        sources = [Source(appender, each, history([[3] * 20], each.tp.topic), at_once=12) for each in replicas]
        await appender.load_ends([each.replica for each in sources])
        monkeypatch.setattr(broker, "end_offsets", ends)
        away = True
        for each in sources:
            each.submit()
        for _ in range(50):
            await asyncio.sleep(0)
        away = False
        await until_there(broker, [each for each in sources if each.replica.tp != bad])
        assert broker.log(bad.topic).end == 0
        assert [(tp, each.state) for tp, each in appender.troubles()] == [(bad, LogState.UNAVAILABLE)]
        assert appender.queued == 0, "what waits for it would take the others' room"
        await asyncio.wait_for(appender.wait_ready(), 5)
        has_leader = True
        await until_there(broker, sources)
        assert [each.replica.trouble for each in sources] == [None] * 4
        await until(lambda: [*appender.troubles()] == [])


async def test_a_log_with_too_few_replicas_is_unavailable_until_it_has_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end can be read, and each append is refused for now."""
    broker, tp, enough = Broker(LUCK()), TopicPartition(TOPIC), False
    produce = broker.produce

    async def answer(batches: Any, **more: Any) -> Any:
        return await produce(batches, **more) if enough else dict.fromkeys(batches, ProduceResult(19))

    monkeypatch.setattr(broker, "produce", answer)
    monkeypatch.setattr(examiner, "REFUSED_SECONDS", 0.0)
    async with running(broker) as appender:
        source = await start(broker, history([[3] * 20]), appender)
        source.submit()
        await until(lambda: [*appender.troubles()] != [])
        first = dict(appender.troubles())[tp]
        assert first.state is LogState.UNAVAILABLE and "NOT_ENOUGH_REPLICAS" in first.cause
        for _ in range(100):
            await asyncio.sleep(0)
        assert dict(appender.troubles()) == {tp: first}
        assert source.replica.trouble is None
        enough = True
        await until_there(broker, [source])
        await until(lambda: [*appender.troubles()] == [])


async def test_a_refusal_is_not_shown_of_a_log_that_was_stopped_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a retry the log may be idle, and no append would end the state."""
    broker, tp, sent, go = Broker(LUCK()), TopicPartition(TOPIC), asyncio.Event(), asyncio.Event()

    async def answer(batches: Any, **_: Any) -> Any:
        sent.set()
        await go.wait()
        return dict.fromkeys(batches, ProduceResult(19))

    monkeypatch.setattr(broker, "produce", answer)
    monkeypatch.setattr(examiner, "REFUSED_SECONDS", 0.0)
    async with running(broker) as appender:
        source = await start(broker, history([[3] * 4]), appender)
        source.submit()
        await sent.wait()
        appender.stop_log(source.replica, LogState.PAUSED, "by an operator")
        appender.drop([tp])
        go.set()
        await until(lambda: not appender.is_busy(tp))
        assert [each.state for _, each in appender.troubles()] == [LogState.PAUSED]


async def test_a_refusal_is_not_shown_once_nothing_is_left_to_append(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source has other records now, or none."""
    broker, tp = Broker(LUCK()), TopicPartition(TOPIC)
    monkeypatch.setattr(examiner, "REFUSED_SECONDS", 0.0)
    async with running(broker) as appender:
        source = await start(broker, history([[3] * 4]), appender)
        appender._note_refused(tp, broker_error(19, tp))  # noqa: SLF001
        assert [*appender.troubles()]
        appender.withdraw(source.replica, source)
        assert not [*appender.troubles()]


async def test_a_log_without_a_leader_holds_up_no_other_that_is_to_be_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log whose end cannot be read now is unavailable; the ends of the others are known."""
    broker, bad, good = Broker(LUCK()), TopicPartition("containers.bad"), TopicPartition("containers.good")
    ask = broker.end_offsets

    async def ends(logs: Any, **_: Any) -> Any:
        return await ask(logs) | {bad: broker_error(LEADER_NOT_AVAILABLE, bad)}

    monkeypatch.setattr(broker, "end_offsets", ends)
    async with running(broker) as appender:
        replicas = [appender.replica(tp, Priority.NORMAL) for tp in (bad, good)]
        await appender.load_ends(replicas)
    assert replicas[0].trouble is not None and replicas[0].trouble.state is LogState.UNAVAILABLE
    assert (replicas[1].trouble, replicas[1].end) == (None, 0)


async def test_the_plan_of_other_logs_waits_for_no_leader() -> None:
    """A log may be without a leader for hours; each plan of it would take as long as a request may take."""
    async with fake_brokers() as fake:
        fake.log("containers.bad", leader=-1)
        fake.log("containers.good").append(bytes(8) + history([[]])[0][8:])
        async with await open_cluster(fake, seconds=600) as cluster, asyncio.timeout(20):
            appender = TargetAppender(cluster, memory=1 << 20, changes=PlanChanges(), limit_of=AsyncMock())
            bad, good = (
                appender.replica(TopicPartition(f"containers.{name}"), Priority.NORMAL) for name in ("bad", "good")
            )
            await appender.load_ends([bad, good])
    assert bad.trouble is not None and bad.trouble.state is LogState.UNAVAILABLE
    assert (good.trouble, good.end) == (None, 1)


async def test_no_doubtful_log_waits_for_the_leader_of_another() -> None:
    """Many logs may be without a leader for hours; what could not be appended to them takes no memory."""
    topics = [f"containers.bad{n}" for n in range(8)] + ["containers.good"]
    async with fake_brokers() as fake:
        logs = {topic: fake.log(topic) for topic in topics}
        async with await open_cluster(fake, seconds=600) as cluster, asyncio.timeout(20):
            appender = TargetAppender(cluster, memory=1 << 20, changes=PlanChanges(), limit_of=unlimited)
            sending = asyncio.ensure_future(appender.run())
            replicas = [appender.replica(TopicPartition(topic), Priority.NORMAL) for topic in topics]
            await appender.load_ends(replicas)
            sources = [Source(appender, each, history([[2]], each.tp.topic)) for each in replicas]
            for log in logs.values():
                log.leader = -1
            for each in sources:
                each.submit()
            held, end = weakref.ref(sources[0]), sources[-1].end  # batches have no weak references, but refer to feeds
            await until(lambda: fake.seen(PRODUCE))
            logs["containers.good"].leader = 0
            await until(lambda: logs["containers.good"].end == end)
            for replica in replicas:
                replica.feeds = replica.agreeing_feeds = ()
            sources.clear()
            del each
            await until(lambda: held() is None)
            assert [each.trouble for each in replicas] == [None] * len(topics)
            sending.cancel()


async def test_no_log_that_clients_may_be_writing_here_waits_for_the_leader_of_another() -> None:
    """The ends of such logs are read once more before their first batch is appended."""
    topics = ("orders.bad", "orders.good")
    async with fake_brokers() as fake:
        bad, good = (fake.log(topic) for topic in topics)
        async with await open_cluster(fake, seconds=600) as cluster, asyncio.timeout(20):
            appender = TargetAppender(cluster, memory=1 << 20, changes=PlanChanges(), limit_of=unlimited)
            sending = asyncio.ensure_future(appender.run())
            replicas = [appender.replica(TopicPartition(topic), Priority.NORMAL) for topic in topics]
            await appender.load_ends(replicas)
            bad.leader = -1
            await cluster.refresh(topics)
            batch = foreign_batch([NewRecord(b"value", timestamp_ms=5000)], offset=0)
            for replica in replicas:
                Source(appender, replica, [batch]).submit()
            await until(lambda: good.end == 1)
            sending.cancel()


@pytest.mark.parametrize(
    "answer", ["the last batch is refused", "it may not be read", "its header is damaged", "producers are refused"]
)
async def test_a_log_whose_last_batch_cannot_be_read_holds_up_no_other_that_is_to_be_followed(
    answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a log is unavailable; the ends of the others are known, and the plan goes on."""
    broker, bad, good = Broker(LUCK()), TopicPartition("containers.bad"), TopicPartition("containers.good")
    for tp in (bad, good):
        batch = bytearray(foreign_batch([NewRecord(b"value", timestamp_ms=5000)], offset=0))
        rewrite_header(memoryview(batch), 17, 0, 0)
        broker.log(*tp).append(bytes(batch))
    fetch, describe = broker.fetch, broker.describe_producers

    async def fetched(positions: Any, **more: Any) -> Any:
        found = await fetch(positions, **more)
        if bad in found and answer == "the last batch is refused":
            found[bad] = fetch_codec.failed(LEADER_NOT_AVAILABLE)
        if bad in found and answer == "it may not be read":
            found[bad] = fetch_codec.failed(TOPIC_AUTHORIZATION_FAILED)
        if bad in found and answer == "its header is damaged":
            found[bad].records[16] = 0x7F
        return found

    async def described(logs: Any) -> Any:
        error = {bad: broker_error(LEADER_NOT_AVAILABLE, bad)} if answer == "producers are refused" else {}
        return await describe(logs) | {tp: each for tp, each in error.items() if tp in logs}

    monkeypatch.setattr(broker, "fetch", fetched)
    monkeypatch.setattr(broker, "describe_producers", described)
    async with running(broker) as appender:
        replicas = [appender.replica(tp, Priority.NORMAL) for tp in (bad, good)]
        broker.states = dict.fromkeys((bad, good), (ProducerState(17, 0, 0, 5000),))
        await appender.load_ends(replicas)
    assert replicas[0].trouble is not None and replicas[0].trouble.state is LogState.UNAVAILABLE
    assert (replicas[1].trouble, replicas[1].end) == (None, 1)


async def test_a_log_that_is_available_again_is_planned() -> None:
    """The end of a doubtful log is read as soon as the target answers. The plan may have stopped the log by then."""
    broker, tp = Broker(LUCK()), TopicPartition(TOPIC)
    broker.log(TOPIC)
    async with running(broker) as appender:
        replica = appender.replica(tp, Priority.NORMAL)
        await appender.load_ends([replica])
        appender.stop_log(replica, LogState.UNAVAILABLE, "its last batch cannot be read")
        appender._changes.take()  # noqa: SLF001 - the plan stops it
        await appender.load_ends([replica])
        assert replica.trouble is None
        assert appender._changes.take() == {TOPIC}  # noqa: SLF001


async def test_a_topic_that_was_deleted_and_made_again_is_begun_anew() -> None:
    """The broker refuses what was meant for the old topic; the plan is told that the log is missing."""
    broker, tp = Broker(LUCK()), TopicPartition(TOPIC)
    async with running(broker) as appender:
        replica = appender.replica(tp, Priority.NORMAL)
        await appender.load_ends([replica])
        first, whole = history([[1] * 6]), history([[1] * 12])
        await until_there(broker, [Source(appender, replica, first)])
        while replica.in_flight:  # noqa: ASYNC110 - nobody signals it
            await asyncio.sleep(0)

        broker.topic_ids[TOPIC] = b"another"
        del broker.logs[tp]
        source = Source(appender, replica, whole)
        source.rewind(tp, replica.end)
        await until_there(broker, [source])
        assert replica.trouble is not None and replica.trouble.state is LogState.UNAVAILABLE
        assert "deleted here and created again" in replica.trouble.cause
        assert appender.missing_topics == {TOPIC}
        assert broker.log(*tp).batches == []

        replica.reset()  # as the plan does
        await appender.load_ends([replica])
        assert replica.end == 0


async def test_a_copy_that_is_begun_anew_has_the_producer_that_every_replicator_takes() -> None:
    """Another replicator, to which the old topic is not known, takes the first id of the range."""
    broker = Broker(LUCK())
    written = bytearray(foreign_batch([NewRecord(b"v", timestamp_ms=1)], offset=0))
    rewrite_header(memoryview(written), FOREIGN_PRODUCER_ID + 1, 0, 0)
    broker.log(TOPIC).append(bytes(written))
    async with running(broker) as appender:
        replica = appender.replica(TopicPartition(TOPIC), Priority.NORMAL)
        await appender.load_ends([replica])
        assert replica.foreign_id == FOREIGN_PRODUCER_ID + 1
        del broker.logs[replica.tp]
        broker.topic_ids[TOPIC] = b"another"
        replica.reset()
        await appender.load_ends([replica])
        assert (replica.end, replica.foreign_id) == (0, FOREIGN_PRODUCER_ID)


async def test_a_marker_that_lands_elsewhere_is_misplaced() -> None:
    """A custody marker stored at another offset than expected stops the log as misplaced.

    A batch with sequence 0 is accepted at any offset, so only the answer shows another client's record before it.
    """
    broker, batches = Broker(LUCK()), history([[2], [2]])
    async with running(broker) as appender:
        source = await start(broker, batches, appender)
        source.at_once = 2
        source.submit()
        for _ in range(20):
            await asyncio.sleep(0)
        assert broker.log(TOPIC).end == 3
        stranger = term_batch([NewRecord(b"x", timestamp_ms=1)], term=1, offset=3, marker=0)
        broker.log(TOPIC).append(stranger)
        await until_there(broker, [source])
        for _ in range(20):
            await asyncio.sleep(0)
        assert source.replica.trouble is not None
        assert source.replica.trouble.state is LogState.MISPLACED


async def test_nothing_at_or_beyond_the_limit_is_sent() -> None:
    """Nothing at or beyond the log's limit is appended."""
    broker, batches = Broker(LUCK()), history([[3, 3], [3]])
    async with running(broker) as appender:
        source = await start(broker, batches, appender)
        source.replica.limit = 8  # the marker of term 2 is at 7, and from 8 on the target's own bridge appends
        for _ in range(200):
            source.submit()
            await asyncio.sleep(0)
        assert source.replica.is_complete
    assert broker.log(TOPIC).end == 8


@pytest.mark.parametrize("code", [87, 2, 10, 32, 53])
async def test_what_a_broker_refuses_is_quarantined_alone(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that the broker refuses stops its own log only (quarantine)."""
    broker = Broker(LUCK())
    real = broker.produce

    async def picky(batches: Any, **_: Any) -> Any:
        answer = await real({tp: batch for tp, batch in batches.items() if tp.topic != TOPIC})
        return answer | {tp: ProduceResult(code) for tp in batches if tp.topic == TOPIC}

    monkeypatch.setattr(broker, "produce", picky)
    async with running(broker) as appender:
        bad = await start(broker, history([[2]]), appender)
        good = Source(
            appender, appender.replica(TopicPartition("containers.good"), Priority.NORMAL), history([[2]], "good")
        )
        await appender.load_ends([good.replica])
        await until_there(broker, [bad, good])
        assert bad.replica.trouble is not None
        assert bad.replica.trouble.state is LogState.QUARANTINED
        assert str(code) in bad.replica.trouble.cause
        assert ("the device's clock" in bad.replica.trouble.as_json()["what_to_do"]) == (code == 32)
        assert good.replica.trouble is None


async def test_a_batch_above_the_limit_is_split_once_the_limit_can_be_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While the target does not say its limit, no batch is sent again as it is: the broker would refuse it again."""
    broker, refused, failures = Broker(LUCK()), 0, 5
    batches = history([[40]])
    limit = max(map(len, batches)) - 1
    real = broker.produce

    async def picky(batches: Any, **given: Any) -> Any:
        nonlocal refused
        if any(len(batch) > limit for batch in batches.values()):
            refused += 1
            return dict.fromkeys(batches, ProduceResult(examiner.TOO_LARGE))
        return await real(batches, **given)

    async def limit_of(_tp: TopicPartition) -> int:
        nonlocal failures
        if failures:
            failures -= 1
            raise ConnectionLost("away")
        return limit

    monkeypatch.setattr(broker, "produce", picky)
    async with running(broker) as appender:
        monkeypatch.setattr(appender, "_limit_of", limit_of)
        source = await start(broker, batches, appender)
        await until_there(broker, [source])
        assert (source.replica.trouble, refused, failures) == (None, 1, 0)
    assert broker.log(TOPIC).end == source.end


async def test_a_record_that_is_too_large_is_quarantined_also_behind_others() -> None:
    """A record above the target's limit stops its log, also as the last of a log and behind batches that fit."""
    broker, small = Broker(LUCK()), history([[1]])
    at = parse_header(small[-1]).next_offset
    large = term_batch([NewRecord(bytes(1000), timestamp_ms=1)], term=1, offset=at, marker=0)
    async with running(broker) as appender:
        source = await start(broker, [*small, struct.pack(">q", at) + large[8:]], appender)
        source.replica.max_bytes = 500
        await until_there(broker, [source])
        assert source.replica.trouble is not None
        assert source.replica.trouble.state is LogState.QUARANTINED
        assert source.replica.trouble.cause.startswith(f"the record at offset {at} takes 10")
    assert broker.log(TOPIC).batches == small


@pytest.mark.parametrize("damaged", [True, False])
async def test_what_waits_before_a_batch_that_cannot_be_split_is_appended(damaged: bool) -> None:
    """A batch that is too large, and has one record or is damaged, stops its log behind what was fetched before it."""
    broker, small = Broker(LUCK()), history([[1]])
    at = parse_header(small[-1]).next_offset
    large = bytearray(term_batch([NewRecord(bytes(1000), timestamp_ms=1)], term=1, offset=at, marker=0))
    large[-1] ^= damaged
    async with running(broker) as appender:
        source = await start(broker, [*small, struct.pack(">q", at) + large[8:]], appender)
        source.replica.max_bytes, source.at_once = 500, 1
        for _ in range(3):
            source.submit()
        assert (source.damaged, source.replica.trouble) == ([], None), "what is queued may still be dropped"
        for _ in range(300):
            await asyncio.sleep(0)
            source.submit()
        assert broker.log(TOPIC).batches == small
        assert (len(source.damaged) > 0, source.replica.trouble is not None) == (damaged, not damaged)


async def test_memory_is_bounded_and_given_back() -> None:
    """The memory of queued batches is bounded, and freed again."""
    broker, batches = Broker(LUCK(), trouble=0.3), history([[4] * 40])
    async with running(broker) as appender:
        source = await start(broker, batches, appender)
        await until_there(broker, [source])
        for _ in range(100):
            await asyncio.sleep(0)
        assert appender.queued == 0


async def test_what_waits_for_a_log_that_is_let_go_is_dropped() -> None:
    """Batches queued for a log that is let go are dropped.

    After a promotion nothing from the queue may arrive: another client writes there now.
    """
    broker, batches = Broker(LUCK()), history([[2] * 60])
    gate = asyncio.Event()
    real = broker.produce

    async def slow(sent: Any, **_: Any) -> Any:
        await gate.wait()
        return await real(sent)

    broker.produce = slow  # type: ignore[method-assign, assignment]
    async with running(broker) as appender:
        source = await start(broker, batches, appender)
        source.at_once = len(batches)
        source.submit()
        for _ in range(10):
            await asyncio.sleep(0)
        assert appender.queued > 0
        assert appender.is_busy(source.replica.tp)
        appender.drop(appender.replicas)
        gate.set()
        for _ in range(100):
            await asyncio.sleep(0)
        assert not appender.is_busy(source.replica.tp)
        end = broker.log(TOPIC).end
        for _ in range(100):
            await asyncio.sleep(0)
        assert (broker.log(TOPIC).end, appender.queued) == (end, 0)
        assert end < source.end


@pytest.mark.parametrize("meanwhile", [True, False])
async def test_what_an_ordinary_client_has_just_written_here_is_not_appended_again(meanwhile: bool) -> None:
    """Records that an ordinary client has just written here are not appended again.

    In a cycle of links they come back from another site before this site's end has been read again. Only when nobody
    writes here any more (the link was reversed) are the source's records new.
    """

    def written_by(producer_id: int, offset: int) -> bytes:
        made = bytearray(foreign_batch([NewRecord(b"%d" % offset, timestamp_ms=5000)], offset=offset))
        rewrite_header(memoryview(made), producer_id, 0, offset)
        return bytes(made)

    broker = Broker(LUCK())
    broker.log(TOPIC).append(written_by(17, 0))
    async with running(broker) as appender:
        replica = appender.replica(TopicPartition(TOPIC), Priority.NORMAL)
        broker.states[replica.tp] = (ProducerState(17, 0, 0, 5000),)
        await appender.load_ends([replica])
        if meanwhile:
            broker.log(TOPIC).append(written_by(17, 1))
        source = Source(appender, replica, [struct.pack(">q", n) + written_by(99, n)[8:] for n in (0, 1)])
        source.rewind(replica.tp, 1)
        source.submit()
        for _ in range(300):
            await asyncio.sleep(0)
        assert (broker.log(TOPIC).end, source.moved) == ((2, 0) if meanwhile else (2, 1))
        assert replica.trouble is None


async def test_a_damaged_batch_gets_no_right_checksum_with_another_producer() -> None:
    """A batch that must get another producer id here is refused all the same if its source has damaged it."""
    batches = [
        bytearray(struct.pack(">q", n) + foreign_batch([NewRecord(b"%d" % n, timestamp_ms=5000)], offset=n)[8:])
        for n in range(3)
    ]
    batches[1][-1] ^= 0xFF
    broker = Broker(LUCK())
    async with running(broker) as appender:
        source = await start(broker, [bytes(each) for each in batches], appender)
        source.replica.foreign_id = FOREIGN_PRODUCER_ID + 1
        source.submit()
        for _ in range(300):
            await asyncio.sleep(0)
        assert broker.log(TOPIC).end == 1
        assert source.damaged == ["the CRC of the batch at offset 1 does not match its bytes"]


async def test_a_damaged_term_is_no_divergence() -> None:
    """Only this source has damaged the batch: another one may bring it, and no history differs."""
    batches = history([[1, 1, 1]])
    damaged = bytearray(batches[2])
    damaged[52] ^= 2  # the term, in the header
    broker = Broker(LUCK())
    async with running(broker) as appender:
        source = await start(broker, [*batches[:2], bytes(damaged), batches[3]], appender)
        source.submit()
        for _ in range(300):
            await asyncio.sleep(0)
        assert source.replica.trouble is None
        assert source.damaged == ["the CRC of the batch at offset 2 does not match its bytes"]
        other = Source(appender, source.replica, batches)
        other.rewind(source.replica.tp, source.replica.end)
        await until_there(broker, [other])
    assert broker.log(TOPIC).batches == batches
