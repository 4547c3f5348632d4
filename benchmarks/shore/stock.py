"""The same readings by Spark's own Kafka source: Kafka's bytes, ``from_json``, the same columns, a Delta table.

Runs only with the connector's jars (see ``docs/benchmarks/shore.md``). It makes a task for each log that has news.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.records import headers
from shore.places import Places
from shore.tables.readings import PAYLOAD_COLUMNS, READINGS

_LOGIN: Final = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="{}" password="{}";'
_TYPES: Final = {"string": "string", "int64": "bigint", "double": "double", "bool": "boolean"}


def query(session: SparkSession, endpoint: KafkaEndpoint, places: Places, max_records: int) -> DataStreamWriter:
    """Reads every log of stream ``containers`` into table ``readings``."""
    reader = session.readStream.format("kafka").option("subscribePattern", r"^containers\..*$")
    reader = reader.option("startingOffsets", "earliest").option("includeHeaders", "true")
    reader = reader.option("maxOffsetsPerTrigger", str(max_records)).options(**_login(endpoint))
    writer: DataStreamWriter = columns(reader.load()).writeStream.format("delta")
    return writer.option("path", places.table(READINGS.name))


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
    """What ``from_json`` is to look for."""
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
