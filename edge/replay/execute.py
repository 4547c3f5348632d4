"""Carrying a plan out: letters are read again, published in their order, and remembered batch by batch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final

from edge.deadletters import wrapped
from edge.replay.choose import Plan
from edge.replay.letters import letters, log_of, remember
from edge.replay.publish import Publisher
from fairlead.endpoint import KafkaEndpoint, MqttEndpoint
from fairlead.records.edge import DeadLetter
from fairlead.wire.cluster import Cluster

BATCH: Final = 500


async def replay(
    cluster: Cluster,
    kafka: KafkaEndpoint,
    mqtt: MqttEndpoint,
    site: str,
    plan: Plan,
    by: str,
    *,
    progress: Callable[[int], None] = lambda _: None,
) -> int:
    """Give the plan's messages to the site's bridge again; returns how many.

    Cut off in the middle, at most ``BATCH`` messages were sent that are not remembered; the bridge recognises them.

    Args:
        cluster, kafka: The site's Kafka as its administrator.
        mqtt: The site's MQTT broker as a device.
        by: Who replays.
        progress: Told how many are done.

    Raises:
        UnavailableError, RefusedError: as ``Publisher`` and ``remember``. BrokerError: the log cannot be read.
    """
    if not plan.offsets:
        return 0
    log, done = log_of(site), 0
    publisher = Publisher(mqtt)
    await asyncio.to_thread(publisher.open)
    try:
        async for batch in _batches(cluster, log, plan):
            await asyncio.to_thread(publisher.publish, [(wrapped(at, of.mqtt_topic), of.payload) for at, of in batch])
            await asyncio.to_thread(remember, kafka, log, [at for at, _ in batch], by)
            done += len(batch)
            progress(done)
    finally:
        await asyncio.to_thread(publisher.close)
    return done


async def _batches(cluster: Cluster, log: str, plan: Plan) -> AsyncIterator[list[tuple[int, DeadLetter]]]:
    wanted = set(plan.offsets)
    batch: list[tuple[int, DeadLetter]] = []
    async for offset, letter in letters(cluster, log, plan.offsets[0], plan.offsets[-1] + 1):
        if offset in wanted:
            batch.append((offset, letter))
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
