"""A checkpoint that was made on a laptop does not keep a cluster at the laptop's number of shuffle partitions."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark]

_PARTITIONS = "spark.sql.shuffle.partitions"


def _run(spark: SparkSession, folder: Path, partitions: int) -> list[int]:
    """Run the waiting batches; return how many partitions a shuffle in each of them had."""
    session = spark.newSession()
    session.conf.set(_PARTITIONS, str(partitions))
    session.conf.set("spark.sql.adaptive.enabled", "false")
    seen: list[int] = []

    def count(batch: DataFrame, number: int) -> None:
        seen.append(batch.groupBy("id").count().rdd.getNumPartitions())

    rows = session.readStream.format("delta").load(str(folder / "table"))
    query = rows.writeStream.foreachBatch(count).option("checkpointLocation", str(folder / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()
    return seen


def test_the_number_of_shuffle_partitions_follows_the_session(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(100)
    rows.write.format("delta").save(str(tmp_path / "table"))
    assert _run(spark, tmp_path, 2) == [2]
    rows.write.format("delta").mode("append").save(str(tmp_path / "table"))
    assert _run(spark, tmp_path, 7) == [7]
