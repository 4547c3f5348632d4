"""Alert detection ashore in Spark, against a broker: state, timers, the recomputed table, and very late rows."""

from __future__ import annotations

import datetime as dt
import signal
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from fairlead.kafka.protocol.record import NewRecord
from shore.alerts.processor import SitesThen
from shore.delta.lake import Lake
from shore.jobs.alerts import STATE_SETTINGS, detected, store
from shore.paths import TablePaths
from shore.tables.alerts_ashore import ALERTS_ASHORE, alerts_ashore, compared
from tests.integration.shore.conftest import Shore
from tests.integration.shore.dying_store import settings_to_die
from tests.integration.shore.victim import start
from tests.support.crashes import Side
from tests.support.shore.world import MINUTE, T0, reading
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


def test_a_batch_that_runs_again_finds_the_silences_that_it_found_before(spark: SparkSession, tmp_path: Path) -> None:
    """Two boxes are silent, of two sites. When the batch ran first, one site had not been heard. Its last act is the
    append; when it runs again, both sites have been heard."""
    lake = Lake(spark, TablePaths.of(tmp_path / "lake"))
    table, known = (lake.paths.table(name) for name in ("alerts_ashore", "containers_now"))

    def heard(**steps: range) -> None:
        rows = [
            {"log": f"reefer.{box}", "log_offset": n, "device_id": box, "boot_id": 1, "sequence": n, "term": 0}
            | {"equipment_reference": box, "device_date_time": at, "received_date_time": at}
            for box, found in steps.items()
            for n, at in ((n, T0 + 10 * n * MINUTE) for n in found)
        ]
        fill(tmp_path / "lake", {"readings": rows})

    def knows(box: str, site: str, minutes: int) -> None:
        row = {"equipment_reference": box, "holder": site, "reading_date_time": T0 + minutes * MINUTE}
        fill(tmp_path / "lake", {"containers_now": [row]})

    def run(*, dies: bool) -> dict[str, int]:
        """Run the job; return how often the table has the beginning of each box's silence."""

        def write(batch: DataFrame, number: int) -> None:
            some = not batch.isEmpty() if dies else False
            store(batch, number, table)
            if some:
                raise ConnectionResetError("the driver is gone")

        states = detected(lake.new_rows("readings"), SitesThen(known)).writeStream.foreachBatch(write)
        query = states.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        if dies:
            with pytest.raises(StreamingQueryException, match="the driver is gone"):
                query.awaitTermination()
        else:
            query.awaitTermination()
        opened = lake.read("alerts_ashore").where("kind = 'SILENCE' and state = 'OPENED'").toArrow()
        return dict(Counter(opened["equipment_reference"].to_pylist()))

    for name, value in STATE_SETTINGS.items():
        spark.conf.set(name, value)
    fill(tmp_path / "lake", {"alerts_ashore": []})
    near, far, steady = "AAAU0000018", "AAAU0000023", "AAAU0000039"
    heard(**{near: range(5), far: range(5), steady: range(40)})
    for box, site, minutes in ((near, "tokyo", 40), (far, "osaka", 40), (steady, "tokyo", 390)):
        knows(box, site, minutes)
    assert run(dies=True) == {near: 1}
    knows("AAAU0000044", "osaka", 390)
    assert run(dies=False) == {near: 1}
    heard(**{steady: range(40, 43)})
    assert run(dies=False) == {near: 1, far: 1}


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
