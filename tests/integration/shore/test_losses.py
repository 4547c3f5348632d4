"""A job stops at records that were deleted before it read them, and continues once somebody acknowledges that."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from shore.errors import JobFailedError
from shore.paths import TablePaths
from shore.source.losses import acknowledge_losses, read_losses
from tests.integration.shore.conftest import Shore
from tests.support.shore.world import MINUTE, T0, World, reading

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long]


def test_a_job_stops_at_lost_records_and_goes_on_when_told(shore_of: Shore, world: World, spark: SparkSession) -> None:
    box, other = world.box(0), world.box(1)
    log, paths = world.log(box), TablePaths.of(shore_of.folder)
    world.append({world.log(one): [reading(one, i, T0 + i * MINUTE) for i in range(10)] for one in (box, other)})
    shore_of.run("readings")
    assert shore_of.count("readings") == 20
    world.append({world.log(one): [reading(one, i, T0 + i * MINUTE) for i in range(10, 20)] for one in (box, other)})
    world.delete_before(log, 14)  # offsets 11 to 13 had not been read
    for _ in range(2):  # a second try does not skip them either
        with pytest.raises(JobFailedError, match=f"{log} has lost records 11 to 13 before this job read them") as error:
            shore_of.run("readings")
        assert "fairlead shore losses --acknowledge" in error.value.hint
    assert shore_of.count("readings") == 20
    (lost,) = read_losses(paths)
    assert (lost.job, lost.log, lost.first, lost.records) == ("readings", log, 11, 3)
    acknowledge_losses(paths)
    world.delete_before(log, 16)  # retention deletes more meanwhile
    shore_of.run("readings")
    assert shore_of.count("readings") == 20 + 10 + 5
    (more,) = read_losses(paths)
    assert (more.first, more.records) == (14, 2)


def test_a_topology_can_let_its_jobs_go_on(shore_of: Shore, world: World, spark: SparkSession) -> None:
    box, topology = world.box(0), world.topology(fail_on_data_loss=False)
    world.append({world.log(box): [reading(box, i, T0 + i * MINUTE) for i in range(10)]})
    shore_of.run("readings", topology=topology)
    world.append({world.log(box): [reading(box, i, T0 + i * MINUTE) for i in range(10, 20)]})
    world.delete_before(world.log(box), 14)
    shore_of.run("readings", topology=topology)
    assert shore_of.count("readings") == 10 + 7
    (lost,) = read_losses(TablePaths.of(shore_of.folder))
    assert (lost.first, lost.records) == (11, 3)
