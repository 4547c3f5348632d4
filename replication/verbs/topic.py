"""The topic of orders at one site: made at its first use, appended to, read whole. Blocking confluent-kafka calls: run
them with ``asyncio.to_thread``."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Sequence
from typing import Final

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from fairlead.admin import explain, require_answer
from fairlead.endpoint import KafkaEndpoint
from fairlead.errors import UnavailableError
from fairlead.order_topic import TIMEOUT, append_records
from replication.orders import ORDERS_TOPIC, Order, Orders, decode, encode

log = logging.getLogger(__name__)

_CLIENT_ID: Final = "fairlead-orders"
_ALONE: Final = {
    "client.id": _CLIENT_ID,
    "log_level": 0,  # librdkafka would write to standard error
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "fetch.wait.max.ms": 10,  # the end of the topic is told by an empty answer
}


def append_orders(endpoint: KafkaEndpoint, orders: Sequence[Order], *, timeout: float = TIMEOUT) -> int:
    """Append orders in this sequence.

    Returns:
        The offset after the last of them: a replicator that has read up to it has seen them all.

    Raises:
        RefusedError: the user may not. UnavailableError: the site does not answer within ``timeout`` seconds; some
            of the orders may be there.
    """
    records = [(None, encode(order)) for order in orders]
    landed = append_records(endpoint, ORDERS_TOPIC, records, client_id=_CLIENT_ID, timeout=timeout)
    left = len(orders) - len(landed)
    if left or not landed:
        raise UnavailableError(
            f"{endpoint.site}'s Kafka did not confirm {left} of {len(orders)} orders",
            hint="is it running? fairlead status; giving an order twice does no harm",
            site=endpoint.site,
        )
    return max(landed) + 1


def read_orders(endpoint: KafkaEndpoint, *, timeout: float = TIMEOUT) -> list[Order]:
    """Every order of a site, oldest first; none when there has never been one. What is no order is left out.

    Raises:
        RefusedError: the user may not. UnavailableError: the site does not answer within ``timeout`` seconds.
    """
    require_answer(endpoint, timeout)
    consumer = Consumer({**endpoint.librdkafka(), **_ALONE, "group.id": f"fairlead-{uuid.uuid4().hex}"})
    try:
        return _read(consumer, endpoint, timeout)
    except KafkaException as error:
        raise explain(error, endpoint, f"read {ORDERS_TOPIC}") from error
    finally:
        consumer.close()


def orders_of(endpoint: KafkaEndpoint, *, timeout: float = TIMEOUT) -> Orders:
    """What holds at a site now; raises as ``read_orders``."""
    orders = Orders()
    for order in read_orders(endpoint, timeout=timeout):
        orders.apply(order)
    return orders


def _read(consumer: Consumer, endpoint: KafkaEndpoint, timeout: float) -> list[Order]:
    found = consumer.list_topics(ORDERS_TOPIC, timeout=timeout).topics.get(ORDERS_TOPIC)
    if found is None or found.error is not None:  # asking makes no topic: librdkafka's consumers do not allow it
        return []
    place = TopicPartition(ORDERS_TOPIC, 0, OFFSET_BEGINNING)
    consumer.assign([place])
    orders: list[Order] = []
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is None:
            continue
        error = message.error()
        if error is not None and error.name() == "_PARTITION_EOF":
            return orders
        if error is not None:
            raise KafkaException(error)
        deadline = time.monotonic() + timeout
        try:
            orders.append(decode(message.value() or b""))
        except (msgspec.ValidationError, msgspec.DecodeError) as wrong:
            log.warning("%s at %s, offset %s, is no order: %s", ORDERS_TOPIC, endpoint.site, message.offset(), wrong)
    what = f"{endpoint.site}'s Kafka gave {len(orders)} orders and then nothing for {timeout:g} s"
    raise UnavailableError(what, hint="fairlead status", site=endpoint.site)
