"""Which records a bridge keeps of a copy that a seizure has cut off, and when it reports again."""

from __future__ import annotations

import datetime as dt
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock, MagicMock

import pytest

from edge.custody.protocol import CustodyProtocol
from edge.custody.recovery import DivergenceSalvage
from edge.custody.term_writer import TermWriter
from edge.holdings import Holdings
from edge.logwriter.tail_reader import TailReader
from edge.logwriter.writer import LogEntry
from edge.messages import MessageId
from edge.site_kafka import SiteKafka
from edge.writer_registry import WriterRegistry, ledger_key
from fairlead.custody.view import CustodyView
from fairlead.kafka.client.appender import Appender
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import marker_record, term_batch
from fairlead.kafka.protocol.batch import MAGIC_AT
from fairlead.kafka.protocol.record import NewRecord
from fairlead.records.custody import CustodyEntry, ReturnEntry, ledger_entries
from tests.support.edge.samples import BOX_LOG, NOW, reading
from tests.support.kafka.fake_broker import FakeCluster
from tests.support.kafka.fake_log import FakeLog, damage


class Ship:
    """The bridge of a ship whose log is seized. ``kept``: numbers of the kept readings; ``reports``: what it writes to
    its ledger.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.view = CustodyView()
        self.kept: list[int] = []
        self.headers: list[object] = []
        self.reports: list[ReturnEntry] = []
        writers = MagicMock()
        writers.box = lambda topic: SimpleNamespace(log=topic, run_alone=_at_once)
        writers.strays.log, writers.strays.index.end = "strays.star", 9
        writers.strays.keep_reading = self._keep
        writers.strays.writer.flush = AsyncMock()
        writers.ledger.append = self._report
        self.protocol = CustodyProtocol(
            Holdings("star", self.view), writers.book, sites=(), now=lambda: NOW, nonce=lambda: "n"
        )
        appender = cast(Appender, MagicMock())
        term_writer = TermWriter(
            self.protocol,
            SiteKafka(cluster, appender, appender, TailReader(cluster), AsyncMock()),
            cast(WriterRegistry, writers),
            AsyncMock(),
        )
        self.salvage = DivergenceSalvage(cluster, term_writer, cast(WriterRegistry, writers))

    def _keep(self, _topic: str, entry: LogEntry[MessageId]) -> None:
        self.kept.append(entry.key.sequence)
        self.headers.append(entry.record.headers)

    async def _report(self, record: NewRecord, _key: object) -> None:
        entry = ledger_entries.decode(record.value or b"")
        assert isinstance(entry, ReturnEntry)
        self.reports.append(entry)

    def seized(self, term: int, marker: int, log: str = BOX_LOG) -> None:
        self.view.apply(
            CustodyEntry(
                log=log,
                term=term,
                marker_offset=marker,
                from_site="star",
                to_site="tokyo",
                event="SEIZURE",
                event_id=f"seizure-{term}",
                event_date_time=NOW + term * dt.timedelta(hours=1),
                granted_date_time=NOW,
                granted_by="tokyo",
                marker_batch=b"",
            )
        )


async def _at_once(work: Any) -> None:
    await work()


@pytest.fixture
def ship(cluster: Cluster) -> Ship:
    return Ship(cluster)


def copy(log: FakeLog, readings: int) -> None:
    """Return a copy: a marker, then readings 1 and following at the offsets of their numbers."""
    marker = marker_record(b"m", timestamp_ms=1)
    assert log.append(term_batch([marker], term=1, offset=0, marker=0))[0] == 0
    for n in range(1, readings + 1):
        record = NewRecord(reading(n), timestamp_ms=1)
        assert log.append(term_batch([record], term=1, offset=n, marker=0))[0] == 0


async def test_what_is_beyond_a_seizure_is_kept_and_reported_once(fake: FakeCluster, ship: Ship) -> None:
    """Records beyond a seizure are kept and reported once."""
    copy(fake.log(BOX_LOG), 5)
    assert await ship.salvage.salvage_copies() == 0
    ship.seized(17, 3)
    assert await ship.salvage.salvage_copies() == 1
    assert await ship.salvage.salvage_copies() == 0
    [report] = ship.reports
    assert (ship.kept, report.kept) == ([3, 4, 5], 3)
    assert (report.term, report.marker_offset, report.end_offset) == (17, 3, 6)


async def test_an_earlier_seizure_that_is_heard_of_later_is_reported_too(fake: FakeCluster, ship: Ship) -> None:
    """An earlier seizure that becomes known later is reported, too.

    The newest seizure and the end of the copy are the same as before, but there are more records to keep.
    """
    copy(fake.log(BOX_LOG), 4)
    ship.seized(33, 3)
    assert await ship.salvage.salvage_copies() == 1
    ship.seized(17, 2)
    assert await ship.salvage.salvage_copies() == 1
    assert [(each.term, each.marker_offset, each.end_offset) for each in ship.reports] == [(33, 3, 5), (33, 2, 5)]
    assert len({ledger_key(each) for each in ship.reports}) == 2  # neither report is mistaken for the other
    assert set(ship.kept) == {2, 3, 4}


async def test_a_restarted_bridge_knows_what_it_has_reported(fake: FakeCluster, ship: Ship) -> None:
    """A restarted bridge knows which seizures it has reported."""
    copy(fake.log(BOX_LOG), 4)
    ship.seized(33, 3)
    await ship.salvage.salvage_copies()
    again = Ship(ship.salvage._cluster)  # noqa: SLF001
    again.seized(33, 3)
    again.protocol.learn(ship.reports[0])
    assert await again.salvage.salvage_copies() == 0
    again.seized(17, 2)
    assert await again.salvage.salvage_copies() == 1


async def test_a_record_that_a_sleeping_bridge_left_in_an_emptied_copy_is_kept(fake: FakeCluster, ship: Ship) -> None:
    """A record that a suspended bridge appended to an emptied copy is kept."""
    record = NewRecord(reading(7), timestamp_ms=1)
    assert fake.log(BOX_LOG).append(term_batch([record], term=1, offset=7, marker=0))[0] == 0
    ship.seized(17, 3)
    assert await ship.salvage.salvage_copies() == 1
    assert (ship.kept, ship.reports[0].marker_offset, ship.reports[0].end_offset) == ([7], 0, 1)


async def test_what_no_bridge_wrote_is_not_kept(fake: FakeCluster, ship: Ship) -> None:
    """A reading that is too large for a strays log would stop the bridge, now and after each restart."""
    log = fake.log(BOX_LOG)
    copy(log, 2)
    record = NewRecord(reading(3, more="x" * 900_000), timestamp_ms=1)
    assert log.append(term_batch([record], term=1, offset=3, marker=0))[0] == 0
    ship.seized(17, 2)
    assert await ship.salvage.salvage_copies() == 1
    assert (ship.kept, ship.reports[0].kept) == ([2], 1)


async def test_a_damaged_copy_is_left_as_it_is_and_stops_nobody(
    fake: FakeCluster, ship: Ship, caplog: pytest.LogCaptureFixture
) -> None:
    """No report lets the replicator delete a copy of which not every reading is kept."""
    copy(fake.log(BOX_LOG), 5)
    damage(fake.logs[BOX_LOG], 4)
    ship.seized(17, 3)
    for _ in range(2):
        assert await ship.salvage.salvage_copies() == 0
    assert (ship.kept, ship.reports) == ([3], [])
    assert caplog.text.count("the CRC of the batch at offset 4") == 1
    damage(fake.logs[BOX_LOG], 4)
    again = Ship(ship.salvage._cluster)  # noqa: SLF001
    again.seized(17, 3)
    assert await again.salvage.salvage_copies() == 1
    assert again.kept == [3, 4, 5]


async def test_a_copy_whose_header_is_damaged_keeps_no_other_from_being_saved(
    fake: FakeCluster, ship: Ship, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody knows where its stale part begins; that is told once."""
    other = "containers.BIGU1000010"
    for log in (BOX_LOG, other):
        copy(fake.log(log), 5)
        ship.seized(17, 3, log)
    damage(fake.logs[BOX_LOG], 3, at=MAGIC_AT)
    assert await ship.salvage.salvage_copies() == 1
    assert await ship.salvage.salvage_copies() == 0
    assert [each.log for each in ship.reports] == [other]
    assert caplog.text.count(f"{BOX_LOG}: a record batch has format") == 1
    damage(fake.logs[BOX_LOG], 3, at=MAGIC_AT)
    assert await ship.salvage.salvage_copies() == 1


async def test_what_its_place_in_the_copy_said_of_a_reading_is_not_kept(fake: FakeCluster, ship: Ship) -> None:
    """Headers that depend on a reading's place in the copy are not kept with it."""
    log = fake.log(BOX_LOG)
    copy(log, 2)
    drained = (("received", b"5"), ("late", b"1"), ("origin", b"strays.tokyo@7"))
    record = NewRecord(reading(3), headers=drained, timestamp_ms=1)
    assert log.append(term_batch([record], term=1, offset=3, marker=0))[0] == 0
    ship.seized(17, 3)
    assert await ship.salvage.salvage_copies() == 1
    assert ship.headers == [(("received", b"5"),)]
