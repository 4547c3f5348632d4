"""Two links that copy one log at the same time, as for urgent logs.

Whichever is first, the target gets the log from its earliest record on, and two different logs are never mixed.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import FOREIGN_PRODUCER_ID, marker_record, term_batch
from fairlead.kafka.protocol.batch import parse_header
from fairlead.kafka.protocol.errors import OFFSET_OUT_OF_RANGE, ConnectionLost
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import FetchedPartition, ProduceResult, TopicPartition
from replication.batch.prepare import prepare_batches
from replication.batch.prepared import POSITION_KEY, Gap, PreparedBatch
from replication.batch.rebuild import fillers
from replication.link import fetch_state
from replication.link.fetcher import Fetcher
from replication.link.link_logs import Elsewhere, LinkLogs
from replication.link.start import brought_first
from replication.states import LogState
from replication.target import appender as appender_module
from replication.target.appender import TargetAppender
from replication.target.mirror import MirrorPartition
from tests.support.batches import foreign_batch
from tests.support.examples import examples
from tests.support.replication.broker import Broker, running
from tests.support.replication.scripted import FakeLinkLogs
from topologies.model import Priority

LOG = TopicPartition("alerts.tokyo")
NOTHING = memoryview(bytearray())
NOT_ENOUGH_REPLICAS = 19


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appender_module, "BACKOFF", (0.0,))
    monkeypatch.setattr(fetch_state, "PAUSE_SECONDS", 0.0)


def ordinary(stop: int, word: bytes, per: int = 1) -> list[bytes]:
    """Return a log written by ordinary clients, ``per`` records in a batch."""
    out = []
    for base in range(0, stop, per):
        new = [NewRecord(word + b" %d" % n, timestamp_ms=1000 + n) for n in range(base, min(base + per, stop))]
        out.append(struct.pack(">q", base) + foreign_batch(new, offset=base)[8:])
    return out


def ours(stop: int) -> list[bytes]:
    """Return a log of Fairlead's own: one term, one record in a batch."""
    out = []
    for n in range(stop):
        new = marker_record(b"m", timestamp_ms=1000) if n == 0 else NewRecord(b"%d" % n, timestamp_ms=1000 + n)
        out.append(struct.pack(">q", n) + term_batch([new], term=1, offset=n, marker=0)[8:])
    return out


class Source:
    """A site with a copy of the log from ``start`` on: a cluster and its fetch session in one. It answers only once
    ``may_answer`` is set.
    """

    seconds = 0.0

    def __init__(self, batches: Sequence[bytes], *, start: int = 0, at_once: int = 3) -> None:
        self.batches = [each for each in batches if parse_header(each).next_offset > start]
        self.start = start
        self.end = parse_header(self.batches[-1]).next_offset
        self.at_once = at_once
        self.position: int | None = None
        self.received = 0
        self.asked = 0  # its first offset
        self.may_answer = asyncio.Event()
        self.moved = asyncio.Event()

    def grow(self, batches: Sequence[bytes]) -> None:
        """Append batches."""
        self.batches = [*self.batches, *batches]
        self.end = parse_header(self.batches[-1]).next_offset
        self.moved.set()

    def fetch_session(self, **_: Any) -> Source:
        return self

    def set(self, log: TopicPartition, offset: int) -> None:
        self.position = offset
        self.moved.set()

    def forget(self, log: TopicPartition) -> None:
        self.position = None

    def cut_poll_short(self) -> None: ...

    def unserved(self, _seconds: float) -> dict[TopicPartition, int]:
        return {}

    async def close(self) -> None: ...

    async def poll(self, *, max_wait_ms: int, **_: Any) -> dict[TopicPartition, FetchedPartition]:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max_wait_ms / 1000 + 0.001):
                await self.may_answer.wait()
                while self.position in (None, self.end):
                    self.moved.clear()
                    await self.moved.wait()
        await asyncio.sleep(0)
        if not self.may_answer.is_set() or self.position is None or self.position == self.end:
            return {}
        if not self.start <= self.position <= self.end:
            self.position = None
            return {LOG: FetchedPartition(OFFSET_OUT_OF_RANGE, -1, -1, -1, (), NOTHING)}
        some = [each for each in self.batches if parse_header(each).next_offset > self.position][: self.at_once]
        data = bytearray(b"".join(some))
        self.received += len(data)
        return {LOG: FetchedPartition(0, self.end, self.end, self.start, (), memoryview(data))}

    async def start_offsets(self, logs: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        self.asked += 1
        return dict.fromkeys(logs, self.start)

    async def end_offsets(self, logs: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(logs, self.end)


async def nowhere(_logs: Mapping[TopicPartition, int]) -> Collection[TopicPartition]:
    """Return no link: there is no other one."""
    return ()


class Site:
    """A site that follows the log at all these sources. ``knowing``: its links know of each other."""

    def __init__(
        self, appender: TargetAppender, broker: Broker, sources: Sequence[Source], *, knowing: bool, priority: Priority
    ) -> None:
        self.appender = appender
        self.broker = broker
        self.sources = sources
        self.priority = priority
        self.replica = appender.replica(LOG, priority)
        self.troubles: list[LogState] = []
        self.fetchers = [
            self._fetcher(appender, source, self._others(source) if knowing else nowhere) for source in sources
        ]

    def _fetcher(self, appender: TargetAppender, source: Source, elsewhere: Elsewhere) -> Fetcher:
        target = self

        class Knowing(FakeLinkLogs):
            def stop_log(self, tp: TopicPartition, state: LogState, cause: str, hint: str = "") -> None:
                target.troubles.append(state)
                fetcher.unfollow(tp)

            async def brought_first(self, logs: Mapping[TopicPartition, int]) -> Collection[TopicPartition]:
                return await elsewhere(logs)

        link = Knowing(f"source {self.sources.index(source)}")
        fetcher = Fetcher(cast(LinkLogs, link), self.priority, cast(Cluster, source), appender)
        return fetcher

    def _others(self, source: Source) -> Elsewhere:
        async def ask(logs: Mapping[TopicPartition, int]) -> Collection[TopicPartition]:
            ends = {} if self.replica.is_without_records else {LOG: self.replica.end}
            found: set[TopicPartition] = set()
            for other in self.sources:
                if other is not source and logs:
                    found |= await brought_first(cast(Cluster, other), logs, ends, "earliest")
            return found

        return ask

    @property
    def start(self) -> int:
        return self.broker.log(*LOG).start

    @property
    def stored(self) -> list[bytes]:
        return self.broker.log(*LOG).batches


@contextlib.asynccontextmanager
async def following(
    *sources: Source, knowing: bool = True, broker: Broker | None = None, priority: Priority = Priority.URGENT
) -> AsyncIterator[Site]:
    """Run the fetchers of a target; the sources answer when the test lets them."""
    broker = broker or Broker(random.Random(1))  # noqa: S311 - no secrets here
    async with running(broker) as appender:
        target = Site(appender, broker, sources, knowing=knowing, priority=priority)
        await appender.load_ends([target.replica])
        for each in target.fetchers:
            each.follow(target.replica)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each.run()) for each in target.fetchers]
            try:
                yield target
            finally:
                for task in tasks:
                    task.cancel()


async def settle(target: Site) -> None:
    """Let all pending tasks run."""
    before = None
    while before != (before := (len(target.stored), target.start)):
        await asyncio.sleep(0.05)
        for _ in range(300):
            await asyncio.sleep(0)


async def stored(target: Site, count: int) -> None:
    """Wait until the target has stored so many batches."""
    async with asyncio.timeout(60):
        while len(target.stored) < count:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)


ORDERS = pytest.mark.parametrize("order", [(0,), (1,), ()], ids=["one first", "the other first", "both at once"])
"""Orders in which the sources answer: each answers everything it can before the next one may."""


async def answer_in(order: Sequence[int], target: Site) -> None:
    for number in order:
        target.sources[number].may_answer.set()
        await settle(target)
    for source in target.sources:
        source.may_answer.set()
    await settle(target)


# ---- where the copy begins


@ORDERS
@pytest.mark.parametrize("log", [ordinary(20, b"v"), ours(20)], ids=["ordinary", "ours"])
async def test_a_new_copy_begins_where_the_earliest_source_does(order: Sequence[int], log: list[bytes]) -> None:
    """A new copy begins at the start of the source that has the earliest records."""
    late, whole = Source(log, start=10), Source(log)
    async with following(late, whole) as target:
        await answer_in(order, target)
        assert (target.start, target.stored) == (0, log)
        assert (target.troubles, target.replica.trouble) == ([], None)
        assert late.position == whole.position == 20  # both are followed at the end


@ORDERS
async def test_a_new_copy_begins_at_the_earliest_of_two_late_starts(order: Sequence[int]) -> None:
    """If both sources begin late, a new copy begins at the earlier start."""
    log = ordinary(20, b"v")
    async with following(Source(log, start=12), Source(log, start=7)) as target:
        await answer_in(order, target)
        assert (target.start, target.stored) == (7, log[7:])
        assert (target.troubles, target.replica.trouble) == ([], None)


async def test_a_source_that_is_bringing_a_log_is_not_asked_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source that is copying a log is not asked for its start repeatedly.

    The answers would use its link's time, and delay that link's other logs.
    """
    monkeypatch.setattr(fetch_state, "PAUSE_SECONDS", 0.02)
    log = ordinary(500, b"v")
    late, whole = Source(log, start=490), Source(log, at_once=1)
    async with following(late, whole) as target:
        late.may_answer.set()
        await settle(target)
        before = whole.asked
        whole.may_answer.set()
        await stored(target, 500)
        assert whole.asked - before <= 5
        await settle(target)
        assert late.position == 500


@ORDERS
async def test_no_order_of_arrival_deletes_a_record(order: Sequence[int]) -> None:
    """In whatever order the sources answer, no record is deleted.

    The links do not know of each other here, and the result is safe all the same.
    """
    log = ordinary(20, b"v")
    async with following(Source(log, start=10), Source(log), knowing=False) as target:
        await answer_in(order, target)
        assert target.start in (0, 10)
        assert target.stored == log[target.start :]
        assert target.replica.trouble is None
        assert set(target.troubles) <= {LogState.BEHIND_RETENTION}


class Submitted:
    """A feed that submits what a test gives it, and records the answers."""

    name = "submitted"

    def __init__(self) -> None:
        self.rewound: list[int] = []

    def rewind(self, tp: TopicPartition, end: int) -> None:
        self.rewound.append(end)

    def on_appended(self, tp: TopicPartition, prepared: PreparedBatch) -> None: ...

    def on_damaged(self, tp: TopicPartition, cause: str) -> None: ...


def items(batches: Sequence[bytes]) -> list[PreparedBatch | Gap]:
    made = prepare_batches(memoryview(bytearray(b"".join(batches))), parse_header(batches[0]).base_offset)
    return [step for step in made if isinstance(step, PreparedBatch)]


async def test_fillers_that_position_are_refused_behind_records() -> None:
    """Fillers before a log's start are refused once it has records.

    They were submitted while the log was empty; the other link's records were appended first.
    """
    log = ordinary(20, b"v")
    broker = Broker(random.Random(1))  # noqa: S311
    async with running(broker) as appender:
        replica = appender.replica(LOG, Priority.URGENT)
        await appender.load_ends([replica])
        whole, late = Submitted(), Submitted()
        appender.submit_steps(replica, items(log[:5]), whole)
        gap = Gap(0, 10, FOREIGN_PRODUCER_ID, 0, 0, 1, POSITION_KEY)
        appender.submit_steps(replica, [gap, *items(log[10:])], late)
        for _ in range(200):
            await asyncio.sleep(0)
        assert appender.queued == 0
    assert (broker.log(*LOG).start, broker.log(*LOG).batches) == (0, log[:5])
    assert (whole.rewound, late.rewound) == ([], [5])


async def test_fillers_that_position_are_refused_behind_records_of_the_same_link() -> None:
    """They are refused, too, behind records of the same link."""
    log = ordinary(20, b"v")
    broker, feed = Broker(random.Random(1)), Submitted()  # noqa: S311
    async with running(broker) as appender:
        replica = appender.replica(LOG, Priority.URGENT)
        await appender.load_ends([replica])
        gap = Gap(5, 10, FOREIGN_PRODUCER_ID, 0, 0, 1, POSITION_KEY)
        appender.submit_steps(replica, [*items(log[:5]), gap, *items(log[10:])], feed)
        for _ in range(200):
            await asyncio.sleep(0)
    assert (broker.log(*LOG).start, broker.log(*LOG).batches, feed.rewound) == (0, log[:5], [5])


def test_fillers_behind_what_is_not_known_are_not_deleted() -> None:
    """Fillers behind records that are not known yet are not deleted."""
    replica = MirrorPartition(LOG, Priority.URGENT)
    replica.set_end(5, None, 0)
    (filler,) = fillers(Gap(5, 10, FOREIGN_PRODUCER_ID, 0, 0, 1, POSITION_KEY))
    assert replica.confirm_append(filler) is None
    (prepared,) = items(ordinary(11, b"v")[10:])
    assert isinstance(prepared, PreparedBatch)
    assert replica.confirm_append(prepared) is None


async def test_only_the_fillers_before_the_first_record_are_deleted() -> None:
    """Only the fillers before the first record are deleted."""
    log = ordinary(20, b"v")
    broker = Broker(random.Random(1))  # noqa: S311
    async with running(broker) as appender:
        replica = appender.replica(LOG, Priority.URGENT)
        await appender.load_ends([replica])
        appender.submit_steps(replica, [Gap(0, 10, FOREIGN_PRODUCER_ID, 0, 0, 1, POSITION_KEY)], Submitted())
        for _ in range(200):
            await asyncio.sleep(0)
        assert (broker.log(*LOG).start, broker.log(*LOG).end) == (9, 10)  # at least one record stays
        appender.submit_steps(replica, items(log[10:]), Submitted())
        for _ in range(200):
            await asyncio.sleep(0)
    assert (broker.log(*LOG).start, broker.log(*LOG).batches) == (10, log[10:])


async def test_a_log_with_a_record_below_fillers_is_not_only_positioned() -> None:
    """A log with a record before its fillers does not count as empty.

    An older version may have left it so: records before the fillers must not be deleted with them.
    """
    broker = Broker(random.Random(1))  # noqa: S311
    broker.log(*LOG).append(ordinary(1, b"v")[0])
    for filler in fillers(Gap(1, 5, FOREIGN_PRODUCER_ID, 0, 0, 1, POSITION_KEY)):
        broker.log(*LOG).append(bytes(filler.data))
    async with running(broker) as appender:
        replica = appender.replica(LOG, Priority.URGENT)
        await appender.load_ends([replica])
        assert not await appender.has_only_fillers(replica)
        assert not replica.is_without_records
        broker.log(*LOG).delete_before(1)
        assert await appender.has_only_fillers(replica)
        assert replica.is_without_records


# ---- different histories


@ORDERS
@pytest.mark.parametrize(("one", "other"), [(8, 12), (12, 8), (10, 10)])
async def test_two_histories_are_never_put_together(one: int, other: int, order: Sequence[int]) -> None:
    """Two different histories are never mixed."""
    logs = ordinary(one, b"one"), ordinary(other, b"other")
    async with following(*map(Source, logs)) as target:
        await answer_in(order, target)
        assert target.stored in [log[: len(target.stored)] for log in logs]
        assert target.replica.trouble is not None
        assert target.replica.trouble.state is LogState.DIVERGED


@ORDERS
async def test_histories_that_part_later_are_never_put_together(order: Sequence[int]) -> None:
    """Histories that differ only from some offset on are never mixed."""
    same = ordinary(6, b"same")
    logs = same + ordinary(9, b"one")[6:], same + ordinary(14, b"other")[6:]
    async with following(*map(Source, logs)) as target:
        await answer_in(order, target)
        assert target.stored in [log[: len(target.stored)] for log in logs]
        assert target.replica.trouble is not None
        assert target.replica.trouble.state is LogState.DIVERGED


async def test_histories_that_part_at_their_ends_are_reported() -> None:
    """Also if nothing follows, and both sources were seen to have the same records before."""
    same = ordinary(6, b"same")
    sources = Source(same), Source(same)
    async with following(*sources) as target:
        await answer_in((0, 1), target)
        for source, word in zip(sources, (b"one", b"other"), strict=True):
            source.grow(ordinary(7, word)[6:])
            await settle(target)
        assert len(target.stored) == 7
        assert target.replica.trouble is not None
        assert target.replica.trouble.state is LogState.DIVERGED


# ---- a target in trouble


class Troubled(Broker):
    """A target that accepts no append for a while: it does not answer at all, or has too few replicas."""

    def __init__(self, trouble: str) -> None:
        super().__init__(random.Random(1))  # noqa: S311
        self.is_troubled = False
        self.away = trouble == "does not answer"

    def _answer(self) -> None:
        if self.is_troubled and self.away:
            self.connections += 1
            raise ConnectionLost("the target does not answer")

    async def produce(self, batches: Mapping[TopicPartition, Any], **more: Any) -> dict[TopicPartition, ProduceResult]:
        self._answer()
        if self.is_troubled:
            return dict.fromkeys(batches, ProduceResult(NOT_ENOUGH_REPLICAS))
        return await super().produce(batches, **more)

    async def end_offsets(self, logs: Collection[TopicPartition], **_: Any) -> dict[TopicPartition, int]:
        self._answer()
        return await super().end_offsets(logs)


@pytest.mark.parametrize("trouble", ["does not answer", "has too few replicas"])
@pytest.mark.parametrize("priority", [Priority.URGENT, Priority.NORMAL])
async def test_nothing_is_fetched_for_a_target_in_trouble(priority: Priority, trouble: str) -> None:
    """Nothing is fetched for a target in trouble.

    Fetched records are kept, and later ones are not requested until they can be appended. On a satellite link each byte
    fetched in vain costs money.
    """
    log = ordinary(400, b"a record of some size")
    size, answer = sum(map(len, log)), 3 * len(log[-1])
    broker, source = Troubled(trouble), Source(log)
    async with following(source, broker=broker, priority=priority) as target:
        source.may_answer.set()
        await stored(target, 50)
        broker.is_troubled = True
        before = source.received
        await asyncio.sleep(0.3)
        assert source.received - before <= 2 * answer  # the fetch under way, and the one that meets the trouble
        assert len(target.stored) < 400
        broker.is_troubled = False
        await stored(target, 400)
        assert (target.stored, target.replica.trouble) == (log, None)
    assert source.received <= size + 4 * answer


async def test_a_target_that_does_not_answer_is_not_ready_whichever_log_is_asked_for() -> None:
    """A target that does not answer is not ready, whichever of its logs is meant."""
    broker, source = Troubled("does not answer"), Source(ordinary(400, b"v"))
    async with following(source, broker=broker) as target:
        source.may_answer.set()
        await stored(target, 50)
        broker.is_troubled = True
        await asyncio.sleep(0.05)
        for urgent in (True, False):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(target.appender.wait_ready(urgent=urgent), 0.05)
        broker.is_troubled = False
        await asyncio.wait_for(target.appender.wait_ready(), 5)


@pytest.mark.parametrize("trouble", ["does not answer", "has too few replicas"])
async def test_nothing_is_sent_again_of_a_log_that_was_let_go(trouble: str) -> None:
    """Records of a log that was let go are not sent again: after a promotion another client writes there."""
    broker, source = Troubled(trouble), Source(ordinary(400, b"v"))
    async with following(source, broker=broker) as target:
        source.may_answer.set()
        await stored(target, 50)
        broker.is_troubled = True
        await asyncio.sleep(0.05)
        assert target.appender.is_busy(LOG)
        async with asyncio.timeout(10):
            while target.replica.in_flight:  # noqa: ASYNC110 - what is on its way to the broker stays so
                await asyncio.sleep(0)
        target.fetchers[0].unfollow(LOG)
        target.appender.drop(target.appender.replicas)
        end = broker.log(*LOG).end
        broker.is_troubled = False
        await settle(target)
        assert not target.appender.is_busy(LOG)
        assert (broker.log(*LOG).end, target.appender.queued) == (end, 0)


@pytest.mark.parametrize("priority", [Priority.URGENT, Priority.NORMAL])
async def test_a_slow_target_is_no_reason_to_fetch_again(priority: Priority) -> None:
    """A slow target does not make a link fetch again."""
    log = ordinary(20, b"v")
    broker, source, go_on = Broker(random.Random(1)), Source(log), asyncio.Event()  # noqa: S311
    produce = broker.produce

    async def slow(batches: Mapping[TopicPartition, Any], **more: Any) -> dict[TopicPartition, ProduceResult]:
        await go_on.wait()
        return await produce(batches, **more)

    broker.produce = slow  # type: ignore[method-assign]
    async with following(source, broker=broker, priority=priority) as target:
        source.may_answer.set()
        await settle(target)
        assert target.stored == []
        go_on.set()
        await stored(target, 20)
        await settle(target)
    assert source.received == sum(map(len, log))


async def test_a_source_that_loses_what_still_waits_and_goes_on_with_other_records_is_reported() -> None:
    """What it had given is on its way to the target, or waits behind that."""
    old, other = ordinary(20, b"old"), ordinary(30, b"new")[10:]
    for log, epoch in ((old, 3), (other, 7)):
        log[:] = [each[:12] + struct.pack(">i", epoch) + each[16:] for each in log]
    broker, source, go_on = Broker(random.Random(1)), Source(old[:10]), asyncio.Event()  # noqa: S311
    produce = broker.produce

    async def slow(batches: Mapping[TopicPartition, Any], **more: Any) -> dict[TopicPartition, ProduceResult]:
        await go_on.wait()
        return await produce(batches, **more)

    async with following(source, broker=broker) as target:
        source.may_answer.set()
        await stored(target, 10)
        broker.produce = slow  # type: ignore[method-assign]
        for batches in (old, old[:10] + other):
            source.batches, source.end = batches, parse_header(batches[-1]).next_offset
            source.moved.set()
            await settle(target)
            assert source.position == source.end
        go_on.set()
        await settle(target)
        assert target.replica.trouble is not None
        assert target.replica.trouble.state is LogState.DIVERGED
        assert [each[16:] for each in target.stored] == [each[16:] for each in old[: len(target.stored)]]
        assert target.appender.queued == 0


async def test_what_waits_is_not_put_behind_records_of_somebody_else() -> None:
    """Queued records are not appended behind those of another writer.

    The connection to the target was lost, and meanwhile another replicator has appended another history.
    """
    log, other = ordinary(10, b"one"), ordinary(10, b"other")
    broker, feed = Broker(random.Random(1)), Submitted()  # noqa: S311
    async with running(broker) as appender:
        replica = appender.replica(LOG, Priority.URGENT)
        await appender.load_ends([replica])
        appender.submit_steps(replica, items(log[:5]), feed)
        for _ in range(200):
            await asyncio.sleep(0)
        broker.connections += 1
        for batch in other[5:7]:
            assert broker.log(*LOG).append(batch).error_code == 0
        appender.submit_steps(replica, items(log[5:]), feed)
        for _ in range(200):
            await asyncio.sleep(0)
        assert appender.queued == 0
    assert (broker.log(*LOG).batches, feed.rewound) == (log[:5] + other[5:7], [7])


async def test_a_link_that_comes_later_does_not_carry_everything_again() -> None:
    """A link that comes up later does not transfer the whole log again."""
    log = ordinary(400, b"v")
    sources = Source(log), Source(log)
    async with following(*sources) as target:
        await answer_in((0,), target)
        assert (target.stored, target.replica.trouble) == (log, None)
    assert sources[1].received < 10 * len(log[-1])


@settings(max_examples=examples(40), deadline=None)
@given(
    seed=st.integers(0, 2**32),
    stops=st.tuples(st.integers(1, 30), st.integers(1, 30)),
    per=st.integers(1, 4),
    trouble=st.sampled_from([0.0, 0.2]),
)
def test_two_sources_of_one_log_make_one_log(seed: int, stops: tuple[int, int], per: int, trouble: float) -> None:
    """Two sources of one log give one log, in whatever order requests are answered and whatever fails at the target."""
    luck = random.Random(seed)  # noqa: S311 - chance, not secrets
    log = ordinary(max(stops) * per, b"v", per)

    async def scenario() -> None:
        sources = [Source(log[:stop], at_once=luck.randint(1, 4)) for stop in stops]
        async with asyncio.timeout(60), following(*sources, broker=Broker(luck, trouble=trouble)) as target:
            while len(target.stored) < max(stops):
                each = luck.choice(sources)
                each.may_answer.set()
                for _ in range(luck.randint(1, 20)):
                    await asyncio.sleep(0)
                each.may_answer.clear()
                await asyncio.sleep(0)
            assert (target.troubles, target.replica.trouble) == ([], None)
            assert target.stored == log

    asyncio.run(scenario())


# ---- a batch that a source's disk has damaged


def damaged(log: Sequence[bytes], number: int) -> list[bytes]:
    """Return the log with another last byte in one batch."""
    batch = bytearray(log[number])
    batch[-1] ^= 0xFF
    return [*log[:number], bytes(batch), *log[number + 1 :]]


@ORDERS
@pytest.mark.parametrize("log", [ordinary(20, b"v"), ours(20)], ids=["ordinary", "ours"])
async def test_a_batch_that_one_source_has_damaged_comes_from_the_other(order: Sequence[int], log: list[bytes]) -> None:
    """A damaged batch stops the log for its source only; the other source brings the log whole."""
    async with following(Source(damaged(log, 10)), Source(log)) as target:
        await answer_in(order, target)
        assert target.stored == log
        assert target.replica.trouble is None
        assert set(target.troubles) <= {LogState.QUARANTINED}


@pytest.mark.parametrize("log", [ordinary(20, b"v"), ours(20)], ids=["ordinary", "ours"])
async def test_a_batch_that_is_damaged_everywhere_stops_the_log_for_every_source(log: list[bytes]) -> None:
    """What comes before a batch that all sources have damaged is copied, and nothing after it."""
    async with following(Source(damaged(log, 10)), Source(damaged(log, 10))) as target:
        await answer_in((), target)
        assert target.stored == log[:10]
        assert target.troubles == [LogState.QUARANTINED] * 2
        assert target.replica.trouble is None


async def test_a_damaged_batch_that_is_too_large_here_comes_from_the_other_source() -> None:
    """A batch that must be split is damaged at one source: the other one's is split."""
    log = ours(20)
    large = term_batch([NewRecord(bytes(100), timestamp_ms=1)] * 10, term=1, offset=20, marker=0)
    log.append(struct.pack(">q", 20) + large[8:])
    async with following(Source(damaged(log, 20)), Source(log)) as target:
        target.replica.max_bytes = 500
        await answer_in((0,), target)
        assert parse_header(target.stored[-1]).next_offset == 30
        assert (target.troubles, target.replica.trouble) == ([LogState.QUARANTINED], None)
