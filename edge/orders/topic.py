"""The topic of orders by hand at one site: made at its first use, appended to. Blocking confluent-kafka calls: run them
with ``asyncio.to_thread``."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from fairlead.admin import create_logs, explain, require_answer
from fairlead.endpoint import KafkaEndpoint
from fairlead.errors import UnavailableError
from fairlead.records import encode
from fairlead.records.custody import CUSTODY_ORDERS, CustodyOrder

TIMEOUT: Final = 15.0


def append_order(endpoint: KafkaEndpoint, order: CustodyOrder, *, timeout: float = TIMEOUT) -> int:
    """Append one order and return its offset.

    Raises:
        RefusedError: the user may not. UnavailableError: the site does not answer within ``timeout`` seconds; the
            order may be there.
    """
    create_logs(
        endpoint, {CUSTODY_ORDERS: {}}, client=require_answer(endpoint, timeout)
    )  # one partition, kept for ever
    producer = Producer(
        {
            **endpoint.librdkafka(),
            "client.id": "fairlead-custody",
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

    producer.produce(CUSTODY_ORDERS, key=order.log.encode(), value=encode(order), partition=0, on_delivery=delivered)
    producer.flush(timeout + 5)
    if failed:
        raise explain(KafkaException(failed[0]), endpoint, f"append to {CUSTODY_ORDERS}")
    if not landed:
        raise UnavailableError(
            f"{endpoint.site}'s Kafka did not confirm the order",
            hint=f"fairlead status; 'fairlead custody show {order.log}' tells whether it was carried out all the same",
            site=endpoint.site,
        )
    return landed[0]
