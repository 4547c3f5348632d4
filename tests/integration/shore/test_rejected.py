"""Job ``readings``: each data record is a row in exactly one of its two tables, wherever a batch before was cut off."""

from __future__ import annotations

import datetime as dt

import pytest

from fairlead.kafka.protocol.record import NewRecord
from shore.errors import JobFailedError
from shore.maintenance import plan_vacuum
from shore.paths import TablePaths
from tests.integration.shore.conftest import Shore
from tests.integration.shore.readings import readings_of, records, rows, undo_commit
from tests.integration.shore.world import World
from tests.support.crashes import Plan, planted

pytestmark = [pytest.mark.integration, pytest.mark.spark]


def test_every_record_is_a_row_of_exactly_one_table_whatever_was_written_before_a_crash(
    shore_of: Shore, world: World
) -> None:
    log = world.log(world.box(0))
    world.append(readings_of(world, boxes=3, count=12))
    world.append({log: [NewRecord(b"{broken", b"key", (("trace", b"\xff"),), timestamp_ms=1)]})

    # The files of both tables are written, and the commit is made to the first of them only.
    with planted(Plan(0, "after")) as plan, pytest.raises(JobFailedError):
        shore_of.run("readings")
    assert plan.crashed
    assert (len(rows(shore_of)), shore_of.count("readings_rejected")) == (0, 1)

    # And then to both: Spark does not know that the batch is done.
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
    steps = plan_vacuum(
        TablePaths.of(shore_of.folder),
        ["readings", "readings_rejected"],
        keep=dt.timedelta(0),
        force=True,
        now=dt.datetime.now(dt.UTC),
    )
    assert any(step.files for step in steps), "the first try had written files"
