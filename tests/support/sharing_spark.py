"""A customer's Spark program: read tables of a share, each as asked, and print the rows as JSON.

    python -m tests.support.sharing_spark JARS QUESTIONS

``QUESTIONS`` is a JSON list of questions, each with ``table`` (as Delta Sharing's connector has it), ``options``,
``columns``, and ``stream`` for a stream that reads what there is and ends. An answer is a list of rows, or the error.
"""

from __future__ import annotations

import json
import sys
import tempfile
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

Question = dict[str, Any]


def _rows(spark: SparkSession, question: Question) -> DataFrame:
    options, columns = question.get("options", {}), question["columns"]
    if not question.get("stream"):
        return spark.read.format("deltaSharing").options(**options).load(question["table"]).select(*columns)
    found = spark.readStream.format("deltaSharing").options(**options).load(question["table"]).select(*columns)
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            found.writeStream.format("memory")
            .queryName("found")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    return spark.table("found")


def _answer(spark: SparkSession, question: Question) -> object:
    try:
        return [row.asDict() for row in _rows(spark, question).orderBy(*question["columns"]).collect()]
    except (PySparkException, Py4JJavaError) as error:
        return str(error)


def main(jars: str, questions: str) -> None:
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .getOrCreate()
    )
    sys.stdout.write(json.dumps([_answer(spark, each) for each in json.loads(questions)]) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
