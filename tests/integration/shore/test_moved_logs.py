"""What a move of shore does to logs, on two real brokers and without Spark: which logs are held and let go, and how a
feed is completed and fenced."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from fairlead.kafka.client.appender import Appender
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import is_filler, is_marker
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.errors import Fenced
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import TP
from fairlead.records import decoder, encode
from fairlead.records.custody import CustodyEntry, Marker
from shore.errors import FeedMovedError, ShoreMovedError
from shore.feeds.records import new_record
from shore.jobs import move
from shore.jobs.checkpoint import write_checkpoint
from shore.jobs.move import settle_held, settle_site
from shore.jobs.runner import JOBS
from shore.paths import TablePaths
from shore.sink.feed_logs import create_feeds, run_at
from shore.sink.takeover import _complete, _open_terms, _states
from shore.site import HeldLog, read_site
from shore.tables import TABLES
from tests.integration.shore.moving import copy_log, two_sites
from tests.support.delta_rs import append_once, create
from tests.support.shore.world import MINUTE, T0, World, grant, reading
from topologies.model import Site, SiteKind

pytestmark = [pytest.mark.integration]


class Moved:
    """Readings that shore has read at the old site, as its tables and checkpoints say."""

    def __init__(self, kafka: Callable[..., KafkaEndpoint], folder: Path) -> None:
        self.old = World(kafka("alpha", "admin"))
        self.new = World(kafka("beta", "admin"), self.old.tag)
        self.topology = two_sites(self.old.topology())
        self.paths = TablePaths.of(folder)
        self._number = 0
        for name in ("readings", "readings_rejected"):
            create(TABLES[name], self.paths.table(name))

    def read_all(self, **counts: int) -> None:
        """Write so many readings of boxes to the old site, and let job ``readings`` have read them."""
        self.old.append({log: [self.reading(log, i) for i in range(count)] for log, count in counts.items()})
        for log, count in counts.items():
            self.note(log, range(count))
        write_checkpoint(self.paths, "readings", {log: count + 1 for log, count in counts.items()}, "{}")

    def note(self, log: str, sequences: range, supply: float = 4.0) -> None:
        rows = [
            {"log": log, "log_offset": i + 1, "equipment_reference": log, "payload": self.reading(log, i, supply).value}
            for i in sequences
        ]
        content = pa.Table.from_pylist(rows, schema=TABLES["readings"].plain_schema)
        self._number += 1
        append_once(self.paths.table("readings"), content, app="test", version=self._number)

    def reading(self, log: str, sequence: int, supply: float = 4.0) -> NewRecord:
        return reading(log.partition(".")[2], sequence, T0 + sequence * MINUTE, supply)

    def move(self, site: World, *, moving: bool = True) -> None:
        settle_site(self.topology, site.endpoint, self.paths, {"readings": JOBS["readings"]}, move=moving)

    def settle(self) -> None:
        settle_held(self.topology, self.new.endpoint, self.paths, "readings")

    @property
    def held(self) -> dict[str, HeldLog]:
        found = read_site(self.paths)
        assert found is not None
        return found.held.get("readings", {})


@pytest.fixture
def moved(kafka: Callable[..., KafkaEndpoint], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Moved]:
    monkeypatch.setattr(move, "PATIENCE_SECONDS", 0.0)
    yield Moved(kafka, tmp_path)


def test_logs_that_the_new_site_lacks_wait_and_are_compared_when_they_have_come(moved: Moved) -> None:
    """A log that has the same records is let go, and one that has others is named: it stays until the tables have these
    records. The old site is refused."""
    whole, short, other, gone = (moved.old.log(moved.old.box(n)) for n in range(4))
    moved.move(moved.old, moving=False)
    moved.read_all(**{whole: 5, short: 20, other: 20, gone: 3})
    copy_log(moved.old, moved.new, whole)
    copy_log(moved.old, moved.new, short, 11)
    copy_log(moved.old, moved.new, other, 11)
    with pytest.raises(ShoreMovedError, match="shore is at alpha, and not at beta"):
        moved.move(moved.new, moving=False)
    moved.move(moved.new)
    lacking = {short: HeldLog(11, 21), other: HeldLog(11, 21), gone: HeldLog(0, 4)}
    assert moved.held == lacking
    moved.settle()
    assert moved.held == lacking, "they have not come yet"

    moved.new.append({short: [moved.reading(short, i) for i in range(10, 25)]})
    moved.new.append({other: [moved.reading(other, i, supply=9.0) for i in range(10, 25)]})
    moved.settle()
    assert moved.held == {other: HeldLog(11, 21, 11), gone: HeldLog(0, 4)}
    found = read_site(moved.paths)
    assert found is not None
    assert found.parted() == [f"{other} has other records at beta from offset 11 on than shore has read"]
    for site in (moved.old, moved.old):  # again and again
        with pytest.raises(ShoreMovedError, match=r"shore is at beta since .* UTC, and not at alpha"):
            moved.move(site, moving=False)
    DeltaTable(moved.paths.table("readings")).delete(f"log = '{other}' and log_offset >= 11")
    moved.note(other, range(10, 20), supply=9.0)  # as a backfill exchanges rows
    moved.settle()
    assert moved.held == {gone: HeldLog(0, 4)}


def test_a_log_that_was_seized_below_what_shore_has_read_is_held(moved: Moved) -> None:
    log, port = moved.old.log(moved.old.box(0)), f"port-{moved.old.tag}"
    third = Site(kind=SiteKind.PORT, unlocode="AUSYD")
    moved.topology = moved.topology.model_copy(update={"sites": {**moved.topology.sites, port: third}})
    moved.read_all(**{log: 20})
    copy_log(moved.old, moved.new, log)
    opened = decoder(CustodyEntry).decode(grant(log, 2, port, T0).value or b"")
    seized = msgspec.structs.replace(opened, marker_offset=9, event="SEIZURE", from_site="alpha")
    entry = NewRecord(encode(seized), log.encode(), timestamp_ms=int(T0.timestamp() * 1000))
    moved.new.append({f"custody.{port}": [entry]})
    moved.move(moved.new)
    assert moved.held == {log: HeldLog(9, 21)}
    moved.settle()
    assert moved.held == {}, "it has the records that shore has read"


def test_a_feed_is_completed_at_its_offsets_and_the_old_term_is_fenced(kafka: Callable[..., KafkaEndpoint]) -> None:
    """The records that the new site lacks are appended again as they were, fillers where they cannot be; a repeated
    call adds nothing; then a marker of the new site opens the next term, and appends in the old one are refused."""
    old = World(kafka("alpha", "admin"))
    new = World(kafka("beta", "admin"), old.tag)
    topic, box = f"feeds.{old.customer}", old.box(0)
    rows = [
        {"customer": old.customer, "feed_offset": n, "log": old.log(box), "log_offset": n, "equipment_reference": box,
         "device_date_time": T0 + n * MINUTE, "received_date_time": T0, "late": n % 2 == 0, "payload": b"%d" % n,
         "retracts": None, "revision": None}
        for n in range(1, 11)
    ]  # fmt: skip
    create_feeds(old.endpoint, [old.customer])
    old.append({topic: [new_record(row) for row in rows]})
    copy_log(old, new, topic, 5)
    lost = [row | {"payload": None} if row["feed_offset"] == 8 else row for row in rows if row["feed_offset"] != 7]

    states = run_at(new.endpoint, _states(new.endpoint, [old.customer]))
    assert states[old.customer][:] == (5, 1, "alpha")
    for _ in range(2):
        run_at(new.endpoint, _complete(new.endpoint, lost))
    stored = new.read(topic)
    assert [record.offset for record in stored] == list(range(11))
    assert [record.offset for record in stored if is_filler(record)] == [7, 8]
    before = {record.offset: record for record in old.read(topic)}
    assert all(record == before[record.offset] for record in stored if not is_filler(record))

    with pytest.raises(FeedMovedError):
        run_at(new.endpoint, _open_terms(new.endpoint, [old.customer], {old.customer: 12}))
    run_at(new.endpoint, _open_terms(new.endpoint, [old.customer], {old.customer: 11}))
    *_, last = new.read(topic)
    assert is_marker(last)
    marker = decoder(Marker).decode(last.value or b"")
    assert (marker.term, marker.from_site, marker.to_site) == (2, "alpha", "beta")
    assert run_at(new.endpoint, _states(new.endpoint, [old.customer]))[old.customer][:] == (12, 2, "beta")

    async def write_in_the_old_term() -> None:
        async with await Cluster.open(new.endpoint, client_id="test") as cluster:
            appender = Appender(cluster)
            try:
                await appender.append(TP(topic), [new_record(rows[0])], term=1)
            finally:
                await appender.close()

    with pytest.raises(Fenced):
        asyncio.run(write_in_the_old_term())
