"""One Spark session for all tests of a run, and for each test its own topics in site alpha's Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

import shore
from fairlead.kafka.endpoint import KafkaEndpoint
from shore.datasource import register
from shore.delta.lake import AS_THEY_STAND
from shore.jobs.runner import JOBS
from shore.jobs.status import JobStatus
from shore.read import rows, sql, table
from shore.session import close
from shore.session import spark as open_session
from tests.support.patience import patient
from tests.support.shore.world import World
from topologies.model import Topology

BEFORE_FEEDS = ("readings", "operations", next(job.name for job in JOBS.values() if "bookings" in job.tables))
"""The jobs that bring records of logs, and bookings, to the tables that job ``feeds`` follows."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    # Tests have few rows, as a job's batches have. Tests of the cluster and benchmarks use Spark's own settings.
    session = open_session(tmp_path_factory.mktemp("spark"), extra=AS_THEY_STAND)
    yield session
    if SparkContext._active_spark_context is not None:  # noqa: SLF001  # else a test of whole voyages has closed it
        close(session)


@pytest.fixture(autouse=True)
def forget_tables(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let Delta forget the tables of each test. It keeps some 2 MB for every table that it has read in the last hour:
    the tables of ten tests fill the session's memory, and Java then does nothing but collect garbage."""
    yield
    if "spark" in request.fixturenames:
        java: Any = request.getfixturevalue("spark").sparkContext._jvm  # noqa: SLF001  # Python has no way to it
        java.org.apache.spark.sql.delta.DeltaLog.clearCache()


@pytest.fixture
def world(kafka: Callable[..., KafkaEndpoint]) -> World:
    return World(kafka("alpha", "admin"))


@pytest.fixture
def source(spark: SparkSession, world: World) -> SparkSession:
    """Register source ``fairlead`` for this test's site and return the session."""
    register(spark, world.endpoint)
    return spark


class Shore:
    """Shore for one test's topology: runs jobs once, and reads the tables without Spark."""

    def __init__(self, world: World, folder: Path, spark: SparkSession) -> None:
        self.world = world
        self.folder = folder
        self.spark = spark

    def run(self, *jobs: str, topology: Topology | None = None, **more: object) -> dict[str, JobStatus]:
        return patient(
            lambda: shore.run(
                topology or self.world.topology(),
                self.world.endpoint,
                self.folder,
                jobs,
                once=True,
                session=self.spark,
                **more,
            )
        )

    def sql(self, query: str) -> list[dict[str, object]]:
        return rows(sql(self.folder, query))

    def table(self, name: str) -> pa.Table:
        return table(self.folder, name).to_table()

    def count(self, table: str) -> object:
        return self.sql(f"select count(*) as n from {table}")[0]["n"]  # noqa: S608  # the tests' own names


@pytest.fixture
def shore_of(world: World, tmp_path: Path, spark: SparkSession) -> Shore:
    return Shore(world, tmp_path, spark)
