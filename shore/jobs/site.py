"""The Kafka of the site where shore runs, as one logs in to it now: passwords change while shore runs."""

from __future__ import annotations

from pyspark.sql import SparkSession

from fairlead.endpoint import Endpoint, KafkaEndpoint, current
from shore.source.datasource import register


class Site:
    """Asked at each start of a query; what is started already keeps the password that it was started with, because
    that has gone to Spark's tasks."""

    def __init__(self, ask: Endpoint, spark: SparkSession) -> None:
        self._ask, self._spark = ask, spark
        self._known: KafkaEndpoint | None = None

    def renew(self) -> KafkaEndpoint:
        """The endpoint for a query that starts now, and for the sources and sinks that it makes."""
        endpoint = current(self._ask)
        if endpoint != self._known:
            register(self._spark, endpoint)
            self._known = endpoint
        return endpoint

    def has_changed(self) -> bool:
        """Whether a query that starts now would log in otherwise than those that were started before: then a refused
        login passes by itself."""
        return current(self._ask) != self._known
