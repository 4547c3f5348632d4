"""The topic of orders by hand at one site. Blocking: run it with ``asyncio.to_thread``."""

from __future__ import annotations

from fairlead.endpoint import KafkaEndpoint
from fairlead.errors import UnavailableError
from fairlead.order_topic import TIMEOUT, append_records
from fairlead.records import encode
from fairlead.records.custody import CUSTODY_ORDERS, CustodyOrder


def append_order(endpoint: KafkaEndpoint, order: CustodyOrder, *, timeout: float = TIMEOUT) -> int:
    """Append one order and return its offset; the topic is made at its first use.

    Raises:
        RefusedError: the user may not. UnavailableError: the site does not answer within ``timeout`` seconds; the
            order may be there.
    """
    record = order.log.encode(), encode(order)
    landed = append_records(endpoint, CUSTODY_ORDERS, [record], client_id="fairlead-custody", timeout=timeout)
    if not landed:
        raise UnavailableError(
            f"{endpoint.site}'s Kafka did not confirm the order",
            hint=f"fairlead status; 'fairlead custody show {order.log}' tells whether it was carried out all the same",
            site=endpoint.site,
        )
    return landed[0]
