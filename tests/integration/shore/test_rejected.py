"""Job ``readings``: each data record is a row in exactly one of its two tables, wherever a batch before was cut off."""

from __future__ import annotations

import pytest
from pyspark.sql import Column, DataFrame

from fairlead.wire.record import NewRecord
from shore.errors import JobFailedError
from shore.jobs import readings
from shore.tables.model import Table
from shore.tables.readings import READINGS_REJECTED
from tests.integration.shore.conftest import Shore
from tests.integration.shore.test_jobs import records, rows, undo_commit
from tests.integration.shore.test_source import readings_of
from tests.integration.shore.world import World

pytestmark = [pytest.mark.integration, pytest.mark.spark]


def test_every_record_is_a_row_of_exactly_one_table_whatever_was_written_before_a_crash(
    shore_of: Shore, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = world.log(world.box(0))
    world.append(readings_of(world, boxes=3, count=12))
    world.append({log: [NewRecord(b"{broken", b"key", (("trace", b"\xff"),), timestamp_ms=1)]})

    # The batch is not written to the second table, as if the process had been killed after the first.
    append = readings._append  # noqa: SLF001  # the crash point

    def crash(rows: DataFrame, which: Column, table: Table, *more: object) -> None:
        if table is READINGS_REJECTED:
            raise RuntimeError("killed")
        append(rows, which, table, *more)  # type: ignore[arg-type]  # as given

    monkeypatch.setattr(readings, "_append", crash)
    with pytest.raises(JobFailedError, match="killed"):
        shore_of.run("readings")
    monkeypatch.undo()
    assert (len(rows(shore_of)), shore_of.count("readings_rejected")) == (3 * 12, 0)

    # And then after both: Spark does not know that the batch is done.
    for _ in range(2):
        shore_of.run("readings")
        (bad,) = shore_of.sql("select * from readings_rejected")
        assert (bad["log"], bad["log_offset"], bad["payload"], bad["record_key"]) == (log, 13, b"{broken", b"key")
        assert bad["headers"] == [{"key": "trace", "value": b"\xff"}]
        assert bad["reason"]
        found = rows(shore_of)
        assert len(found) == len(set(found)) == 3 * 12
        assert {*found, (log, 13)} == records(world, 3)
        undo_commit(shore_of.folder, "readings")
