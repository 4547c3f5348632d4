"""Make the broker's log cleaner run often, and wait for it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from typing import Final

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from fairlead.kafka.admin import admin_client
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.batch import parse_header
from tests.support.replication.consumers import read_all
from tests.support.replication.lab import Lab, until
from tests.support.waits import PATIENCE

STILL: Final = 0.5  # seconds; an eager cleaner begins a round every 0.2 s


@contextlib.contextmanager
def eager(endpoint: KafkaEndpoint) -> Iterator[None]:
    """Make a site's brokers look for logs to compact several times a second instead of every 15 s."""

    client = admin_client(endpoint)
    brokers = [str(each) for each in client.list_topics(timeout=PATIENCE).brokers]

    def alter(operation: AlterConfigOpType) -> None:
        entry = ConfigEntry("log.cleaner.backoff.ms", "200", incremental_operation=operation)
        for broker in brokers:  # one request can name only one broker
            resource = ConfigResource(ConfigResource.Type.BROKER, broker, incremental_configs=[entry])
            for future in client.incremental_alter_configs([resource]).values():
                future.result(PATIENCE)

    alter(AlterConfigOpType.SET)
    yield
    alter(AlterConfigOpType.DELETE)


async def settle(lab: Lab, site: str, topic: str) -> None:
    """Wait until the cleaner has made gaps in a log and left one record of each key before the last batch, which
    begins a segment of its own, and then has changed nothing for more than one round.
    """
    before: list[bytes] = []
    since = time.monotonic()

    async def cleaned() -> bool:
        nonlocal before, since
        now = await lab.stored(site, topic)
        if now != before:
            before, since = now, time.monotonic()
        found = [parse_header(batch) for batch in now]
        offsets = found[-1].next_offset if found else 0
        if sum(each.count for each in found) == offsets or time.monotonic() < since + STILL:
            return False
        view = await asyncio.to_thread(read_all, lab.kafka(site), topic, committed=True)
        keys = [each.key for each in view.records if each.offset < found[-1].base_offset]
        return len(keys) == len(set(keys))

    await until(cleaned, f"the broker of {site} does not compact {topic}")
