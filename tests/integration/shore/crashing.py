"""The sink with planted crashes: the process that appends a batch exits without notice after so many appends.

It is a module of its own, since Spark's Python processes import it by name.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamWriter
from pyspark.sql.types import StructType

from fairlead.kafka.endpoint import KafkaEndpoint
from shore.datasource import FairleadSource
from shore.sink.options import parse_sink_options
from shore.sink.writer import StreamLogWriter


class CrashingWriter(StreamLogWriter):
    fuse: Path

    def appended(self, log: str, count: int) -> None:
        left = int(self.fuse.read_text()) - 1
        self.fuse.write_text(str(left))
        if left == 0:
            os._exit(1)


class CrashingSource(FairleadSource):
    fuse: ClassVar[Path]

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        options = parse_sink_options(self.options, streaming=True)
        writer = CrashingWriter(self._endpoint(options.site), options, schema)
        writer.fuse = self.fuse
        return writer


def register_crashing(spark: SparkSession, endpoint: KafkaEndpoint, fuse: Path) -> None:
    """As ``datasource.register``; ``fuse`` is a file with the number of appends until the next crash, 0 for none."""
    registered = type("Registered", (CrashingSource,), {"endpoints": {endpoint.site: endpoint}, "fuse": fuse})
    registered.__module__ = "__main__"
    spark.dataSource.register(registered)
