"""The bridge's session at the site's MQTT broker: paho driven by the asyncio loop, with manual acknowledgements.

QoS 1, a persistent session under a fixed client id, MQTT 3.1.1. The broker keeps what is not acknowledged and sends it
again after a reconnect; so losing the connection, or this process, loses nothing. QoS 2 is not used: paho answers
PUBREC before the message is safe. How much may be unacknowledged is bounded by the broker (``max_inflight_messages``)
and here by ``window``: beyond it the socket is not read, and the broker queues.

Everything but the TCP connect runs on the event loop's thread; no locks, no queues between threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import NamedTuple

import paho.mqtt.client as paho

from edge.acks import AckOrder, Ticket
from edge.errors import MqttLoginRefusedError, MqttRefusedError, MqttUnavailableError
from edge.mqttconnection import MqttConnection
from fairlead.endpoint import MqttWay, current, with_each_password

log = logging.getLogger(__name__)

WINDOW = 5_000  # unacknowledged messages at which reading stops; Mosquitto's own limit (1,000 here) comes first
_READS_PER_WAKE = 128
REFUSED_SECONDS = 30.0
_FIRST_DELAY, _LONGEST_DELAY = 0.2, 5.0


class Delivery(NamedTuple):
    """One message from the broker. ``ticket`` is None for QoS 0, which needs no acknowledgement."""

    topic: str
    payload: bytes
    redelivered: bool
    ticket: Ticket | None


class MqttSession:
    """One client of one broker, reconnecting by itself.

    Args:
        endpoint: Asked at every connect, if it can be: passwords change.
        on_message: Called on the event loop for every message, in the order of receipt; must not block.
        subscriptions: ``(topic filter, QoS)``, subscribed at every connect.
        window: How many messages may be unacknowledged. Those of a connection that was lost are taken again on the
            next one while they are still being stored, so that at most twice as many are in memory.
        on_change: Called when the session is connected or has lost its connection.

    What these say may be changed until ``run``.
    """

    def __init__(
        self,
        endpoint: MqttWay,
        *,
        client_id: str,
        subscriptions: list[tuple[str, int]],
        on_message: Callable[[Delivery], None],
        window: int = WINDOW,
        on_change: Callable[[], None] | None = None,
    ) -> None:
        self._ask = endpoint
        self._endpoint = current(endpoint)
        self._refusals = 0  # of the login, in a row
        self._refused_since = 0.0
        self._client_id = client_id
        self.subscriptions = subscriptions
        self.on_message = on_message
        self.on_change = on_change
        self.window = window
        self._order = AckOrder(self)
        self._connection: MqttConnection | None = None
        self._closing = False
        self._discarding = False
        self._had_session = False
        self._room = asyncio.Event()
        self.connected = asyncio.Event()
        self.acknowledged = 0
        self.connections = 0
        self.sessions_lost = 0

    @property
    def outstanding(self) -> int:
        """Messages received on this connection and not yet acknowledged."""
        return len(self._order)

    @property
    def full(self) -> bool:
        """Whether nothing more is taken until something is acknowledged."""
        return len(self._order) >= self.window

    @property
    def head(self) -> Ticket | None:
        """The message whose acknowledgement all others of this connection wait for."""
        return self._order.head

    @property
    def stale(self) -> int:
        """Messages that became safe after their connection was gone (the broker sends them again)."""
        return self._order.stale

    def finish(self, ticket: Ticket) -> None:
        """The message is safe in Kafka; acknowledge it, and those that waited for it, in order."""
        connection = self._connection
        for mid in self._order.finish(ticket):
            if connection is not None:
                connection.acknowledge(mid)
                self.acknowledged += 1
        if connection is not None and not connection.reading and len(self._order) <= self.window // 2:
            connection.start_reading()
        if ticket.epoch != self._order.epoch and self._order.left_behind <= self.window:
            self._room.set()

    async def run(self) -> None:
        """Stay connected until cancelled, or until ``disconnect``.

        Raises:
            MqttRefusedError: the broker refuses this user, password or client id; trying again would not help. A login
                that was taken before is tried for ``REFUSED_SECONDS`` where the endpoint can be asked.
        """
        delay = _FIRST_DELAY
        loop = asyncio.get_running_loop()
        while not self._closing:
            began = loop.time()
            try:
                reason = await (await self._connect()).stay()
                if self._closing:
                    return
                log.warning("%s: connection to the MQTT broker was lost (%s)", self._endpoint.site, reason)
            except MqttUnavailableError as error:
                log.warning("%s; trying again in %.1f s", error.what, delay)
            except MqttLoginRefusedError as error:
                if not self._may_pass():
                    raise
                log.warning("%s; trying again in %.1f s", error.what, delay)
            finally:
                self._drop()
            # A connection that never lasts is often a second bridge with the same client id: each ends the other's.
            delay = _FIRST_DELAY if loop.time() - began > _LONGEST_DELAY else min(delay * 2, _LONGEST_DELAY)
            await asyncio.sleep(delay)
            await self._has_room()

    def publish(self, topic: str, payload: bytes) -> bool:
        """Publish with QoS 1, once; False when there is no connection. Nobody tells whether the broker got it."""
        connection = self._connection
        return connection is not None and self.connected.is_set() and connection.publish(topic, payload)

    async def unsubscribe(self, *filters: str) -> None:
        """End subscriptions of this session, if it has them; what is queued for it still comes.

        Raises:
            MqttUnavailableError: the connection was lost, or is not there; they may or may not have ended.
        """
        connection = self._connection
        if connection is None or not self.connected.is_set():
            raise MqttUnavailableError(f"not connected to the MQTT broker of {self._endpoint.site}")
        await connection.unsubscribe(*filters)

    def pause(self) -> None:
        """Take no more messages; those taken can still be acknowledged. The broker sends the others again."""
        self._discarding = True

    async def disconnect(self) -> None:
        """Make sure that the broker has every acknowledgement, then say goodbye; the session stays at the broker."""
        self._closing = True
        self._room.set()
        self.pause()
        connection = self._connection
        if connection is not None and connection.there:
            with contextlib.suppress(MqttUnavailableError, MqttRefusedError):
                await connection.settle()
            connection.goodbye()
            self._drop()

    # -- one connection

    async def _connect(self) -> MqttConnection:
        self._order.new_connection()
        self._endpoint = current(self._ask)
        ways = with_each_password(self._endpoint)
        connection = self._connection = MqttConnection(
            ways[self._refusals % len(ways)],
            self._client_id,
            self.subscriptions,
            on_message=self._message,
            on_lost=self._went,
            readable=self._readable,
        )
        present = await connection.open()
        self.connections += 1
        self._refusals = 0
        if not present and self._had_session:
            self.sessions_lost += 1
            log.error(
                "%s: the MQTT broker has forgotten the bridge's session; messages it had queued may be lost",
                self._endpoint.site,
            )
        self._had_session = True
        self.connected.set()
        self._tell()
        return connection

    def _may_pass(self) -> bool:
        """Whether a login that was refused just now may be taken soon: each password that may count is tried, and one
        that counted once may have been changed a moment ago."""
        now = asyncio.get_running_loop().time()
        self._refused_since = self._refused_since if self._refusals else now
        self._refusals += 1
        if self._refusals < len(with_each_password(current(self._ask))):
            return True
        return callable(self._ask) and self._had_session and now - self._refused_since < REFUSED_SECONDS

    async def _has_room(self) -> None:
        """Wait until no more than a window's messages of earlier connections are still being stored."""
        while self._order.left_behind > self.window and not self._closing:
            self._room.clear()
            await self._room.wait()

    def _drop(self) -> None:
        """Close the connection, whatever state it is in."""
        connection, self._connection = self._connection, None
        self._order.new_connection()
        if connection is not None:
            connection.close()
        self._went()

    def _went(self) -> None:
        """The connection is not there any more."""
        if self.connected.is_set():
            self.connected.clear()
            self._tell()

    def _tell(self) -> None:
        if self.on_change is not None:
            self.on_change()

    # -- what the connection tells, on the loop's thread

    def _message(self, message: paho.MQTTMessage) -> None:
        if self._discarding:
            return
        try:
            topic = message.topic
        except UnicodeDecodeError:  # the broker should refuse these itself
            topic = "(a topic that is not UTF-8)"
        ticket = self._order.received(message.mid) if message.qos else None
        self.on_message(Delivery(topic, bytes(message.payload), message.dup, ticket))

    def _readable(self) -> None:
        connection = self._connection
        if connection is None:
            return
        for _ in range(_READS_PER_WAKE):
            if not connection.read():
                return
            # The answer to SUBSCRIBE or UNSUBSCRIBE stands behind what the broker has sent before: that must be read.
            limit = self.window if connection.answered else max(self.window, WINDOW)
            if len(self._order) >= limit and not self._discarding:
                connection.stop_reading()
                return
            if connection.drained:
                return
        # A TLS socket may hold decrypted bytes that no poll reports.
        asyncio.get_running_loop().call_soon(self._readable)
