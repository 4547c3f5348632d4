"""A lane against a source whose answers are scripted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from typing import Any

from fairlead.wire.batch import parse_header
from fairlead.wire.convention import marker_record, term_batch
from fairlead.wire.errors import OFFSET_OUT_OF_RANGE
from fairlead.wire.record import NewRecord
from fairlead.wire.types import FetchedPartition, TopicPartition
from replication.content import Hole, Item
from replication.counters import Counters
from replication.lane import Lane
from replication.rate import LinkBudget
from replication.replica import Replica, Tail
from replication.states import LogState
from topologies.model import Priority

LOG = TopicPartition("custody.tokyo")
NOTHING = memoryview(bytearray())


class Source:
    """A cluster and its fetch session in one: answers by script, then waits for ever."""

    seconds = 0.0
    received = 0

    def __init__(self, *answers: FetchedPartition, end: int) -> None:
        self.answers = list(answers)
        self.end = end
        self.positions: list[int] = []
        self.exhausted = asyncio.Event()

    def fetch_session(self, **_: Any) -> Source:
        return self

    def set(self, log: TopicPartition, offset: int) -> None:
        self.positions.append(offset)

    def forget(self, log: TopicPartition) -> None: ...

    async def close(self) -> None: ...

    async def poll(self, **_: Any) -> dict[TopicPartition, FetchedPartition]:
        if self.answers:
            return {LOG: self.answers.pop(0)}
        self.exhausted.set()
        return await asyncio.Future()

    async def start_offsets(self, logs: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(logs, 0)

    async def end_offsets(self, logs: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(logs, self.end)


class Sink:
    """The writer: remembers what it is given."""

    def __init__(self) -> None:
        self.steps: list[Item | Hole] = []
        self.stopped: list[tuple[LogState, str]] = []

    lanes = 0

    def share(self) -> int:
        return 1 << 20

    def submit(self, replica: Replica, steps: list[Item | Hole], feed: Lane) -> None:
        self.steps += steps

    def stop(self, replica: Replica, state: LogState, cause: str) -> None:
        self.stopped.append((state, cause))


def stored(offset: int, *values: bytes) -> bytes:
    """A batch of term 1 as a broker has it, its base offset included."""
    records = [NewRecord(value, timestamp_ms=1000) for value in values]
    if offset == 0:
        records = [marker_record(values[0], timestamp_ms=1000)]
    return offset.to_bytes(8, "big") + bytes(term_batch(records, term=1, offset=offset, marker=0))[8:]


async def test_a_source_that_grows_while_it_is_asked_is_no_divergence() -> None:
    """The target already has a batch of four (1..4) from another source; this source gets it between two questions."""
    batch, following = stored(1, b"a", b"b", b"c", b"d"), stored(5, b"e")
    header = parse_header(batch)
    source = Source(
        FetchedPartition(OFFSET_OUT_OF_RANGE, -1, -1, -1, (), NOTHING),  # it ends at 1 still
        FetchedPartition(0, 6, 6, 0, (), memoryview(bytearray(batch + following))),
        end=5,
    )
    sink, troubles = Sink(), []
    lane = Lane(
        "tokyo->singapore/control",
        Priority.CONTROL,
        cluster=source,  # type: ignore[arg-type]
        writer=sink,  # type: ignore[arg-type]
        budget=LinkBudget(None, now=time.monotonic()),
        counters=Counters(),
        ends={},
        on_trouble=lambda *what: troubles.append(what),
        on_change=lambda: None,
        is_origin=lambda _: False,
    )
    replica = Replica(LOG, Priority.CONTROL)
    replica.learned(5, Tail(header.producer_id, 1, 0, 1, header.crc), 0)
    lane.follow(replica)
    running = asyncio.create_task(lane.run())
    exhausted = asyncio.create_task(source.exhausted.wait())
    await asyncio.wait({running, exhausted}, return_when=asyncio.FIRST_COMPLETED)
    assert not running.done()
    running.cancel()
    assert (sink.stopped, troubles) == ([], [])
    assert [(step.base, step.stop) for step in sink.steps] == [(5, 6)]


async def test_a_log_that_is_given_up_while_the_source_is_asked_about_another_is_not_looked_at() -> None:
    """Its topic was made anew there: the link follows it no more, though the source's answer has just raised doubts."""
    other = TopicPartition("custody.star")
    batch = stored(1, b"another")

    class Two(Source):
        async def poll(self, **_: Any) -> dict[TopicPartition, FetchedPartition]:
            if self.answers:
                return {LOG: self.answers.pop(), other: self.answers.pop()}
            return await super().poll()

        async def end_offsets(self, logs: Collection[TopicPartition]) -> dict[TopicPartition, int]:
            lane.unfollow(LOG)
            return await super().end_offsets(logs)

    source = Two(
        FetchedPartition(OFFSET_OUT_OF_RANGE, -1, -1, -1, (), NOTHING),
        FetchedPartition(0, 2, 2, 0, (), memoryview(bytearray(batch))),
        end=1,
    )
    lane = Lane(
        "tokyo->singapore/control",
        Priority.CONTROL,
        cluster=source,  # type: ignore[arg-type]
        writer=Sink(),  # type: ignore[arg-type]
        budget=LinkBudget(None, now=time.monotonic()),
        counters=Counters(),
        ends={},
        on_trouble=lambda *_: None,
        on_change=lambda: None,
        is_origin=lambda _: False,
    )
    for log in (LOG, other):
        replica = Replica(log, Priority.CONTROL)
        replica.learned(2, Tail(parse_header(batch).producer_id, 1, 0, 1, 0), 0)
        lane.follow(replica)
    running = asyncio.create_task(lane.run())
    exhausted = asyncio.create_task(source.exhausted.wait())
    await asyncio.wait({running, exhausted}, return_when=asyncio.FIRST_COMPLETED)
    assert not running.done()
    running.cancel()
    assert len(lane) == 1
