"""Append operators' orders to their topics and return each record's offset; the first order creates its topic.

Blocking confluent-kafka calls: run them with ``asyncio.to_thread``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from fairlead.kafka.admin import create_logs, explain, require_answer, with_active_password
from fairlead.kafka.endpoint import KafkaEndpoint

TIMEOUT: Final = 15.0  # seconds for a site to answer
_GRACE: Final = 5.0  # seconds to wait for delivery reports after the records' own timeout


def append_records(
    endpoint: KafkaEndpoint,
    topic: str,
    records: Iterable[tuple[bytes | None, bytes]],
    *,
    client_id: str,
    timeout: float = TIMEOUT,
) -> list[int]:
    """Append records (key, value) in this order to a topic of one partition, whose records are kept for ever.

    Returns:
        The offsets of the confirmed records; fewer than ``records`` when the site did not answer in time.

    Raises:
        RefusedError: the user may not. UnavailableError: the site does not answer within ``timeout`` seconds; some of
            the records may have been stored.
    """
    endpoint = with_active_password(endpoint)
    create_logs(endpoint, {topic: {}}, client=require_answer(endpoint, timeout))
    producer = Producer(
        {
            **endpoint.librdkafka(),
            "client.id": client_id,
            "log_level": 0,  # librdkafka would write to standard error
            "enable.idempotence": True,
            "acks": "all",
            "message.timeout.ms": int(timeout * 1000),
        }
    )
    landed: list[int] = []
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        if error is not None:
            failed.append(error)
        elif offset is not None:
            landed.append(offset)

    for key, value in records:
        producer.produce(topic, key=key, value=value, partition=0, on_delivery=delivered)
    producer.flush(timeout + _GRACE)
    if failed:
        raise explain(KafkaException(failed[0]), endpoint, f"append to {topic}")
    return landed
