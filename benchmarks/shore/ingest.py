"""Part ``ingest``: readings of very many logs into tables ``readings`` and ``readings_rejected``.

The same readings are read several times within one Spark session, each time into tables of their own, by job
``readings`` as ``fairlead shore run`` starts it: the first time Spark is cold, the best of the others counts. Rows per
second are those of whole triggers, from asking where the logs end to the commit in the checkpoint; with the start of
the query it is ``rows_per_second_with_start``. All rows are counted afterwards. With both of
Java's compilers it is ``full_compiler``. Two further sessions with other admission limits show what memory depends on.
With the connector's jars (see ``docs/benchmarks/shore.md``) Spark's own Kafka
source reads the same, by ``from_json``; it makes a task for each log that has news.

Where the JVM's time goes, of 100,000 rows that a Python source gives from memory into a table, on two busy cores: 24
microseconds of CPU a row. Making rows of Arrow batches takes 6 of them, Parquet 10, Delta's statistics of five
columns 4, and the commit 4, which larger batches share. The size of the Arrow batches (2,000 to 50,000 rows),
clustering and counting the rejected rows make less difference than the machine's load. Dictionaries for numbers and
payloads cost 12 more and make files larger (30 bytes a row instead of 26). Snappy costs what zstd costs, and its files
are twice as large.
"""

from __future__ import annotations

import argparse
import time
from typing import Any, Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks.harness import Say
from benchmarks.shore.session import Work, brief, drain, session
from benchmarks.shore.site import SIZES, BenchmarkSite, fresh
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.records import headers
from shore.delta.commit import create_table
from shore.paths import TablePaths
from shore.tables.readings import PAYLOAD_COLUMNS, READINGS

_LOGIN: Final = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="{}" password="{}";'
_TYPES: Final = {"string": "string", "int64": "bigint", "double": "double", "bool": "boolean"}


def stock_query(
    session: SparkSession, endpoint: KafkaEndpoint, paths: TablePaths, max_records: int
) -> DataStreamWriter:
    """Reads every log of stream ``containers`` into table ``readings``."""
    reader = session.readStream.format("kafka").option("subscribePattern", r"^containers\..*$")
    reader = reader.option("startingOffsets", "earliest").option("includeHeaders", "true")
    reader = reader.option("maxOffsetsPerTrigger", str(max_records)).options(**_login(endpoint))
    writer: DataStreamWriter = columns(reader.load()).writeStream.format("delta")
    return writer.option("path", paths.table(READINGS.name))


def columns(records: DataFrame) -> DataFrame:
    """The columns of ``readings``, of rows as Spark's source gives them; markers and fillers are left out."""
    read = records.where(_header(headers.KIND).isNull()).withColumn(
        "j", F.from_json(F.col("value").cast("string"), _ddl())
    )
    found: dict[str, SparkColumn] = {
        "log": F.col("topic"),
        "log_offset": F.col("offset"),
        "term": F.lit(None).cast("int"),
        "equipment_reference": F.substring_index("topic", ".", -1),
        "received_date_time": F.timestamp_millis(_header(headers.RECEIVED).cast("string").cast("bigint")),
        "late": _header(headers.LATE) == F.lit("1").cast("binary"),
        "origin": _header(headers.ORIGIN).cast("string"),
        "payload": F.col("value"),
    }
    found |= {column.name: F.col(f"j.{column.path}") for column in PAYLOAD_COLUMNS}
    return read.select(*(found[name].alias(name) for name in READINGS.plain_schema.names))


def _header(name: str) -> SparkColumn:
    return F.try_element_at(F.filter("headers", lambda h: h["key"] == name), F.lit(-1))["value"]


def _ddl() -> str:
    """The schema for ``from_json``."""
    tree: dict[str, Any] = {}
    for column in PAYLOAD_COLUMNS:
        kind = _TYPES.get(str(column.type), "timestamp")
        head, dot, tail = column.path.partition(".")
        if dot:
            tree.setdefault(head, {})[tail] = kind
        else:
            tree[head] = kind
    return ", ".join(
        f"{name} struct<{', '.join(f'{n}: {k}' for n, k in kind.items())}>"
        if isinstance(kind, dict)
        else f"{name} {kind}"
        for name, kind in tree.items()
    )


def _login(endpoint: KafkaEndpoint) -> dict[str, str]:
    found = {
        "kafka.bootstrap.servers": endpoint.bootstrap_servers,
        "kafka.security.protocol": endpoint.security_protocol,
    }
    if endpoint.user and endpoint.password:
        found["kafka.sasl.mechanism"] = "SCRAM-SHA-512"
        found["kafka.sasl.jaas.config"] = _LOGIN.format(endpoint.user, endpoint.password.get_secret_value())
    return found


TARGET: Final = {"rows_per_second": 40_000, "idle_trigger_seconds": 1.0}
IDLE_TRIGGERS: Final = 8
_COLD: Final = 2  # triggers


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--logs", type=int, default=10_000)
    parser.add_argument("--readings", type=int, default=1_000_000, help="of all logs together")
    parser.add_argument("--rounds", type=int, default=4, help="how often they are read")
    parser.add_argument("--max-records", type=int, default=500_000, help="in one trigger")
    parser.add_argument(
        "--limits", default="100000,500000", help="admission limits whose memory is compared, separated by commas"
    )
    parser.add_argument(
        "--with-kafka-connector", metavar="JARS", help="measure Spark's own source too, by these jars (with commas)"
    )


def measure(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    found: dict[str, Any] = {"logs": options.logs, "max_records": options.max_records, "target": TARGET}
    with fresh(options.logs) as site:
        numbers = site.open_logs(options.logs, say)
        each = max(1, options.readings // options.logs)
        found["readings"] = rows = each * options.logs
        found["batches"] = site.append(numbers, each, say)
        found["records_in_a_batch"] = list(SIZES)
        with session() as work:
            found["rounds"] = [
                ingest(work, site, f"round {nth + 1}", rows, options.max_records, say) for nth in range(options.rounds)
            ]
            found |= idle(work, site, f"round {options.rounds}", options.max_records, say)
        warm = found["rounds"][1:] or found["rounds"]
        found["rows_per_second"] = max(one["rows_per_second"] for one in warm)
        with session(full_compiler=True) as work:
            found["full_compiler"] = [
                ingest(work, site, f"full compiler, round {nth + 1}", rows, options.max_records, say)
                for nth in range(options.rounds)
            ]
        found["memory"] = []
        for limit in (int(text) for text in options.limits.split(",")):
            with session() as work:
                used = ingest(work, site, f"at most {limit:,} a trigger", rows, limit, say)
            found["memory"].append({"max_records": limit, "peak_rss_mb": used["peak_rss_mb"]})
        if options.with_kafka_connector:
            found["kafka_connector"] = _stock(options, site, rows, say)
    return found


def ingest(work: Work, site: BenchmarkSite, name: str, rows: int, max_records: int, say: Say) -> dict[str, Any]:
    """Read everything into new tables; what that took."""
    paths = work.paths(name)
    found = drain(work.query(site, paths, max_records), site, paths, rows).figures(rows)
    brief(found, say, name)
    return found


def idle(work: Work, site: BenchmarkSite, name: str, max_records: int, say: Say) -> dict[str, Any]:
    """Triggers of a running query that has read everything.

    Raises:
        SystemExit: there are none.
    """
    writer = work.query(site, work.paths(name), max_records)
    query = writer.trigger(processingTime="100 milliseconds").start()
    until = time.monotonic() + 120
    while len(query.recentProgress) < IDLE_TRIGGERS and query.isActive and time.monotonic() < until:
        time.sleep(0.1)
    taken = [one["durationMs"]["triggerExecution"] / 1000 for one in query.recentProgress]
    query.stop()
    if len(taken) < IDLE_TRIGGERS:
        raise SystemExit(f"there were only {len(taken)} triggers with nothing new: {query.exception()}")
    say(f"triggers with nothing new: {taken} s")
    warm = sorted(taken[_COLD:])
    return {"idle_trigger_seconds": round(warm[len(warm) // 2], 3), "idle_triggers": taken}


def _stock(options: argparse.Namespace, site: BenchmarkSite, rows: int, say: Say) -> list[dict[str, Any]]:
    """Spark's own source, cold and warm."""
    rounds = []
    with session({"spark.jars": options.with_kafka_connector}) as work:
        for name in ("Spark's own source, cold", "Spark's own source, warm"):
            paths = work.paths(name)
            create_table(work.spark, READINGS, paths.table(READINGS.name))
            writer = stock_query(work.spark, site.endpoint, paths, options.max_records)
            writer = writer.option("checkpointLocation", paths.checkpoint("stock"))
            rounds.append(drain(writer, site, paths, rows).figures(rows))
            brief(rounds[-1], say, name)
    return rounds
