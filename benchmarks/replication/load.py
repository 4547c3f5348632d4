"""What the source holds before a measurement begins: written in the same way for both sides."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from benchmarks.replication.world import Logs, World
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import term_batch
from fairlead.kafka.protocol.codecs import Codec
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import TopicPartition

LOGS_AT_ONCE: Final = 500
POOL: Final = 4000  # different values: 2 MB of 500 B each, more than lz4 looks back


async def append(
    cluster: Cluster, tps: Sequence[TopicPartition], *, offset: int, batches: int, records: int, size: int
) -> dict[TopicPartition, int]:
    """Append batches of ``records`` records of ``size`` bytes (lz4) to each log, as Fairlead's bridge writes them.

    Returns:
        Where each log ends now.
    """
    stamp = int(time.time() * 1000)
    values = _values(size)
    for start in range(0, len(tps), LOGS_AT_ONCE):
        for number in range(batches):
            at = offset + number * records
            appended = {}
            for tp in tps[start : start + LOGS_AT_ONCE]:
                new = [NewRecord(random.choice(values), timestamp_ms=stamp + n) for n in range(records)]  # noqa: S311
                appended[tp] = term_batch(new, term=1, offset=at, marker=0, codec=Codec.LZ4)
            for tp, result in (await cluster.produce(appended)).items():
                if not result.appended_now:
                    raise RuntimeError(f"{tp}: {result}")
    return dict.fromkeys(tps, offset + batches * records)


def produce(world: World, logs: Logs, *, records: int, size: int, settings: dict[str, object]) -> None:
    """Write with an ordinary producer, in turn to each partition."""
    producer = Producer({**world.source.endpoint.librdkafka(), "log_level": 0, "compression.type": "lz4", **settings})
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failed.append(error)

    values = _values(size)
    for number in range(records):
        tp = logs.tps[number % len(logs.tps)]
        while True:
            try:
                producer.produce(tp.topic, values[number % POOL], partition=tp.partition, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    left = producer.flush(120)
    if left or failed:
        raise RuntimeError(f"{left} records not written, {len(failed)} failed: {failed[:1]}")


def _values(size: int) -> list[bytes]:
    """Hexadecimal noise: compresses to about half, as telemetry does."""
    return [random.randbytes((size + 1) // 2).hex()[:size].encode() for _ in range(POOL)]  # noqa: S311
