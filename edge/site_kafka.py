"""The bridge's connection to its site's Kafka, with readers and appenders, and the creation of its topics."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from confluent_kafka.admin import AdminClient

from edge.logwriter.retry import retry_transient
from edge.logwriter.tail_reader import TailReader
from fairlead.errors import FairleadError
from fairlead.kafka.admin import LOG_DEFAULTS, create_logs, require_answer
from fairlead.kafka.client.appender import Appender
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.endpoint import Endpoint, KafkaEndpoint, current
from fairlead.kafka.protocol.errors import BrokerError, RequestTimeout
from fairlead.kafka.protocol.types import TP

_SERVED_SECONDS: Final = 60.0  # how long a new topic may take to accept writes
_SERVED_SOON: Final = 5.0  # the same for containers' logs, while others wait for theirs
REFUSED_AT_START: Final = 5.0  # seconds for which a refused login is retried: Kafka may still be starting


@dataclass(frozen=True, slots=True)
class SiteKafka:
    """A connection to the site's Kafka, with its reader and appenders.

    Args:
        urgent: An appender without linger; for alerts only.
        create: Creates the missing ones of many topics. Returns, by topic, why it cannot be written to now.
    """

    cluster: Cluster
    appender: Appender
    urgent: Appender
    tails: TailReader
    create: Callable[[Sequence[str]], Awaitable[Mapping[str, FairleadError]]]


async def connect(endpoint: Endpoint, client_id: str) -> Cluster:
    """Connect to the site's Kafka; retry until it answers. A callable ``endpoint`` is called at every login.

    Raises:
        AuthenticationFailed: the login was refused for ``REFUSED_AT_START`` seconds.
    """
    return await retry_transient(
        lambda: Cluster.open(endpoint, client_id=client_id),
        f"{current(endpoint).site}: connecting to Kafka",
        refused_seconds=REFUSED_AT_START,
    )


class TopicMaker:
    """Creates logs at a site, many per request."""

    def __init__(self, endpoint: Endpoint, cluster: Cluster) -> None:
        self._endpoint = endpoint
        self._cluster = cluster
        self._client: tuple[KafkaEndpoint, AdminClient] | None = None  # with the login it uses
        self._like: str | None = None  # an existing log, whose settings show the cluster's defaults

    async def create(self, topics: Sequence[str]) -> None:
        """Create the topics that are missing, and wait until all accept writes."""

        async def create() -> None:
            for error in (await self._create_now(topics, _SERVED_SECONDS)).values():
                raise error

        await retry_transient(create, f"{self._cluster.endpoint.site}: creating {len(topics)} logs")

    async def try_create(self, topics: Sequence[str]) -> dict[str, FairleadError]:
        """Create the topics that are missing. Returns, by topic, why it cannot be written to now.

        No topic waits for another. If Kafka as a whole is away, this retries until it is back.
        """
        return await retry_transient(
            partial(self._create_now, topics, _SERVED_SOON),
            f"{self._cluster.endpoint.site}: creating {len(topics)} logs",
        )

    async def _create_now(self, topics: Sequence[str], seconds: float) -> dict[str, FairleadError]:
        failures: dict[str, FairleadError] = {}
        missing = set(topics) - set(await self._cluster.topics(topics, refresh=True))
        if missing:
            implied = await self._cluster.topic_defaults(self._like, LOG_DEFAULTS) if self._like is not None else {}
            wanted = dict.fromkeys(missing, LOG_DEFAULTS)
            failures = await asyncio.to_thread(self._make, wanted, implied)
        made = [topic for topic in topics if topic not in failures]
        try:
            await self._cluster.wait_writable(made, seconds)
        except (RequestTimeout, BrokerError):
            served = await asyncio.gather(*map(self._why_not_served, made))
            failures |= {topic: error for topic, error in zip(made, served, strict=True) if error is not None}
        self._like = self._like or next((topic for topic in topics if topic not in failures), None)
        return failures

    async def _why_not_served(self, topic: str) -> FairleadError | None:
        try:
            await self._cluster.wait_writable([topic], 0)
        except (RequestTimeout, BrokerError) as error:
            return error
        return None

    def _make(self, wanted: Mapping[str, Mapping[str, str]], implied: Mapping[str, str]) -> dict[str, FairleadError]:
        endpoint = current(self._endpoint)
        if self._client is None or self._client[0] != endpoint or endpoint.other_passwords:
            # A client keeps its password, and would retry the old one for ever after a change.
            self._client = endpoint, require_answer(endpoint)
        failures: dict[str, FairleadError] = {}
        create_logs(endpoint, wanted, client=self._client[1], implied=implied, failures=failures)
        return failures


async def served(cluster: Cluster, topic: str) -> None:
    """Check that the leader of a log answers, by asking for the log's end.

    Raises:
        WireError: the leader does not answer.
    """
    end = (await cluster.end_offsets([TP(topic)]))[TP(topic)]
    if isinstance(end, BrokerError):
        raise end
