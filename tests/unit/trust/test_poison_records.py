"""Records that nobody honest writes, in logs that are followed for ever: each reader passes over them and goes on."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import zlib
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import msgspec
import pyarrow as pa
import pytest

from edge.custody.operator.execute import KafkaLedgers
from edge.custody.term_writer import decode_marker
from edge.logwriter import records
from edge.logwriter.tail_reader import TailReader
from edge.strays.report import StrayList
from edge.strays.store import StrayBook, Strays
from fairlead.custody.ledger import read_ledgers
from fairlead.custody.view import CustodyView
from fairlead.kafka import columnar
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import read_log
from fairlead.kafka.convention import term_batch
from fairlead.kafka.protocol.codecs import Codec, compress, decompress
from fairlead.kafka.protocol.errors import UnreadableRecords
from fairlead.kafka.protocol.record import NewRecord, Record, build_batch, decode_batch, encode_batch
from fairlead.kafka.protocol.types import TP
from fairlead.records import UNREADABLE, encode
from fairlead.records.alert import Alert
from fairlead.records.custody import CustodyEntry, ledger_entries
from fairlead.records.edge import Stray
from replication.changes import PlanChanges
from replication.custody.ledger import Ledger
from shore.source.operations import rows_of
from shore.tables.custody import rows_of_entries
from simulators.voyage.waiting import Waiter
from tests.support.edge.receiving import World
from tests.support.edge.samples import BOX_LOG, reading, topology
from tests.support.honest_ledgers import ABOARD, HONEST, grant
from tests.support.kafka.fake_broker import FakeCluster
from tests.support.kafka.fake_log import FakeLog
from tests.support.shore.raw_records import BY_NAME, LEDGERS, RECORDS, raw

LEDGER = "custody.tokyo"
GOOD = [encode(entry) for site, entry in HONEST if site == "tokyo" and entry.log == ABOARD]


def poisoned(**fields: Any) -> bytes:
    """An entry as JSON with some fields replaced."""
    return json.dumps({**json.loads(encode(grant("tokyo", ABOARD, 2, "star"))), **fields}).encode()


ENTRIES: dict[str, bytes] = {
    "a time without a zone": poisoned(eventDateTime="2026-03-01T12:00:00"),
    "a second time without a zone": poisoned(grantedDateTime="2026-03-01T12:00:00"),
    "the first year": poisoned(eventDateTime="0001-01-01T00:00:00+14:00"),
    "the last year": poisoned(eventDateTime="9999-12-31T23:59:59-14:00"),
    "a term of thirty digits": poisoned(term=10**30),
    "a term above the last": poisoned(term=32768),
    "term zero": poisoned(term=0),
    "a negative offset": poisoned(markerOffset=-1),
    "an offset beyond all": poisoned(markerOffset=2**63),
    "a negative position": poisoned(drained={"strays.tokyo": -1}),
    "a position beyond all": poisoned(drained={"strays.tokyo": 10**30}),
    "since beyond all": poisoned(drainedSince=2**63),
    "no JSON": b"\xff{",
    "too deep": b'{"x":' + b"[" * 100_000,
    "nothing": b"",
    "a return of no term": json.dumps({"entryType": "return", "log": ABOARD, "term": -5}).encode(),
}


async def by_bridge(values: list[bytes], _fake: FakeCluster, _cluster: Cluster) -> str | None:
    world = World()
    for value in values:
        world.take("tokyo", value, at_start=True)
    return world.holdings.view.holder(ABOARD)


async def by_replicator(values: list[bytes], fake: FakeCluster, cluster: Cluster) -> str | None:
    put(fake, values)
    ledger = Ledger(topology(), "tokyo", PlanChanges())
    ledger.follow_topics([LEDGER])
    work = asyncio.create_task(ledger.run(cluster))
    async with asyncio.timeout(10):
        await ledger.ready.wait()
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    return ledger.custody.holder(ABOARD)


def _clusters(cluster: Cluster) -> Any:
    return MagicMock(at=AsyncMock(return_value=cluster))


async def by_commands(values: list[bytes], fake: FakeCluster, cluster: Cluster) -> str | None:
    put(fake, values)
    access = KafkaLedgers(topology(), MagicMock(), _clusters(cluster), timeout=5)
    view = CustodyView()
    for entry in (await access.ledgers("tokyo")).entries:
        assert isinstance(entry, CustodyEntry)
        view.apply(entry)
    return view.holder(ABOARD)


async def by_orders(values: list[bytes], fake: FakeCluster, cluster: Cluster) -> str | None:
    put(fake, values)
    found, _ = await KafkaLedgers(topology(), MagicMock(), _clusters(cluster), timeout=5).ledger_since("tokyo", 0)
    return max((each.term, each.to_site) for each in found if isinstance(each, CustodyEntry))[1]


async def by_simulation(values: list[bytes], fake: FakeCluster, cluster: Cluster) -> str | None:
    put(fake, values)
    return (await Waiter(topology(), _clusters(cluster), timeout=5).custody("tokyo")).holder(ABOARD)


async def by_shore(values: list[bytes], _fake: FakeCluster, _cluster: Cluster) -> str | None:
    rows = rows_of(LEDGERS, raw(*((LEDGER, value) for value in values)))
    assert rows["problem"].null_count == len(GOOD)
    newest = max(rows_of_entries(rows, None).to_pylist(), key=lambda row: int(row["term"]))
    return str(newest["holder"])


READERS: dict[str, Callable[[list[bytes], FakeCluster, Cluster], Awaitable[str | None]]] = {
    "bridge": by_bridge,
    "replicator": by_replicator,
    "commands": by_commands,
    "orders": by_orders,
    "simulation": by_simulation,
    "shore": by_shore,
}


def put(fake: FakeCluster, values: list[bytes], topic: str = LEDGER) -> FakeLog:
    log = fake.log(topic)
    for value in values:
        record = NewRecord(value, timestamp_ms=5)
        assert log.append(term_batch([record], term=1, offset=log.end, marker=0))[0] == 0
    return log


@pytest.mark.parametrize("poison", ENTRIES)
@pytest.mark.parametrize("reader", READERS)
async def test_a_poisoned_entry_stops_no_reader(
    reader: str, poison: str, fake: FakeCluster, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(UNREADABLE):
        ledger_entries.decode(ENTRIES[poison])
    assert await READERS[reader]([GOOD[0], ENTRIES[poison], GOOD[1]], fake, cluster) == "star"


def test_two_seizures_of_one_term_are_kept_in_one_order() -> None:
    first = grant("tokyo", ABOARD, 17, None, event="SEIZURE")
    second = grant("head", ABOARD, 17, "head", event="SEIZURE")
    for given in ((first, second), (second, first)):
        view = CustodyView()
        for entry in given:
            try:
                view.apply(entry)
            except Exception as error:  # the split is said by who knows how
                assert "granted twice" in str(error)
        assert [each.to_site for each in view.seizures(ABOARD)] == [None, "head"]


STRAYS: dict[str, dict[str, Any]] = {
    "a received header that is text": {"headers": (("received", b"x"),)},
    "a received header of a thousand digits": {"headers": (("received", b"9" * 1000),)},
    "a received header that is negative": {"headers": (("received", b"-1"),)},
    "a received header of digits that are not ASCII": {"headers": (("received", "٣".encode()),)},
    "a received header of nothing": {"headers": (("received", None),)},
    "a time before 1970": {"timestamp_ms": -(2**62)},
    "a time after all": {"timestamp_ms": 2**63 - 1},
    "a sequence of thirty digits": {"payload": reading(10**30)},
    "a negative boot": {"payload": reading(0, boot=-(2**70))},
    "no reading": {"payload": b"\xff"},
    "a reading larger than its log takes": {"payload": reading(1)[:-1] + b',"x":"' + b"x" * (2 << 20) + b'"}'},
    "headers larger than its log takes": {"headers": (("x", b"x" * (2 << 20)),)},
    "the log of a feed": {"log": "feeds.ducks"},
    "bookings": {"log": "bookings.sydney"},
    "a ledger": {"log": "custody.tokyo"},
    "no box": {"log": "containers.NOTABOX"},
    "a box of nobody": {"log": "containers.REDU0000016"},
}


def stray(offset: int, **other: Any) -> Record:
    kept = Stray(
        log=other.get("log", BOX_LOG),
        payload=other.get("payload", reading(offset)),
        received_date_time=dt.datetime(2026, 3, 1, tzinfo=dt.UTC),
    )
    return Record(offset, other.get("timestamp_ms", 5), b"k", encode(kept), other.get("headers", ()))


@pytest.mark.parametrize("poison", STRAYS)
def test_a_poisoned_stray_stops_no_reader_and_waits_for_no_log_but_a_containers(poison: str) -> None:
    others = [stray(0), stray(1, **STRAYS[poison]), stray(2)]
    own = Strays("strays.tokyo", MagicMock(), MagicMock(), is_box_log=topology().is_box_log, fail=MagicMock())
    book = StrayBook(own, ("strays.star",), CustodyView())
    shown = StrayList((), topology().is_box_log)
    for record in others:
        own.recall_record(record, lambda _: 0, lambda *_: False)
        book.add_record("strays.star", record)
        shown.add("strays.star", record)
    theirs = dict(book.indexes())["strays.star"]
    for index in (own.index, theirs):
        assert {0, 2} <= set(index.offsets(BOX_LOG)) <= {0, 1, 2}
        assert set(index.logs()) == {BOX_LOG}
        assert 0 <= (index.oldest_ms(BOX_LOG) or 0)
    assert [each.log for each in shown.waiting()] == [BOX_LOG]
    for record in others:  # what is drained can be appended, and kept as a stray once more
        kept = records.read_stray(record)
        assert kept is not None
        new = records.drained(kept, record, "strays.star")
        for each in (new, records.stray(BOX_LOG, new)):
            batch = encode_batch([each], producer_id=1, epoch=1, sequence=0)
            assert record.offset not in theirs.offsets(BOX_LOG) or len(batch) < 1 << 20


# -- batches


def bomb(codec: Codec, size: int = 64 << 20) -> bytes:
    """A batch whose one record would be very large."""
    if codec is Codec.GZIP:
        packer = zlib.compressobj(9, zlib.DEFLATED, 31)
        packed = packer.compress(bytes(size)) + packer.flush()
    else:
        packed = compress(codec, bytes(size))
    return build_batch(
        packed, count=1, base_timestamp=0, max_timestamp=0, producer_id=-1, epoch=-1, sequence=-1, codec=codec
    )


CODECS = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_not_unpacked(codec: Codec) -> None:
    with pytest.raises(UnreadableRecords):
        decode_batch(bomb(codec))
    assert decode_marker(bomb(codec)) is None


@pytest.mark.parametrize("codec", CODECS)
def test_large_batches_of_honest_clients_are_unpacked(codec: Codec) -> None:
    for data in (bytes(10 << 20), b"".join(n.to_bytes(4, "big") for n in range(2 << 20))):
        assert decompress(codec, compress(codec, data)) == data


def test_a_batch_of_unknown_packing_is_passed_over() -> None:
    whole = encode_batch([NewRecord(b"v", timestamp_ms=0)], producer_id=-1, epoch=-1, sequence=-1, codec=Codec.NONE)
    strange = build_batch(
        whole[61:], count=1, base_timestamp=0, max_timestamp=0, producer_id=-1, epoch=-1, sequence=-1, codec=5  # type: ignore[arg-type]
    )  # fmt: skip
    with pytest.raises(UnreadableRecords):
        decode_batch(strange)


async def _bombed(fake: FakeCluster, topic: str) -> None:
    log = put(fake, [GOOD[0]], topic)
    assert log.append(bomb(Codec.ZSTD))[0] == 0
    last = encode_batch([NewRecord(GOOD[1], timestamp_ms=5)], producer_id=-1, epoch=-1, sequence=-1)
    log.producers.clear()
    assert log.append(last)[0] == 0


async def test_a_bomb_stops_no_reader(fake: FakeCluster, cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    await _bombed(fake, LEDGER)
    assert [each.offset async for each in read_log(cluster, TP(LEDGER))] == [0, 2]
    assert [(each.start, each.stop) for each in (await read_ledgers(cluster, "tokyo")).missing] == [(1, 2)]
    tails = TailReader(cluster)
    assert [each.offset for each in (await tails.read(LEDGER)).records] == [0, 2]
    await tails.close()
    ledger = Ledger(topology(), "tokyo", PlanChanges())
    ledger.follow_topics([LEDGER])
    work = asyncio.create_task(ledger.run(cluster))
    async with asyncio.timeout(10):
        await ledger.ready.wait()
    assert ledger.custody.holder(ABOARD) == "star"
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    assert caplog.text.count("passed over") >= 3


def test_a_bomb_does_not_stop_shore(caplog: pytest.LogCaptureFixture) -> None:
    def at(offset: int, batch: bytes) -> bytes:
        return offset.to_bytes(8, "big") + batch[8:]

    good = encode_batch([NewRecord(b"v", timestamp_ms=0)], producer_id=-1, epoch=-1, sequence=-1)
    data = at(0, good) + at(1, bomb(Codec.ZSTD)) + at(2, good)
    found = columnar.decode([columnar.stretch(data, 0, 3)])
    assert found.offset.tolist() == [0, 2]
    assert "passed over" in caplog.text


def test_a_number_that_no_column_holds_is_a_problem_of_its_row() -> None:
    alert = RECORDS[0][1]
    assert isinstance(alert, Alert)
    large = msgspec.structs.replace(alert, revision=2**40)
    rows = rows_of(BY_NAME["alerts"], raw(("alerts.tokyo", large), ("alerts.tokyo", alert)))
    assert rows["alert_id"].to_pylist() == [None, alert.alert_id]
    (problem, none) = rows["problem"].to_pylist()
    assert problem.startswith("revision") and none is None
    assert isinstance(rows, pa.Table)
