"""Shore moves from one real site to another, from the same tables and checkpoints: nothing is lost, nothing twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import shore
from fairlead.kafka.convention import is_data, is_filler, is_marker
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.record import Record
from shore.delta.lake import Lake
from shore.errors import ShoreMovedError
from shore.feeds.readers import FeedReader
from shore.jobs import move
from shore.jobs.runner import JOBS
from shore.paths import TablePaths
from shore.repair.backfill import BackfillSpan, apply_backfill, plan_backfill
from shore.sink import takeover
from shore.sink.takeover import to_restore
from shore.site import HeldLog, SiteRecord, read_site
from shore.tables import TABLES
from shore.verify.run import verify
from tests.integration.shore.conftest import BEFORE_FEEDS
from tests.integration.shore.moving import copy_log, two_sites
from tests.support.delta_rs import append_once, create
from tests.support.feeds import followed, origins
from tests.support.patience import patient
from tests.support.shore.world import World, alert, at, booking, number, reading

pytestmark = [pytest.mark.long, pytest.mark.integration, pytest.mark.spark]


class Move:
    """Shore of one topology with two sites, each with a Kafka of its own; the tests copy logs as replicators do."""

    def __init__(self, kafka: Callable[..., KafkaEndpoint], folder: Path, spark: SparkSession) -> None:
        self.old = World(kafka("alpha", "admin"))
        self.new = World(kafka("beta", "admin"), self.old.tag)
        self.folder, self.spark, self.paths = folder, spark, TablePaths.of(folder)
        self.topology = two_sites(self.old.topology(recipient=True))

    def run(self, site: World, *jobs: str, moving: bool = False) -> None:
        patient(
            lambda: shore.run(
                self.topology, site.endpoint, self.folder, jobs, once=True, session=self.spark, move=moving
            )
        )

    def copy(self, topic: str, until: int | None = None) -> None:
        copy_log(self.old, self.new, topic, until)

    def record(self) -> SiteRecord:
        found = read_site(self.paths)
        assert found is not None
        return found

    def held(self, job: str) -> dict[str, HeldLog]:
        """The held logs of this test; others stand in the same Kafka."""
        mine = (self.old.stream, self.old.bookings, self.old.alerts, self.old.custody, self.old.events)
        return {log: each for log, each in self.record().held.get(job, {}).items() if log.startswith(mine)}

    def count(self, table: str) -> int:
        return Lake(self.spark, self.paths).read(table).count()

    def offsets(self) -> dict[str, list[int]]:
        """The offsets in table ``readings``, by log."""
        found: dict[str, list[int]] = {}
        for row in Lake(self.spark, self.paths).read("readings").select("log", "log_offset").collect():
            found.setdefault(row["log"], []).append(row["log_offset"])
        return {log: sorted(offsets) for log, offsets in found.items()}

    def different(self, table: str) -> dict[str, object]:
        """The tables checked with this one that are not equal to the logs of the new site and to the feeds there."""
        found = verify(self.spark, self.topology, self.new.endpoint, self.folder, [table])
        return {check.table: (check.differences, check.notes) for check in found.tables if check.same is False}


@pytest.fixture
def moving(
    kafka: Callable[..., KafkaEndpoint], tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Move]:
    monkeypatch.setattr(move, "PATIENCE_SECONDS", 0.0)
    yield Move(kafka, tmp_path, spark)


def content(record: Record) -> tuple[object, ...]:
    return record.offset, record.timestamp_ms, record.key, record.value, record.headers


def test_tables_go_on_at_another_site(moving: Move) -> None:
    """A job reads on from its checkpoint. A log of which the new site lacks records waits for them and is then read on,
    without a gap or a repeat. The site that shore has left is refused."""
    old, new = moving.old, moving.new
    whole, short = (old.log(old.box(n)) for n in (0, 1))
    old.append({log: [reading(old.box(n), i, at(i)) for i in range(20)] for n, log in enumerate((whole, short))})
    moving.run(old, "readings")
    moving.copy(whole)
    moving.copy(short, 11)  # the new site lacks what came last
    new.append({whole: [reading(old.box(0), i, at(i)) for i in range(20, 30)]})
    with pytest.raises(ShoreMovedError, match="shore is at alpha, and not at beta"):
        moving.run(new, "readings")
    moving.run(new, "readings", moving=True)
    assert (moving.record().site, moving.record().generation) == ("beta", 2)
    assert moving.held("readings") == {short: HeldLog(11, 21)}
    assert moving.offsets() == {whole: list(range(1, 31)), short: list(range(1, 21))}
    assert not moving.different("readings")

    moving.copy(short)
    new.append({short: [reading(old.box(1), i, at(i)) for i in range(20, 30)]})
    moving.run(new, "readings")
    assert moving.held("readings") == {}
    assert moving.offsets() == {log: list(range(1, 31)) for log in (whole, short)}
    with pytest.raises(ShoreMovedError, match=r"shore is at beta since .* UTC, and not at alpha"):
        moving.run(old, "readings")


def test_feeds_go_on_at_another_site(moving: Move, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the new site's copy of a feed lacks is there again, record by record, at the same offsets; then comes the
    marker of the next term, and what is new. An hour's conditions that are others by now have a filler in their place,
    and come anew, also where shore was killed between the two."""
    old, new = moving.old, moving.new
    customers = (old.customer, old.recipient)
    box = old.log(old.box(0))
    taken = booking(f"B-{old.tag}", old.customer, old.box(0), at(0), None, consignee=old.recipient)
    old.append({box: [reading(old.box(0), i, at(i)) for i in (*range(20), 65)], old.bookings: [taken]})
    old.append({old.alerts: [alert(old.box(0), old.tag, at(15))]})
    moving.run(old, *BEFORE_FEEDS)
    moving.run(old, "feeds")
    before = {name: moving.old.read(f"feeds.{name}") for name in customers}
    assert [sum(map(is_data, before[name])) for name in customers] == [22, 2]
    for log in (box, old.bookings, old.alerts):
        moving.copy(log)
    moving.copy(f"feeds.{old.customer}", 12)  # and nothing of the other feed
    new.append({box: [reading(old.box(0), i, at(i), supply=5.0) for i in range(20, 40)]})  # of the first hour
    moving.run(new, "readings", moving=True)
    with monkeypatch.context() as patch:
        patch.setattr(takeover, "reread", Mock(side_effect=ConnectionError("killed")))
        with pytest.raises(ConnectionError, match="killed"):
            moving.run(new, "feeds")
    assert (moving.record().site, moving.record().feeds_at) == ("beta", "alpha")
    moving.run(new, "feeds")

    assert (moving.record().site, moving.record().feeds_at) == ("beta", "beta")
    there = {name: new.read(f"feeds.{name}") for name in customers}
    same = [content(r) for r in there[old.customer] if is_data(r)][:22]
    assert same == [content(r) for r in before[old.customer] if is_data(r)]
    assert is_marker(there[old.customer][len(before[old.customer])])
    (hour,) = [r for r in before[old.recipient] if is_data(r) and b"conditions" in (r.value or b"")]
    assert is_filler(there[old.recipient][hour.offset])
    (anew,) = [r for r in there[old.recipient] if is_data(r) and b"conditions" in (r.value or b"")]
    assert origins([anew]) == origins([hour]) and anew.value != hour.value
    valid = origins(followed([r for r in there[old.customer] if is_data(r)]))
    assert sorted(offset for log, offset in valid if log == box) == list(range(1, 42))
    assert moving.count("feeds") == sum(is_data(r) for name in customers for r in there[name])
    assert not moving.different("feeds")


def test_a_log_with_another_history_at_the_new_site_is_named_and_not_read_on(moving: Move) -> None:
    """A log whose last records only the lost site had gets other ones at the new site: shore neither skips nor reads it
    again, until a backfill has put the tables right."""
    old, new = moving.old, moving.new
    box = old.log(old.box(0))
    old.append({box: [reading(old.box(0), i, at(i)) for i in range(20)]})
    moving.run(old, "readings")
    moving.copy(box, 11)
    other = [reading(old.box(0), i, at(i), supply=9.0) for i in range(10, 40)]
    moving.run(new, "readings", moving=True)
    assert moving.held("readings") == {box: HeldLog(11, 21)}
    new.append({box: other})
    moving.run(new, "readings")
    assert moving.held("readings") == {box: HeldLog(11, 21, 11)}
    assert moving.record().parted() == [
        f"{box} has other records at beta from offset 11 on than shore has read",
    ]
    assert moving.count("readings") == 20
    assert "readings + readings_rejected" in moving.different("readings")

    lake = Lake(moving.spark, moving.paths)
    todo = plan_backfill(
        lake, moving.topology, new.endpoint, BackfillSpan(None, None), ("readings",), tell=lambda what: None
    )
    apply_backfill(todo, lake, moving.topology, tell=lambda what: None)
    moving.run(new, "readings")
    assert moving.held("readings") == {}
    assert moving.offsets() == {box: list(range(1, 41))}
    assert not moving.different("readings")
    warm = Lake(moving.spark, moving.paths).read("readings").where("supply_temperature = 9").count()
    assert warm == len(other)


def test_retractions_and_what_was_retracted_are_restored_in_their_order(spark: SparkSession, tmp_path: Path) -> None:
    paths = TablePaths.of(tmp_path)
    names = ("readings", "alerts", "custody_entries", "feeds")
    for name in names:
        create(TABLES[name], paths.table(name))
    box, log = number(1), f"containers.{number(1)}"
    read = {"log": log, "equipment_reference": box, "late": False, "received_date_time": at(1)}
    rows = [{**read, "log_offset": n, "device_date_time": at(n), "payload": b"%d" % n} for n in (1, 2)]
    given = [(1, log, 1, False), (2, log, 2, False), (3, log, 1, True), (4, log, 1, False), (5, log, 2, True)]
    given.append((6, "containers.GONE", 9, False))
    feeds = [
        {"customer": "ducks", "feed_offset": offset, "log": of, "log_offset": n, "equipment_reference": box,
         "device_date_time": at(n), "retracts": retracts}
        for offset, of, n, retracts in given
    ]  # fmt: skip
    for name, content in (("readings", rows), ("feeds", feeds)):
        append_once(
            paths.table(name), pa.Table.from_pylist(content, schema=TABLES[name].plain_schema), app="test", version=0
        )
    found = to_restore(Lake(spark, paths), [FeedReader("ducks")], {"ducks": 3}).orderBy("feed_offset").collect()
    assert [(row["feed_offset"], row["retracts"], row["payload"]) for row in found] == [
        (3, 1, None),
        (4, None, b"1"),
        (5, 2, None),
        (6, None, None),
    ]
    assert [row["received_date_time"] is not None for row in found] == [True, True, True, False]


def test_every_job_that_reads_logs_has_tables_that_its_logs_are_compared_with(moving: Move) -> None:
    for job in (each for each in JOBS.values() if each.reads_logs):
        log = moving.old.log(moving.old.box(0)) if job.name != "operations" else moving.old.bookings
        assert all(move.tables_of(moving.topology, log)), job.name
