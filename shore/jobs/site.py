"""The Kafka of the site where shore runs, as one logs in to it now: passwords change while shore runs."""

from __future__ import annotations

from pyspark.sql import SparkSession

from fairlead.kafka.endpoint import Endpoint, KafkaEndpoint, current
from shore.datasource import register


class Site:
    """Asked at each start of a query; what is started already keeps the password that it was started with, because
    that has gone to Spark's tasks."""

    def __init__(self, ask: Endpoint, spark: SparkSession) -> None:
        self._ask, self._spark = ask, spark
        self._registered: KafkaEndpoint | None = None
        self._of_jobs: dict[str, KafkaEndpoint] = {}

    def renew(self, job: str) -> KafkaEndpoint:
        """The endpoint for a job's query that starts now, and for the sources and sinks that it makes."""
        endpoint = self._of_jobs[job] = current(self._ask)
        if endpoint != self._registered:
            register(self._spark, endpoint)
            self._registered = endpoint
        return endpoint

    def has_changed(self, job: str) -> bool:
        """Whether a job's query would log in otherwise if it started now: then a refused login passes by itself."""
        return current(self._ask) != self._of_jobs.get(job)
