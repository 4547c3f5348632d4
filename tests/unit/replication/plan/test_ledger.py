"""The ledgers of a site are read from their beginning, also when a topic is deleted and recreated."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from fairlead.custody.ledger import Told
from fairlead.errors import UnavailableError
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import term_batch
from fairlead.kafka.protocol.errors import (
    LEADER_NOT_AVAILABLE,
    OFFSET_OUT_OF_RANGE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    WireError,
    broker_error,
)
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import FetchedPartition, TopicInfo, TopicPartition
from fairlead.records import encode, headers
from fairlead.records.custody import CustodyEntry
from fairlead.records.reading import Device, GeoLocation
from fairlead.records.ship import MOORED, Position
from replication import berths, overrides
from replication.changes import PlanChanges
from replication.custody.ledger import Ledger
from replication.overrides import ORDERS_TOPIC, Override, OverrideKind
from replication.states import LogState
from tests.support.kafka.fake_broker import until
from topologies.ledger_trust import Believer
from topologies.loader.load import load

LEDGER, OTHER = TopicPartition("custody.tokyo"), TopicPartition("custody.singapore")
WHEN = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
BOXES = tuple(f"containers.BIGU{number}" for number in ("1000010", "1000026", "1000031"))


def entry(log: str, term: int = 1, by: str = "tokyo") -> bytes:
    return encode(
        CustodyEntry(
            log=log,
            term=term,
            marker_offset=0,
            from_site=None,
            to_site=by,
            event="GTIN",
            event_id=f"{log}-{term}",
            event_date_time=WHEN,
            granted_date_time=WHEN,
            granted_by=by,
            marker_batch=b"",
        )
    )


class Kafka:
    """A cluster and its fetch session in one: topics with an id, a first offset and entries, one in each batch.

    ``headers``: those of every record.
    """

    headers: tuple[tuple[str, bytes], ...] = ()

    def __init__(self) -> None:
        self.topics_: dict[TopicPartition, tuple[bytes, int, list[bytes]]] = {}
        self.moved = asyncio.Event()
        self.followed: dict[TopicPartition, tuple[int, bytes]] = {}
        self.lost = False
        self.damaged: set[TopicPartition] = set()  # logs of which a batch has another byte than was written
        self.damaged_at: dict[TopicPartition, int] = {}  # its offset; without one the last batch
        self.of_damaged_length: set[TopicPartition] = set()  # logs of which a broker returns no batch
        self.hidden: set[TopicPartition] = set()  # logs that the reader may not see
        self.asked = 0  # how often for topics
        self.patience: list[float | None] = []  # seconds to retry, at each request for offsets
        self.metadata = self

    def make(self, log: TopicPartition, *entries: bytes, start: int = 0) -> None:
        """Create a topic, or delete and recreate it."""
        made = self.topics_.get(log)
        number = made[0][0] + 1 if made else 1
        self.topics_[log] = bytes([number] * 16), start, list(entries)
        self.moved.set()

    def delete(self, log: TopicPartition) -> None:
        del self.topics_[log]
        self.moved.set()

    def add(self, log: TopicPartition, *entries: bytes) -> None:
        self.topics_[log][2].extend(entries)
        self.moved.set()

    # ---- Cluster

    async def topics(self, names: Collection[str], *, refresh: bool = False) -> dict[str, TopicInfo]:
        self.asked += 1
        return {
            tp.topic: TopicInfo(tp.topic, each[0], {0: 1})
            for tp, each in self.topics_.items()
            if tp.topic in names and tp not in self.hidden
        }

    def why_no_leader(self, log: TopicPartition) -> int:
        if log in self.hidden:
            return TOPIC_AUTHORIZATION_FAILED
        return LEADER_NOT_AVAILABLE if log in self.topics_ else UNKNOWN_TOPIC_OR_PARTITION

    async def start_offsets(
        self, logs: Collection[TopicPartition], *, seconds: float | None = None
    ) -> dict[TopicPartition, Any]:
        self.patience.append(seconds)
        return {tp: self._bounds(tp)[0] for tp in logs}

    async def end_offsets(self, logs: Collection[TopicPartition], **_: Any) -> dict[TopicPartition, Any]:
        return {tp: self._bounds(tp)[1] for tp in logs}

    def _bounds(self, tp: TopicPartition) -> Any:
        if tp not in self.topics_ or tp in self.hidden:
            return (broker_error(self.why_no_leader(tp), tp),) * 2
        _, start, entries = self.topics_[tp]
        return start, start + len(entries)

    async def fetch(self, positions: Mapping[TopicPartition, int], **_: Any) -> dict[TopicPartition, FetchedPartition]:
        return {tp: self._part(tp, at) for tp, at in positions.items()}

    def _part(self, tp: TopicPartition, at: int) -> FetchedPartition:
        _, start, entries = self.topics_[tp]
        if not start <= at <= start + len(entries):
            return FetchedPartition(OFFSET_OUT_OF_RANGE, -1, -1, -1, (), memoryview(b""))
        batches = [
            (start + n).to_bytes(8, "big")
            + bytes(
                term_batch([NewRecord(each, headers=self.headers, timestamp_ms=1)], term=1, offset=start + n, marker=0)
            )[8:]
            for n, each in enumerate(entries)
        ]
        if tp in self.damaged:
            bad = self.damaged_at.get(tp, start + len(entries) - 1) - start
            batches[bad] = batches[bad][:-1] + bytes([batches[bad][-1] ^ 0xFF])
        stored = bytearray() if tp in self.of_damaged_length else bytearray(b"".join(batches[at - start :]))
        return FetchedPartition(0, start + len(entries), start + len(entries), start, (), memoryview(stored))

    # ---- its fetch session

    def fetch_session(self) -> Kafka:
        self.followed = {}
        return self

    def set(self, log: TopicPartition, offset: int) -> None:
        self.followed[log] = offset, self.topics_[log][0] if log not in self.followed else self.followed[log][1]

    def forget(self, log: TopicPartition) -> None:
        self.followed.pop(log, None)

    async def close(self) -> None:
        self.followed = {}

    async def poll(self, **_: Any) -> dict[TopicPartition, FetchedPartition]:
        """Poll as the real session does: report a deleted topic or an offset out of range once, then ignore it."""
        while True:
            if self.lost:
                self.lost = False
                raise UnavailableError("the connection is lost")
            out = {}
            for log, (at, known) in tuple(self.followed.items()):
                if log not in self.topics_ or self.topics_[log][0] != known:
                    out[log] = FetchedPartition(UNKNOWN_TOPIC_ID, -1, -1, -1, (), memoryview(b""))
                elif (part := self._part(log, at)).error_code or part.records:
                    out[log] = part
                if log in out and out[log].error_code:
                    del self.followed[log]
            if out:
                return out
            self.moved.clear()
            try:
                await asyncio.wait_for(self.moved.wait(), 0.01)
            except TimeoutError:
                return {}


class Reader:
    """The reader of a site's ledger on such a cluster."""

    def __init__(self) -> None:
        self.kafka = Kafka()
        self.changes = PlanChanges()
        self.ledger = Ledger(load("big-blue", env={}), "tokyo", self.changes)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async def run() -> None:
            while True:
                try:
                    await self.ledger.run(cast(Cluster, self.kafka))
                except UnavailableError:
                    continue  # as the replicator calls it

        task = asyncio.create_task(run())
        try:
            await asyncio.wait_for(self.ledger.ready.wait(), 10)
            yield
            assert not task.done(), task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def knows(self, *logs: str) -> None:
        async with asyncio.timeout(10):
            while not set(logs) <= set(self.ledger.custody.logs()):
                await self.changes.wait()
                self.changes.take()

    async def asks_twice(self) -> None:
        """Wait until the ledger has carried out what it does after it has asked for topics."""
        before = self.kafka.asked
        await until(lambda: self.kafka.asked >= before + 2)


@pytest.fixture
async def reader() -> Reader:
    made = Reader()
    made.kafka.make(LEDGER, entry(BOXES[0]))
    made.kafka.make(OTHER)
    made.ledger.follow_topics([LEDGER.topic, OTHER.topic])
    return made


@pytest.mark.parametrize("entries", [1, 3], ids=["shorter than before", "longer than before"])
async def test_a_ledger_that_is_made_anew_is_read_from_its_start(reader: Reader, entries: int) -> None:
    """A recreated ledger is read from its start.

    The list of topics is the same, so nothing else announces it.
    """
    async with reader.running():
        reader.kafka.add(LEDGER, entry(BOXES[0], 2))
        await reader.knows(BOXES[0])
        reader.kafka.make(LEDGER, *[entry(BOXES[1])] * entries)
        await reader.knows(*BOXES[:2])
        reader.kafka.add(LEDGER, entry(BOXES[2]))
        await reader.knows(*BOXES)


async def test_a_ledger_that_is_made_anew_while_nothing_is_read_is_read_from_its_start(reader: Reader) -> None:
    """A ledger that is recreated while nothing is being read is read from its start."""
    async with reader.running():
        await reader.knows(BOXES[0])
        reader.kafka.make(LEDGER, entry(BOXES[1]), entry(BOXES[2]))
        reader.kafka.lost = True
        await reader.knows(*BOXES)


async def test_a_ledger_that_was_cut_beyond_its_reader_goes_on(reader: Reader) -> None:
    """Reading continues in a ledger whose records were deleted beyond the reader's position."""
    async with reader.running():
        await reader.knows(BOXES[0])
        reader.kafka.topics_[LEDGER] = reader.kafka.topics_[LEDGER][0], 7, [entry(BOXES[1])]
        reader.kafka.moved.set()
        await reader.knows(*BOXES[:2])


async def test_the_other_ledgers_go_on_while_one_is_gone(reader: Reader) -> None:
    """While one ledger is missing, the others are read on."""
    async with reader.running():
        await reader.knows(BOXES[0])
        reader.kafka.delete(LEDGER)
        reader.kafka.add(OTHER, entry(BOXES[1], by="singapore"))
        await reader.knows(*BOXES[:2])
        reader.kafka.make(LEDGER, entry(BOXES[2]))
        await reader.knows(*BOXES)


async def test_entries_that_a_new_leader_has_not_confirmed_yet_are_waited_for(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that has just been elected may serve less than the end that it names; each fetch waits there."""
    real, waits = reader.kafka.fetch, list[int]()

    async def fetch(
        positions: Mapping[TopicPartition, int], *, max_wait_ms: int, **given: Any
    ) -> dict[TopicPartition, FetchedPartition]:
        waits.append(max_wait_ms)
        if len(waits) < 3:
            return {tp: FetchedPartition(0, 0, 0, 0, (), memoryview(b"")) for tp in positions}
        return await real(positions, **given)

    monkeypatch.setattr(reader.kafka, "fetch", fetch)
    async with reader.running():
        await reader.knows(BOXES[0])
    assert len(waits) == 3 and min(waits) > 0


@pytest.mark.parametrize("trouble", ["a damaged batch", "a damaged length", "no topic"])
async def test_a_log_without_which_nothing_can_be_planned_is_named(reader: Reader, trouble: str) -> None:
    """A ledger that is damaged or cannot be read at the start holds up the site; its status says which and why."""
    there = reader.kafka.topics_[LEDGER]
    if trouble == "no topic":
        del reader.kafka.topics_[LEDGER]
    else:
        (reader.kafka.damaged if trouble == "a damaged batch" else reader.kafka.of_damaged_length).add(LEDGER)
    ledger, seen = reader.ledger, list[Any]()
    for _ in range(2):
        with pytest.raises(WireError):
            await ledger.run(cast(Cluster, reader.kafka))
        assert not ledger.ready.is_set()
        [(log, shown)] = ledger.unread.items()
        assert (log, shown.state) == (LEDGER, LogState.UNAVAILABLE)
        assert str(LEDGER) in shown.cause and "nothing is copied" in shown.cause
        seen.append(shown.since)
    assert seen[0] == seen[1]
    reader.kafka.damaged.clear()
    reader.kafka.of_damaged_length.clear()
    reader.kafka.topics_[LEDGER] = there
    async with reader.running():
        await reader.knows(BOXES[0])
        assert ledger.unread == {}


ORDERS = TopicPartition(ORDERS_TOPIC)


def pause(link: str) -> bytes:
    return overrides.encode(Override(OverrideKind.PAUSE, WHEN, "me", link=link))


async def test_a_record_that_is_no_order_is_passed(reader: Reader, caplog: pytest.LogCaptureFixture) -> None:
    reader.kafka.make(ORDERS, b"{", pause("a->tokyo"))
    reader.ledger.follow_topics([ORDERS.topic])
    async with reader.running():
        assert [order.link for order in reader.ledger.overrides.pauses()] == ["a->tokyo"]
    assert [each.getMessage().partition(":")[0] for each in caplog.records] == [
        "fairlead.orders at offset 0 cannot be decoded"
    ]


async def test_a_damaged_batch_of_orders_holds_up_no_ledger(
    reader: Reader, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order in it may be a pause or a promotion, so it is not passed: another broker may have it whole."""
    monkeypatch.setattr("replication.custody.ledger.DAMAGED_RETRY", 0.01)
    reader.kafka.make(ORDERS, pause("a->tokyo"))
    reader.ledger.follow_topics([ORDERS.topic])
    async with reader.running():
        reader.kafka.damaged.add(ORDERS)
        reader.kafka.add(ORDERS, pause("b->tokyo"))
        reader.kafka.add(LEDGER, entry(BOXES[1]))
        await reader.knows(*BOXES[:2])
        reader.kafka.add(OTHER, entry(BOXES[2], by="singapore"))
        await reader.knows(*BOXES)
        assert reader.ledger.orders_read == 1
        reader.kafka.damaged.clear()
        async with asyncio.timeout(10):
            while reader.ledger.orders_read < 2:
                await reader.changes.wait()
                reader.changes.take()
    assert [order.link for order in reader.ledger.overrides.pauses()] == ["a->tokyo", "b->tokyo"]
    assert len([each for each in caplog.records if each.levelname == "WARNING"]) == 1


async def test_orders_that_are_damaged_at_the_start_count_up_to_the_damage(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything else is read, the damage is named, and the orders are known once they can be read to where they ended
    at the start; a batch that is damaged later hides no order that was carried out before."""
    monkeypatch.setattr("replication.custody.ledger.DAMAGED_RETRY", 0.01)
    ledger = reader.ledger
    reader.kafka.make(ORDERS, *[pause(f"{link}->tokyo") for link in "abc"])
    reader.kafka.damaged.add(ORDERS)
    reader.kafka.damaged_at[ORDERS] = 1
    ledger.follow_topics([ORDERS.topic])
    async with reader.running():
        await reader.knows(BOXES[0])
        assert [order.link for order in ledger.overrides.pauses()] == ["a->tokyo"]
        trouble = ledger.overrides.unread
        assert trouble is not None and trouble == ledger.orders_trouble
        assert "beyond offset 1" in trouble.cause and "leader" in trouble.hint
        reader.changes.take()
        reader.kafka.damaged_at[ORDERS] = 2
        await until(lambda: ledger.orders_read == 2)
        assert ledger.overrides.unread is not None
        reader.kafka.damaged.clear()
        await until(lambda: ledger.overrides.unread is None)
        assert len([*ledger.overrides.pauses()]) == 3 and ledger.orders_trouble is None
        assert reader.changes.take() is None, "everything is planned again"
        reader.kafka.damaged.add(ORDERS)
        reader.kafka.damaged_at[ORDERS] = 3
        reader.kafka.add(ORDERS, pause("d->tokyo"))
        await until(lambda: ledger.orders_trouble is not None)
        assert ledger.overrides.unread is None


@pytest.mark.parametrize("given", [0, 1])
async def test_orders_that_may_not_be_seen_are_unread(reader: Reader, given: int) -> None:
    """No list of topics has them then, whether there are any or not."""
    if given:
        reader.kafka.make(ORDERS, pause("a->tokyo"))
    reader.kafka.hidden.add(ORDERS)
    ledger = reader.ledger
    async with reader.running():
        await reader.knows(BOXES[0])
        trouble = ledger.overrides.unread
        assert trouble is not None and trouble == ledger.orders_trouble
        assert "TOPIC_AUTHORIZATION_FAILED" in trouble.cause and "permission" in trouble.hint
        reader.kafka.hidden.clear()
        await until(lambda: ledger.overrides.unread is None and ledger.orders_trouble is None)
        assert len([*ledger.overrides.pauses()]) == given


async def test_orders_that_were_listed_are_not_missing(reader: Reader) -> None:
    """A broker with older metadata does not know their topic yet."""
    reader.kafka.make(ORDERS, pause("a->tokyo"))
    there = reader.kafka.topics_.pop(ORDERS)
    ledger = reader.ledger
    ledger.follow_topics([ORDERS.topic])
    async with reader.running():
        assert ledger.overrides.unread is not None
        reader.kafka.topics_[ORDERS] = there
        await until(lambda: ledger.overrides.unread is None)
        assert len([*ledger.overrides.pauses()]) == 1


async def test_orders_that_no_broker_serves_delay_no_ledger(reader: Reader) -> None:
    """They are asked for again at each poll, and a request may be retried for ten seconds."""
    reader.kafka.hidden.add(ORDERS)
    async with reader.running():
        reader.kafka.patience.clear()
        await until(lambda: len(reader.kafka.patience) > 1)
        assert all(each is not None and each <= 1 for each in reader.kafka.patience)


async def test_a_site_without_any_of_these_logs_has_nothing_to_wait_for() -> None:
    reader = Reader()
    reader.ledger.follow_topics([])
    async with reader.running():
        assert reader.ledger.overrides.unread is None
        reader.kafka.make(ORDERS, pause("a->tokyo"))
        reader.ledger.follow_topics([ORDERS.topic])
        await until(lambda: reader.ledger.orders_read == 1)


async def test_damaged_orders_end_with_a_new_topic_only(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that is missing may only be hidden, by old metadata or a lost permission, and come back with its damage.
    One with another id has other orders."""
    monkeypatch.setattr("replication.custody.ledger.DAMAGED_RETRY", 0.01)
    reader.kafka.make(ORDERS, pause("a->tokyo"))
    reader.kafka.damaged.add(ORDERS)
    reader.ledger.follow_topics([ORDERS.topic])
    async with reader.running():
        hidden = reader.kafka.topics_[ORDERS]
        reader.kafka.delete(ORDERS)
        await reader.asks_twice()
        assert reader.ledger.overrides.unread is not None
        reader.kafka.topics_[ORDERS] = hidden
        await reader.asks_twice()
        trouble = reader.ledger.overrides.unread
        assert trouble is not None and trouble == reader.ledger.orders_trouble
        reader.kafka.damaged.clear()
        reader.kafka.make(ORDERS, pause("b->tokyo"))
        await until(lambda: reader.ledger.overrides.unread is None)
        assert [order.link for order in reader.ledger.overrides.pauses()] == ["b->tokyo"]
        assert reader.ledger.orders_trouble is None


@pytest.mark.parametrize("left", [0, 1, 2])
async def test_damaged_orders_end_where_a_new_leader_has_fewer(
    reader: Reader, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    """Nobody has the others any more. The reader stands at offset 1, where the damaged batch was."""
    monkeypatch.setattr("replication.custody.ledger.DAMAGED_RETRY", 0.01)
    reader.kafka.make(ORDERS, *[pause(f"{link}->tokyo") for link in "abc"])
    reader.kafka.damaged.add(ORDERS)
    reader.kafka.damaged_at[ORDERS] = 1
    reader.ledger.follow_topics([ORDERS.topic])
    async with reader.running():
        assert reader.ledger.overrides.unread is not None
        reader.kafka.damaged.clear()
        del reader.kafka.topics_[ORDERS][2][left:]
        await until(lambda: reader.ledger.overrides.unread is None and reader.ledger.orders_trouble is None)
        reader.kafka.add(ORDERS, pause("d->tokyo"))
        await until(lambda: reader.ledger.orders_read == left + 1)
        assert "d->tokyo" in [order.link for order in reader.ledger.overrides.pauses()]


async def test_a_new_ledger_with_a_damaged_batch_holds_up_no_other(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is before the damaged batch counts, and is read once."""
    monkeypatch.setattr("replication.custody.ledger.DAMAGED_RETRY", 0.01)
    heard: list[Told] = []
    hear = Believer.hear

    def heard_by(self: Believer, told: Told) -> Iterator[Told]:
        heard.append(told)
        return hear(self, told)

    monkeypatch.setattr(Believer, "hear", heard_by)
    new = TopicPartition("custody.sydney")
    async with reader.running():
        reader.kafka.make(new, entry(BOXES[1], by="sydney"), entry(BOXES[2], by="sydney"))
        reader.kafka.damaged.add(new)
        reader.ledger.follow_topics([new.topic])
        await reader.knows(*BOXES[:2])
        for number in ("1000047", "1000052", "1000068"):
            reader.kafka.add(OTHER, entry(f"containers.BIGU{number}", by="singapore"))
            await reader.knows(f"containers.BIGU{number}")
        assert BOXES[2] not in set(reader.ledger.custody.logs())
        [(log, trouble)] = reader.ledger.unread.items()
        assert log == new and "beyond offset 1" in trouble.cause
        reader.kafka.damaged.clear()
        await reader.knows(*BOXES)
        assert reader.ledger.unread == {}
    assert [told.offset for told in heard if told.ledger == new.topic] == [0, 1]


POSITIONS = TopicPartition("ships.9074729.location")


def position(latitude: float, hour: int) -> bytes:
    device = Device(device_id="ais", boot_id=1, sequence=hour, device_date_time=WHEN + dt.timedelta(hours=hour))
    place = GeoLocation(latitude=latitude, longitude=139.79)
    return encode(Position(vessel_imo_number="9074729", device=device, geo_location=place, navigation_status=MOORED))


async def test_positions_that_cannot_be_read_hold_up_nothing(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the right to read the ship's positions, the ledgers are read all the same; positions count later."""
    monkeypatch.setattr(berths, "FRESH_MS", 1 << 62)
    reader.ledger.follow_topics([POSITIONS.topic])
    (link,) = [each for each in load("big-blue", env={}).links_to("tokyo") if each.name == "duck-star->tokyo:berthed"]
    async with reader.running():
        await reader.knows(BOXES[0])
        assert not reader.ledger.berths.is_open(link, 0)
        reader.kafka.make(POSITIONS, position(30.0, 0), position(35.65, 100))
        async with asyncio.timeout(10):
            while not reader.ledger.berths.is_open(link, 0):
                await reader.changes.wait()
                reader.changes.take()


async def test_a_damaged_position_is_passed_once_newer_ones_follow(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They say more about the berth, and a ship's positions do not wait for a broker that has the damaged one whole."""
    monkeypatch.setattr("replication.custody.ledger.DAMAGED_RETRY", 0.01)
    monkeypatch.setattr("replication.custody.ledger.LAST_POSITIONS", 2)
    read: list[float] = []
    newest = asyncio.Event()

    def locate(imo: str, fix: berths.ShipFix) -> None:
        read.append(fix.place.latitude)
        if fix.place.latitude == 38.0:
            newest.set()

    monkeypatch.setattr(reader.ledger.berths, "locate", locate)
    reader.kafka.make(POSITIONS, position(35.0, 0))
    reader.ledger.follow_topics([POSITIONS.topic])
    async with reader.running():
        assert read == [35.0]
        reader.kafka.damaged.add(POSITIONS)
        reader.kafka.damaged_at[POSITIONS] = 1
        reader.kafka.add(POSITIONS, *[position(35.0 + hour, hour) for hour in range(1, 4)])
        await asyncio.wait_for(newest.wait(), 10)
    assert read == [35.0, 37.0, 38.0]


@pytest.mark.parametrize("received", [b"9" * 5000, b"9" * 15, b"soon"])
async def test_a_position_with_a_wrong_time_of_receipt_is_one_of_its_records_time(
    reader: Reader, monkeypatch: pytest.MonkeyPatch, received: bytes
) -> None:
    read: list[int] = []
    monkeypatch.setattr(reader.ledger.berths, "locate", lambda imo, fix: read.append(fix.received_ms))
    reader.kafka.headers = ((headers.RECEIVED, received),)
    reader.kafka.make(POSITIONS, position(35.65, 0))
    reader.ledger.follow_topics([POSITIONS.topic])
    async with reader.running():
        assert read == [1]


async def test_only_the_last_positions_are_read_at_the_start(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(berths, "FRESH_MS", 1 << 62)
    monkeypatch.setattr("replication.custody.ledger.LAST_POSITIONS", 2)
    read: list[float] = []

    def locate(imo: str, fix: berths.ShipFix) -> None:
        read.append(fix.place.latitude)

    monkeypatch.setattr(reader.ledger.berths, "locate", locate)
    reader.kafka.make(POSITIONS, *[position(35.0 + hour, hour) for hour in range(5)])
    reader.ledger.follow_topics([POSITIONS.topic])
    async with reader.running():
        assert read == [38.0, 39.0]
