"""Jobs ``voyages`` and ``quality`` in Spark, over log tables that are there: no broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from shore.jobs import quality, voyages
from shore.jobs.model import JobContext
from tests.integration.shore.readings import undo_commit
from tests.unit.shore.fleet import BOX, Fleet, at, merged, story, topology

pytestmark = [pytest.mark.long, pytest.mark.integration, pytest.mark.spark]


def run(spark: SparkSession, fleet: Fleet) -> None:
    context = JobContext(topology(), cast(Any, None), fleet.paths, spark, 1000)
    for job in (voyages, quality):
        writer = job.query(context).option("checkpointLocation", fleet.paths.checkpoint(job.__name__.split(".")[-1]))
        assert writer.trigger(availableNow=True).start().awaitTermination(240)


def test_batches_of_spark_make_the_tables_that_follow_from_their_inputs(spark: SparkSession, tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    told = story()
    rejected = {"log": f"containers.{BOX}", "log_offset": 99, "equipment_reference": BOX, "reason": "no JSON"}
    fleet.append(merged([*told[::2], ("readings_rejected", rejected | {"received_date_time": at(1)})]))
    run(spark, fleet)
    assert fleet.differing() == []
    for job in ("voyages", "quality"):
        undo_commit(tmp_path, job)  # a crash before Spark's commit: the batch comes again
    fleet.append(merged(told[1::2]))
    run(spark, fleet)
    assert fleet.differing() == []
    assert fleet.now()["log_offset"] == 8
    assert len(fleet.rows("quality")) == 4
