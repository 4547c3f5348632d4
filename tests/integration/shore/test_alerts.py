"""Alert detection ashore in Spark, against a broker: state, timers, the recomputed table, and very late rows."""

from __future__ import annotations

import datetime as dt
import signal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from fairlead.kafka.protocol.record import NewRecord
from shore.delta.lake import Lake
from shore.paths import TablePaths
from shore.tables.alerts_ashore import ALERTS_ASHORE, alerts_ashore, compared
from tests.integration.shore.conftest import Shore
from tests.integration.shore.dyingstore import settings_to_die
from tests.integration.shore.victim import start
from tests.integration.shore.world import MINUTE, T0, reading
from tests.support.crashes import Side
from tests.support.tables import fill

pytestmark = [pytest.mark.long, pytest.mark.integration, pytest.mark.spark]


@pytest.mark.chaos
def test_alerts_follow_from_the_logs_in_any_number_of_runs(shore_of: Shore) -> None:
    """Each of three runs resumes from the state of the one before. In the second, one box is silent. In the third it
    returns, and a ship delivers what it had kept for hours, which Spark's own rule would drop as late."""
    world = shore_of.world
    warm, silent, steady, late = (world.box(index) for index in range(4))
    paths = TablePaths.of(shore_of.folder)
    none: list[NewRecord] = []

    def run(**logs: list[NewRecord]) -> pa.Table:
        """Append records, run the jobs and return ``alerts_ashore``."""
        named = {"warm": warm, "silent": silent, "steady": steady, "late": late}
        world.append({world.log(named[name]): found for name, found in logs.items()})
        shore_of.run("readings", "alerts", "alerts_now")
        table = shore_of.table("alerts_ashore").sort_by([("alert_id", "ascending"), ("revision", "ascending")])
        assert compared(table).equals(following(shore_of, paths))
        return table

    def steps(box: str, first: int, last: int, supply: float = 4.0) -> list[NewRecord]:
        return [reading(box, n, T0 + 10 * n * MINUTE, supply) for n in range(first, last)]

    begun = run(warm=steps(warm, 0, 5, 9.0), silent=steps(silent, 0, 5), steady=steps(steady, 0, 5), late=none)
    assert begun.num_rows == 0
    assert DeltaTable(paths.table("alerts_ashore")).version() == 0, "a batch without alerts appends nothing"
    fill(
        shore_of.folder,
        {"containers_now": [{"equipment_reference": steady, "reading_date_time": T0 + 390 * MINUTE}]},
    )
    second = run(warm=steps(warm, 5, 40, 9.0), steady=steps(steady, 5, 40))
    assert shown(second, warm) == [("TEMPERATURE", "OPENED", "fault", T0 + 60 * MINUTE)]
    due = ("SILENCE", "OPENED", "fault", T0 + 100 * MINUTE)
    assert shown(second, silent) == [due], "told by a timer"
    assert compared(second).num_rows == 1, "no reading has shown it yet"
    back = [reading(silent, 5, T0 + 400 * MINUTE)]
    third = run(warm=steps(warm, 40, 43), steady=steps(steady, 40, 42), late=steps(late, 0, 9, 8.5), silent=back)
    assert shown(third, warm)[1:] == [("TEMPERATURE", "CLEARED", "recovered", T0 + 420 * MINUTE)]
    assert shown(third, silent) == [due, ("SILENCE", "CLEARED", "gap", T0 + 400 * MINUTE)]
    assert shown(third, late) == [("TEMPERATURE", "OPENED", "fault", T0 + 60 * MINUTE)]
    assert compared(third).equals(third), "all of it follows from the logs now"
    now = shore_of.table("alerts_now").sort_by([("source", "ascending"), ("alert_id", "ascending")])
    assert now.select(["alert_id", "state", "minutes_open"]).to_pylist() == [
        {"alert_id": f"SILENCE.{silent}@5", "state": "CLEARED", "minutes_open": 300.0},
        {"alert_id": f"TEMPERATURE.{warm}@1", "state": "CLEARED", "minutes_open": 360.0},
        {"alert_id": f"TEMPERATURE.{late}@1", "state": "OPENED", "minutes_open": None},
    ]


@pytest.mark.chaos
@pytest.mark.timeout(900)
@pytest.mark.parametrize("side", ["before", "after"])
def test_a_driver_killed_in_sparks_own_commit_loses_and_repeats_nothing(
    shore_of: Shore, spark: SparkSession, tmp_path: Path, side: Side
) -> None:
    """Before the commit, the data files exist but no version has them. After it, the version exists but Spark has not
    noted the batch as done. The state store has the state of the batch either way."""
    world, paths = shore_of.world, TablePaths.of(shore_of.folder)
    boxes = [world.box(index) for index in range(3)]
    location, checkpoint = Path(paths.table("alerts_ashore")), Path(paths.checkpoint("alerts"))

    def write(first: int, last: int, supply: float) -> None:
        at = [(n, T0 + 10 * n * MINUTE) for n in range(first, last)]
        world.append({world.log(box): [reading(box, n, time, supply) for n, time in at] for box in boxes})

    write(0, 10, 9.0)
    settings = settings_to_die(spark, tmp_path, "alerts_ashore", 1, side)
    with start(world, shore_of.folder, jobs=["alerts"], settings=settings) as driver:
        assert driver.wait(600) == -signal.SIGKILL
    table = DeltaTable(location)
    assert (table.version(), table.count()) == ((0, 0) if side == "before" else (1, 3))
    written, known = {file.name for file in location.glob("*.parquet")}, {Path(f).name for f in table.file_uris()}
    assert written
    assert bool(known) == (side == "after")
    assert known <= written, "Spark also writes an empty file where its first task has no rows"
    assert (checkpoint / "offsets" / "0").exists()
    assert not (checkpoint / "commits" / "0").exists()

    def follows(rows: int) -> None:
        shore_of.run("readings", "alerts")
        found = shore_of.table("alerts_ashore").sort_by([("alert_id", "ascending"), ("revision", "ascending")])
        assert found.num_rows == rows
        assert compared(found).equals(following(shore_of, paths))

    follows(3)
    write(10, 14, 4.0)
    follows(6)


def following(shore_of: Shore, paths: TablePaths) -> pa.Table:
    """Return ``alerts_ashore`` as it follows from the readings."""
    rows = alerts_ashore(Lake(shore_of.spark, paths).read("readings")).toArrow()
    return ALERTS_ASHORE.sorted(rows.cast(ALERTS_ASHORE.plain_schema))


def shown(table: pa.Table, box: str) -> list[tuple[str, str, str, dt.datetime]]:
    """Return kind, state, reason and time of a box's states."""
    return [
        (row["kind"], row["state"], row["reason"], row["event_date_time"])
        for row in table.to_pylist()
        if row["equipment_reference"] == box
    ]
