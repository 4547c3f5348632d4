"""Job ``voyages`` in Spark, over log tables that are there: no broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from shore.jobs import voyages
from shore.jobs.model import JobContext
from tests.integration.shore.readings import undo_commit
from tests.unit.shore.fleet import Fleet, merged, story, topology

pytestmark = [pytest.mark.long, pytest.mark.integration, pytest.mark.spark]


def run(spark: SparkSession, fleet: Fleet) -> None:
    context = JobContext(topology(), cast(Any, None), fleet.paths, spark, 1000)
    writer = voyages.query(context).option("checkpointLocation", fleet.paths.checkpoint("voyages"))
    assert writer.trigger(availableNow=True).start().awaitTermination(240)


def test_batches_of_spark_make_the_tables_that_follow_from_their_inputs(spark: SparkSession, tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    told = story()
    fleet.append(merged(told[::2]))
    run(spark, fleet)
    assert fleet.differing() == []
    undo_commit(tmp_path, "voyages")  # a crash before Spark's commit: the batch comes again
    fleet.append(merged(told[1::2]))
    run(spark, fleet)
    assert fleet.differing() == []
    ships = fleet.rows("port_calls", "vessel", "un_location_code", "arrival_source")
    assert ("MV Duck Star", "SGSIN", "EVENT") in ships
