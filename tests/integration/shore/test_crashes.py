"""Exactly once: whatever a crash leaves half done, the next run completes, and ``shore verify`` proves it."""

from __future__ import annotations

import datetime as dt
import gc
import shutil
import signal
from pathlib import Path

import msgspec
import pytest
from delta.tables import DeltaTable as SparkTable

from fairlead.errors import FairleadError
from fairlead.kafka.protocol.record import NewRecord
from fairlead.records import encode
from shore.delta.lake import Lake
from shore.errors import CheckpointDamagedError, JobFailedError, SplitStateError
from shore.jobs.runner import JOBS
from shore.maintenance import compact, maintenance_session, plan_compaction
from shore.paths import TablePaths
from shore.repair.backfill import BackfillSpan, apply_backfill
from shore.repair.backfill import plan_backfill as plan_backfill
from shore.repair.rebuild import rebuild_job
from shore.verify import Verification, verify
from tests.integration.shore.conftest import Shore
from tests.integration.shore.victim import start
from tests.support.crashes import Plan, PlantedCrash, Side, planted
from tests.support.ledgers import entry
from tests.support.shore.world import MINUTE, T0, World, alert, booking, reading

pytestmark = [pytest.mark.long, pytest.mark.integration, pytest.mark.spark]


POINTS: tuple[tuple[int, Side], ...] = ((2, "after"), (8, "before"))


def more(world: World, round_: int) -> None:
    """Write records to logs of every kind: in order, late, repeated, of a new box, and one that cannot be read."""
    start = T0 + round_ * 30 * MINUTE
    old, new = world.box(0), world.box(round_ + 1)
    ledger = f"custody.{world.tag}"
    moved = msgspec.structs.replace(entry(round_ + 1, round_ * 10, "tokyo", "GTIN"), log=world.log(old))
    world.append(
        {
            world.log(old): [
                *(reading(old, round_ * 10 + i, start + i * 5 * MINUTE, 4.0 + round_ % 7) for i in range(4)),
                reading(old, 5000 + round_, start - dt.timedelta(hours=30), 9.0),
                reading(old, round_ * 10, start, 4.0),
                NewRecord(b"{broken", old.encode(), timestamp_ms=1),
            ],
            world.log(new): [reading(new, i, start + i * 5 * MINUTE) for i in range(3)],
            world.bookings: [booking(f"B{round_}-{world.tag}", world.customer, new, T0, None)],
            world.alerts: [alert(old, world.tag, start + MINUTE)],
            ledger: [NewRecord(encode(moved), timestamp_ms=1)],
        }
    )


FEW = ("readings", "operations", "histories", "conditions", "feeds")  # all ways of writing; the long runs take all jobs


def proven(shore_of: Shore, world: World, jobs: tuple[str, ...] = ()) -> Verification:
    tables = [table for job in jobs for table in JOBS[job].tables]
    found = verify(shore_of.spark, world.topology(), world.endpoint, shore_of.folder, tables)
    odd = [(check.table, check.differences, check.notes) for check in found.tables if check.same is False]
    assert not odd
    left = [(check.table, check.notes) for check in found.tables if check.same is None]
    assert not left
    assert all(not check.behind for check in found.tables)
    return found


def crash(shore_of: Shore, at: int, side: Side, jobs: tuple[str, ...] = ()) -> Plan:
    """Run jobs until the planned crash, or to their end if they make fewer writes."""
    with planted(Plan(at, side)) as plan:
        try:
            shore_of.run(*jobs)
        except (JobFailedError, PlantedCrash):
            assert plan.crashed
    return plan


@pytest.mark.chaos
def test_after_crashes_tables_equal_logs(shore_of: Shore, world: World) -> None:
    """Crash at two writes, with compactions between; ``test_after_a_crash_at_every_write`` crashes at all."""
    for round_, (at, side) in enumerate(POINTS):
        more(world, round_)
        plan = crash(shore_of, at, side, FEW)
        assert plan.crashed
        for step in plan_compaction(TablePaths.of(shore_of.folder), ["readings", "events"]):
            compact(maintenance_session(shore_of.spark), TablePaths.of(shore_of.folder), step)
    shore_of.run(*FEW)
    readings = proven(shore_of, world, FEW).of("readings")
    assert readings is not None
    assert readings.rows == readings.expected == len(POINTS) * 10


PARTS = 12  # parts of the sweep over all writes, so that each ends in minutes, also on a busy machine


@pytest.mark.chaos
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(PARTS))
def test_after_a_crash_at_every_write(shore_of: Shore, world: World, part: int) -> None:
    more(world, 0)
    shore_of.run()
    round_, writes, sides = 1, 10_000, ("before", "after")
    for at in range(part, 200, PARTS):
        for side in sides:
            more(world, round_)
            round_ += 1
            plan = crash(shore_of, at, "before" if side == "before" else "after")
            shore_of.run()
            proven(shore_of, world)
            gc.collect()  # errors of crashed runs hold DataFrames in cycles, and Java cannot free their plans
            writes = min(writes, len(plan.seen)) if not plan.crashed else writes
            print(at, side, plan.seen[-1:], plan.crashed)  # noqa: T201  # of a long run
        if writes <= at:
            break
    assert at > 10  # with fewer writes the plan would have missed most tables


@pytest.mark.chaos
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("jobs", "at"),
    [
        *(([], at) for at in range(0, 24, 3)),  # of all jobs
        *((["readings"], at) for at in (0, 1, 4, 5)),  # around its first write, of sites, and its third, of readings
    ],
)
def test_after_a_real_kill(shore_of: Shore, world: World, jobs: list[str], at: int) -> None:
    more(world, 0)
    with start(world, shore_of.folder, jobs=jobs, kill_at=at) as victim:
        assert victim.wait(600) == -signal.SIGKILL
    shore_of.run()
    proven(shore_of, world)


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_lost_checkpoints_lost_tables_and_hands(shore_of: Shore, world: World) -> None:
    """Lost checkpoints, lost tables and manual changes are reported and repaired by ``rebuild`` and ``backfill``,
    without duplicates.
    """
    paths = TablePaths.of(shore_of.folder)
    lake = Lake(shore_of.spark, paths)

    def refused(error: type[FairleadError], words: str, *again: str) -> None:
        with pytest.raises(error, match=words):
            shore_of.run(*FEW)
        for name in again:
            rebuild_job(name, JOBS, lake, world.topology(), world.endpoint)

    more(world, 0)
    shore_of.run(*FEW)
    fed = len(world.read(f"feeds.{world.customer}"))
    (Path(paths.checkpoint("readings")) / "offsets" / "0").write_text("v1\n{")
    refused(CheckpointDamagedError, "offsets/0", "readings")
    shutil.rmtree(paths.checkpoint("operations"))
    refused(SplitStateError, "no checkpoint", "operations")
    for table in ("booking_changes", "alerts"):
        shutil.rmtree(paths.table(table))
    refused(SplitStateError, "is gone", "operations")
    refused(SplitStateError, "job histories has read a table that is no more there", "histories")
    refused(SplitStateError, "job feeds has read a table that is no more there", "feeds")
    shutil.rmtree(paths.checkpoint("conditions"))
    more(world, 1)
    shore_of.run(*FEW)
    before = proven(shore_of, world, FEW).of("readings")
    assert before is not None
    assert len(world.read(f"feeds.{world.customer}")) > fed

    first = shore_of.sql("select log, log_offset from readings order by all")[0]
    row = f"log = '{first['log']}' and log_offset = {first['log_offset']}"
    SparkTable.forPath(shore_of.spark, paths.table("readings")).delete(row)  # by hand, with Delta's own client
    assert not verify(shore_of.spark, world.topology(), world.endpoint, shore_of.folder, ["readings"]).ok
    more(world, 2)
    shore_of.run(*FEW)  # the jobs run despite the missing row
    todo = plan_backfill(lake, world.topology(), world.endpoint, BackfillSpan(T0 - dt.timedelta(days=3), None))
    assert apply_backfill(todo, lake, world.topology())["readings + readings_rejected"] == 1
    shore_of.run(*FEW)
    after = proven(shore_of, world, FEW).of("readings")
    assert after is not None
    assert after.rows == before.rows + 10
