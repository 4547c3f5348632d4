"""The first fill of derived tables: without a batch where the inputs are small, batch by batch where they are large or
Spark fails, and with the same rows."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from py4j.protocol import Py4JError

from fairlead.kafka.convention import is_data
from shore.errors import JobFailedError
from shore.jobs import first_fill
from shore.jobs.checkpoint import read_checkpoint
from shore.paths import TablePaths
from tests.integration.shore.conftest import Shore
from tests.integration.shore.readings import write
from tests.support.crashes import Plan, planted
from tests.support.feeds import origins
from tests.support.shore.hours import check as check_derived
from tests.support.shore.world import T0, World, alert, booking, reading

pytestmark = [pytest.mark.long, pytest.mark.integration, pytest.mark.spark]

JOBS = ("readings", "operations", "histories", "conditions", "alerts_now", "feeds")


def fill(world: World) -> None:
    box = world.box(0)
    write(world, boxes=2, count=24)
    world.append(
        {
            world.bookings: [booking(f"B-{world.tag}", world.customer, box, T0, None)],
            world.alerts: [alert(box, world.tag, T0)],
        }
    )


def delivered(world: World) -> list[int]:
    """Return the offsets of the first container's readings that the customer's feed has, in its order."""
    found = origins(record for record in world.read(f"feeds.{world.customer}") if is_data(record))
    return [offset for log, offset in found if log == world.log(world.box(0))]


def test_small_inputs_need_no_batch_and_later_batches_follow_also_after_a_crash(shore_of: Shore, world: World) -> None:
    paths = TablePaths.of(shore_of.folder)
    fill(world)
    done = shore_of.run(*JOBS)
    assert [done[job].batches for job in JOBS] == [1, 1, 0, 0, 0, 0]
    check_derived(paths)
    own = f"equipment_reference = '{world.box(0)}'"  # other tests have logs at the same site
    assert (shore_of.count(f"bookings where {own}"), shore_of.count(f"alerts_now where {own}")) == (1, 1)
    checkpoint = read_checkpoint(paths, "conditions")
    assert checkpoint is not None
    assert not checkpoint.under_way
    assert [position.version for position in checkpoint.tables] == [2]  # version 0 creates, version 1 has the rows

    box = world.box(1)
    world.append({world.log(box): [reading(box, 900, T0 + dt.timedelta(minutes=3), 9.0)]})
    with planted(Plan(1, "before")), pytest.raises(JobFailedError):  # after the write of readings
        shore_of.run("readings", "conditions")
    checkpoint = read_checkpoint(paths, "conditions")
    assert checkpoint is not None
    assert checkpoint.under_way
    before = delivered(world)
    assert len(before) == 24
    assert before == sorted(before)
    world.append({world.log(world.box(0)): [reading(world.box(0), 901, T0 + dt.timedelta(minutes=7), 9.0)]})
    done = shore_of.run(*JOBS)
    assert done["conditions"].rows == 2
    assert done["feeds"].batches == 1
    check_derived(paths)
    assert delivered(world) == [*before, before[-1] + 1]


@pytest.mark.parametrize("reason", ["large", "failing"])
def test_else_the_query_fills_batch_by_batch(
    shore_of: Shore, world: World, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise Py4JError("the cluster lost a machine")

    if reason == "large":
        monkeypatch.setattr(first_fill, "MOST_BYTES", 1)
    else:
        monkeypatch.setattr(first_fill, "conform", fail)
    fill(world)
    assert shore_of.run("readings", "conditions")["conditions"].batches == 1
    check_derived(TablePaths.of(shore_of.folder))
