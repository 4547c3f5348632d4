"""Describe histories of a log at its source as data, and play one while a replicator copies the log."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Producer
from hypothesis import strategies as st

from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.types import TopicPartition
from replication.replicator import Replicator
from tests.support.replication.consumers import assert_same_for_consumers, read_all
from tests.support.replication.lab import NOW_MS, Lab, states, until
from tests.support.waits import PATIENCE

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
KEYS = 7
ROLL_MS = 3_600_000  # a record that much later begins a new segment, although transaction markers have real times


@dataclass(frozen=True)
class Write:
    """An ordinary client writes records, with or without acks=all and idempotence."""

    count: int
    codec: str
    idempotent: bool
    tombstones: bool


@dataclass(frozen=True)
class Transact:
    """One of two transactional clients begins a transaction, or continues its open one."""

    who: int
    count: int
    codec: str


@dataclass(frozen=True)
class End:
    """That client ends its transaction."""

    who: int
    commit: bool


@dataclass(frozen=True)
class Compact:
    """A new segment begins, and the cleaner compacts the older ones. Does nothing if the log is not compacted."""


@dataclass(frozen=True)
class Delete:
    """DeleteRecords removes so many tenths of the log, but nothing that the replica lacks.

    Does nothing if the log is only compacted.
    """

    tenths: int


@dataclass(frozen=True)
class Run:
    """The replicator starts, stops cleanly, or is cancelled in the middle of its work."""

    on: bool
    orderly: bool = True


@dataclass(frozen=True)
class MoveLeader:
    """The log gets another leader at one site, or the same one after a restart if there is only one broker."""

    site: str


Event = Write | Transact | End | Compact | Delete | Run | MoveLeader


@dataclass(frozen=True)
class History:
    policy: str
    events: tuple[Event, ...]

    @property
    def compacts(self) -> bool:
        return "compact" in self.policy


counts = st.integers(1, 30)
codecs = st.sampled_from(CODECS)
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(Write, counts, codecs, st.booleans(), st.booleans()),
    st.builds(Transact, st.integers(0, 1), counts, codecs),
    st.builds(End, st.integers(0, 1), st.booleans()),
    st.builds(Compact),
    st.builds(Delete, st.integers(1, 10)),
    st.builds(Run, st.booleans(), st.booleans()),
)
leaders: st.SearchStrategy[Event] = st.builds(MoveLeader, st.sampled_from(["alpha", "beta"]))


def histories(*, with_leaders: bool) -> st.SearchStrategy[History]:
    """Return a strategy for histories. ``with_leaders``: with changes of leaders, which take seconds each."""
    kinds = st.one_of(events, leaders) if with_leaders else events
    policies = st.sampled_from(["delete", "compact", "compact,delete"])
    return st.builds(History, policies, st.lists(kinds, min_size=4, max_size=14).map(tuple))


@dataclass
class Life:
    """One log and its replica, while a history is played."""

    lab: Lab
    history: History
    move_leader: Callable[[str, str], Awaitable[None]]  # site, topic
    topic: str = ""
    clock: int = NOW_MS
    written: int = 0
    clients: dict[tuple[Any, ...], Producer] = field(default_factory=dict)
    open: dict[int, list[int]] = field(default_factory=dict)  # records of clients in a transaction
    aborted: set[str] = field(default_factory=set)  # numbers of records that no consumer may see
    replicator: Replicator | None = None
    running: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)

    async def live(self) -> None:
        """Play all events, then let the replica catch up and compare."""
        self.topic = self.lab.log("alpha.history")
        settings = {"cleanup.policy": self.history.policy}
        if self.history.compacts:
            settings |= {"min.cleanable.dirty.ratio": "0.01", "max.compaction.lag.ms": "100", "segment.ms": "200"}
        await self.lab.make("alpha", self.topic, **settings)
        try:
            for event in self.history.events:
                await self._happen(event)
            for who in tuple(self.open):
                await self._happen(End(who, commit=True))
            await self._happen(Write(3, "lz4", idempotent=True, tombstones=False))
            await self._happen(Run(on=True))
            end = await self._end_without_open_transactions()
            await self.lab.reaches("beta", self.topic, end)
            assert self.replicator is not None
            assert states(self.replicator.snapshot()) == {}
        finally:
            await self.running.aclose()
        assert await self.lab.end("beta", self.topic) == end
        alpha, beta = self.lab.kafka("alpha"), self.lab.kafka("beta")
        compacts = self.history.compacts
        await asyncio.to_thread(assert_same_for_consumers, alpha, beta, self.topic, compacts=compacts)
        seen = await asyncio.to_thread(read_all, beta, self.topic, committed=False)
        assert not self.aborted & {(dict(each.headers)["n"] or b"").decode() for each in seen.data}

    async def _end_without_open_transactions(self) -> int:
        """Wait until the source's broker has written the markers of all transactions; return the end offset."""
        tp, cluster, end = TopicPartition(self.topic), await self.lab.cluster("alpha"), 0

        async def stable() -> bool:
            nonlocal end
            end = await self.lab.end("alpha", self.topic)
            return (await cluster.fetch({tp: end}, max_wait_ms=0, isolation=1))[tp].last_stable_offset == end

        await until(stable, f"the broker does not end the transactions of {self.topic}")
        return end

    async def _happen(self, event: Event) -> None:
        match event:
            case Write(count, codec, idempotent, tombstones):
                settings = {"compression.type": codec, "enable.idempotence": idempotent}
                await asyncio.to_thread(self._write, self._client(settings), count, tombstones)
            case Transact(who, count, codec):
                await asyncio.to_thread(self._transact, who, count, codec)
            case End(who, commit):
                await asyncio.to_thread(self._end, who, commit)
            case Compact():
                await self._compact()
            case Delete(tenths):
                await self._delete(tenths)
            case Run(on, orderly):
                await self._run(on, orderly)
            case MoveLeader(site):
                await self.move_leader(site, self.topic)

    # ---- writing

    def _client(self, settings: dict[str, Any]) -> Producer:
        key = tuple(settings.items())
        if key not in self.clients:
            quiet = {"linger.ms": 5, "log_level": 0}
            self.clients[key] = Producer({**self.lab.kafka("alpha").librdkafka(), **quiet, **settings})
        return self.clients[key]

    def _write(self, client: Producer, count: int, tombstones: bool = False) -> list[int]:
        numbers = list(range(self.written, self.written + count))
        for n in numbers:
            self.written = n + 1
            self.clock += 1
            value = None if tombstones and n % 3 == 0 else b"value %d" % n
            client.produce(
                self.topic, key=b"%d" % (n * n % KEYS), value=value, timestamp=self.clock, headers={"n": str(n)}
            )
        assert client.flush(PATIENCE) == 0
        return numbers

    def _transact(self, who: int, count: int, codec: str) -> None:
        known = next((client for key, client in self.clients.items() if key[0] == ("who", who)), None)
        if known is None:
            identity = f"{self.topic}.{who}.{uuid.uuid4().hex}"
            quiet = {"transactional.id": identity, "compression.type": codec, "linger.ms": 5, "log_level": 0}
            long = {"transaction.timeout.ms": 600_000}  # on a busy machine too, only the history ends its transactions
            known = Producer({**self.lab.kafka("alpha").librdkafka(), **quiet, **long})
            known.init_transactions(60)
            self.clients["who", who], self.clients[("who", who), codec] = known, known
        if who not in self.open:
            known.begin_transaction()
            self.open[who] = []
        self.open[who] += self._write(known, count)

    def _end(self, who: int, commit: bool) -> None:
        if who not in self.open:
            return
        numbers, client = self.open.pop(who), self.clients["who", who]
        if commit:
            client.commit_transaction(60)
        else:
            client.abort_transaction(60)
            self.aborted |= {str(n) for n in numbers}

    # ---- the source's broker

    async def _compact(self) -> None:
        if not self.history.compacts:
            return
        self.clock += ROLL_MS
        roll = self.written
        await asyncio.to_thread(self._write, self._client({"compression.type": "none"}), 1)
        if self.open:
            return  # the cleaner leaves everything from an open transaction on: nothing to wait for

        async def cleaned() -> bool:
            view = await asyncio.to_thread(read_all, self.lab.kafka("alpha"), self.topic, committed=True)
            keys = [each.key for each in view.data if int(dict(each.headers)["n"] or 0) < roll]
            return len(keys) == len(set(keys))

        await until(cleaned, f"the broker does not compact {self.topic}")

    async def _delete(self, tenths: int) -> None:
        if self.history.policy == "compact":
            return
        tp = TopicPartition(self.topic)
        cluster = await self.lab.cluster("alpha")
        answer = (await cluster.fetch({tp: await self.lab.end("alpha", self.topic)}, max_wait_ms=0, isolation=1))[tp]
        before = answer.log_start_offset + (answer.last_stable_offset - answer.log_start_offset) * tenths // 10
        replica = await self.lab.end("beta", self.topic)
        if self.replicator is not None:
            await self.lab.reaches("beta", self.topic, before)
        elif replica > 0:
            before = min(before, replica)
        if before > answer.log_start_offset:
            assert await cluster.delete_records({tp: before}) == {tp: before}

    # ---- the replicator

    async def _run(self, on: bool, orderly: bool) -> None:
        if on and self.replicator is None:
            self.replicator = self.lab.replicator(self.lab.one_way(), "beta")
            self.running = contextlib.AsyncExitStack()
            await self.running.enter_async_context(running(self.replicator, orderly))
        elif not on and self.replicator is not None:
            await self.running.aclose()
            self.replicator = None


@contextlib.asynccontextmanager
async def running(replicator: Replicator, orderly: bool) -> Any:
    """Run a replicator; at the end stop it cleanly if ``orderly``, else cancel it."""
    stop = asyncio.Event()
    task = asyncio.ensure_future(replicator.run(stop))
    try:
        yield
    finally:
        if orderly:
            stop.set()
        else:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def new_lab(kafka: Callable[..., KafkaEndpoint]) -> Lab:
    """Return a lab with streams that only this history uses."""
    return Lab(kafka)
