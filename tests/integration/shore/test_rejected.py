"""Job ``readings`` stores each data record in exactly one of its two tables, wherever it was interrupted before."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fairlead.kafka.protocol.record import NewRecord
from shore.errors import JobFailedError
from shore.jobs.checkpoint import read_checkpoint, write_checkpoint
from shore.paths import TablePaths
from shore.tables.readings import READINGS, READINGS_REJECTED
from tests.integration.shore.conftest import Shore
from tests.integration.shore.readings import readings_of, records, rows, undo_commit
from tests.support.crashes import Plan, planted
from tests.support.delta_rs import append_once, create
from tests.support.shore.world import World

pytestmark = [pytest.mark.integration, pytest.mark.spark]


@pytest.mark.long
def test_every_record_is_a_row_of_exactly_one_table_whatever_was_written_before_a_crash(
    shore_of: Shore, world: World
) -> None:
    log = world.log(world.box(0))
    world.append(readings_of(world, boxes=3, count=12))
    world.append({log: [NewRecord(b"{broken", b"key", (("trace", b"\xff"),), timestamp_ms=1)]})

    # The driver dies after the append to the first of the two tables. The two writes before it are of the topology.
    with planted(Plan(2, "after")) as plan, pytest.raises(JobFailedError):
        shore_of.run("readings")
    assert plan.crashed
    assert (len(rows(shore_of)), shore_of.count("readings_rejected")) == (3 * 12, 0)

    # Complete the batch, then repeat it as if Spark did not know that it is done.
    for _ in range(2):
        done = shore_of.run("readings")["readings"]
        (bad,) = shore_of.sql("select * from readings_rejected")
        assert (bad["log"], bad["log_offset"], bad["payload"], bad["record_key"]) == (log, 13, b"{broken", b"key")
        assert bad["headers"] == [{"key": "trace", "value": b"\xff"}]
        assert bad["reason"]
        found = rows(shore_of)
        assert len(found) == len(set(found)) == 3 * 12
        assert {*found, (log, 13)} == records(world, 3)
        undo_commit(shore_of.folder, "readings")
    shore_of.run("quality")
    (told,) = shore_of.sql("select equipment_reference, rejected from quality where rejected > 0")
    assert (told["equipment_reference"], told["rejected"]) == (world.box(0), 1)
    assert done.batches <= 1  # the second time there was nothing to write


@pytest.mark.long
def test_times_beyond_the_calendar_do_not_stop_a_job(shore_of: Shore, world: World) -> None:
    """The first record's time is in microseconds. The second is a reading whose day has no next one in the calendar."""
    log = world.log(world.box(0))
    usual = readings_of(world, boxes=1, count=5)[log]
    broken = NewRecord(b"{broken", timestamp_ms=1_772_366_400_000_000)
    last = NewRecord((usual[0].value or b"").replace(b"2026-03-01T", b"9999-12-31T"), timestamp_ms=1)
    for news in (usual, [broken, last]):
        world.append({log: news})
        done = shore_of.run("readings", "quality")["readings"]
    assert (done.rows, done.batches) == (2, 1), "a batch is read twice when a record is rejected, and counts once"
    found = shore_of.sql("select year(day) as year, readings, rejected from quality order by day")
    told = [(row["year"], row["readings"], row["rejected"]) for row in found]
    assert told == [(1970, 0, 1), (2026, 5, 0), (9998, 0, 1)]
    assert shore_of.count("readings_rejected where reason like '%in the year 9999%'") == 1


@pytest.mark.long
def test_a_checkpoint_of_an_older_version_goes_on(shore_of: Shore, world: World) -> None:
    """In that version tasks wrote the files and delta-rs committed them; the driver died before Spark's own commit."""
    paths = TablePaths.of(shore_of.folder)
    world.append(readings_of(world, boxes=2, count=10))
    logs = [world.log(world.box(index)) for index in range(2)]
    write_checkpoint(paths, "readings", dict.fromkeys(logs, 7), "{}")
    before = read_checkpoint(paths, "readings")
    assert before is not None
    for table in (READINGS, READINGS_REJECTED):
        create(table, paths.table(table.name))
    stored = [{"log": log, "log_offset": offset, "device_id": "old"} for log in logs for offset in range(1, 7)]
    content = pa.Table.from_pylist(stored, schema=READINGS.plain_schema)
    append_once(paths.table(READINGS.name), content, app=before.query_id, version=0)
    undo_commit(shore_of.folder, "readings")

    shore_of.run("readings")
    found = rows(shore_of)
    assert len(found) == len(set(found)) == 2 * 10
    assert set(found) == records(world, 2)
    assert shore_of.count("readings where device_id = 'old'") == 2 * 6
    after = read_checkpoint(paths, "readings")
    assert after is not None
    assert (after.query_id, after.done, after.positions) == (before.query_id, 1, dict.fromkeys(logs, 11))
