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
from typing import Any, NamedTuple

import paho.mqtt.client as paho
from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from edge.acks import AckOrder, Ticket
from edge.errors import MqttRefusedError, MqttUnavailableError
from edge.mqttclient import CONNECT_TIMEOUT, LoopSocket, new_client, open_socket, refusal, refused_subscriptions
from fairlead.endpoint import MqttEndpoint

log = logging.getLogger(__name__)

WINDOW = 5_000  # unacknowledged messages at which reading stops; Mosquitto's own limit (1,000 here) comes first
_READS_PER_WAKE = 128
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
        on_message: Called on the event loop for every message, in the order of receipt; must not block.
        subscriptions: ``(topic filter, QoS)``, subscribed at every connect.
        window: How many messages may be unacknowledged. Those of a connection that was lost are taken again on the
            next one while they are still being stored, so that at most twice as many are in memory.
        on_change: Called when the session is connected or has lost its connection.

    What these say may be changed until ``run``.
    """

    def __init__(
        self,
        endpoint: MqttEndpoint,
        *,
        client_id: str,
        subscriptions: list[tuple[str, int]],
        on_message: Callable[[Delivery], None],
        window: int = WINDOW,
        on_change: Callable[[], None] | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._client_id = client_id
        self.subscriptions = subscriptions
        self.on_message = on_message
        self.on_change = on_change
        self.window = window
        self._order = AckOrder(self)
        self._client: paho.Client | None = None
        self._socket: LoopSocket | None = None
        self._closing = False
        self._discarding = False
        self._got = 0
        self._had_session = False
        self._present = False
        self._lost: asyncio.Future[str] | None = None
        self._ready: asyncio.Future[bool] | None = None
        self._unsubscribed: asyncio.Future[None] | None = None
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
        client = self._client
        for mid in self._order.finish(ticket):
            if client is not None:
                client.ack(mid, 1)
                self.acknowledged += 1
        socket = self._socket
        if socket is not None and not socket.reading and len(self._order) <= self.window // 2:
            socket.start_reading()
        if ticket.epoch != self._order.epoch and self._order.left_behind <= self.window:
            self._room.set()

    async def run(self) -> None:
        """Stay connected until cancelled, or until ``disconnect``.

        Raises:
            MqttRefusedError: the broker refuses this user, password or client id; trying again would not help.
        """
        delay = _FIRST_DELAY
        loop = asyncio.get_running_loop()
        while not self._closing:
            began = loop.time()
            try:
                await self._connect()
                reason = await self._stay()
                if self._closing:
                    return
                log.warning("%s: connection to the MQTT broker was lost (%s)", self._endpoint.site, reason)
            except MqttUnavailableError as error:
                log.warning("%s; trying again in %.1f s", error.what, delay)
            finally:
                self._drop()
            # A connection that never lasts is often a second bridge with the same client id: each ends the other's.
            delay = _FIRST_DELAY if loop.time() - began > _LONGEST_DELAY else min(delay * 2, _LONGEST_DELAY)
            await asyncio.sleep(delay)
            await self._has_room()

    def publish(self, topic: str, payload: bytes) -> bool:
        """Publish with QoS 1, once; False when there is no connection. Nobody tells whether the broker got it."""
        if self._client is None or not self.connected.is_set():
            return False
        return self._client.publish(topic, payload, 1).rc == MQTTErrorCode.MQTT_ERR_SUCCESS

    async def unsubscribe(self, *filters: str) -> None:
        """End subscriptions of this session, if it has them; what is queued for it still comes.

        Raises:
            MqttUnavailableError: the connection was lost, or is not there; they may or may not have ended.
        """
        client = self._client
        if client is None or not self.connected.is_set():
            raise MqttUnavailableError(f"not connected to the MQTT broker of {self._endpoint.site}")
        self._unsubscribed = asyncio.get_running_loop().create_future()
        client.unsubscribe(list(filters))
        try:
            await asyncio.wait_for(self._unsubscribed, CONNECT_TIMEOUT)
        except TimeoutError:
            raise MqttUnavailableError(f"the MQTT broker of {self._endpoint.site} does not answer") from None

    def pause(self) -> None:
        """Take no more messages; those taken can still be acknowledged. The broker sends the others again."""
        self._discarding = True

    async def disconnect(self) -> None:
        """Make sure that the broker has every acknowledgement, then say goodbye; the session stays at the broker."""
        self._closing = True
        self._room.set()
        self.pause()
        client, loop = self._client, asyncio.get_running_loop()
        if client is None or client.socket() is None:
            return
        # Closing a socket with unread messages in it resets the connection, and acknowledgements still on their way
        # would be lost. A broker answers in order: once it confirms a subscription, it has read them all.
        self._ready = loop.create_future()
        client.subscribe(self.subscriptions[-1:])
        if self._socket is not None and not self._socket.reading:
            self._socket.start_reading()
        with contextlib.suppress(TimeoutError, MqttUnavailableError, MqttRefusedError):
            await asyncio.wait_for(self._ready, CONNECT_TIMEOUT)
        if client.socket() is not None:
            client.disconnect()
            client.loop_write()
        self._drop()

    # -- one connection

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        client = new_client(self._endpoint, self._client_id)
        self._order.new_connection()
        self._lost = loop.create_future()
        self._ready = loop.create_future()
        client.on_connect = self._connack
        client.on_subscribe = self._suback
        client.on_unsubscribe = self._unsuback
        client.on_disconnect = self._disconnected
        client.on_message = self._message
        await asyncio.to_thread(open_socket, client, self._endpoint)
        self._client = client
        self._socket = LoopSocket(client, self._readable)
        self._socket.start_reading()
        if client.want_write():
            client.loop_write()
        try:
            present = await asyncio.wait_for(self._ready, CONNECT_TIMEOUT)
        except TimeoutError:
            raise MqttUnavailableError(
                f"the MQTT broker of {self._endpoint.site} at {self._endpoint.host}:{self._endpoint.port} "
                "took the connection but did not answer"
            ) from None
        self.connections += 1
        if not present and self._had_session:
            self.sessions_lost += 1
            log.error(
                "%s: the MQTT broker has forgotten the bridge's session; messages it had queued may be lost",
                self._endpoint.site,
            )
        self._had_session = True
        self.connected.set()
        self._tell()

    async def _stay(self) -> str:
        """Keep the connection alive until it is lost; returns why."""
        lost = self._lost
        client = self._client
        if lost is None or client is None:
            return "never connected"
        while True:
            done, _ = await asyncio.wait((lost,), timeout=1.0)
            if done:
                return lost.result()
            client.loop_misc()

    async def _has_room(self) -> None:
        """Wait until no more than a window's messages of earlier connections are still being stored."""
        while self._order.left_behind > self.window and not self._closing:
            self._room.clear()
            await self._room.wait()

    def _drop(self) -> None:
        """Close the socket, whatever state it is in."""
        socket, self._client, self._socket = self._socket, None, None
        self._order.new_connection()
        if socket is not None:
            socket.close()
        self._went()

    def _went(self) -> None:
        """The connection is not there any more."""
        if self._unsubscribed is not None and not self._unsubscribed.done():
            self._unsubscribed.set_exception(
                MqttUnavailableError(f"the connection to the MQTT broker of {self._endpoint.site} was lost")
            )
        if self.connected.is_set():
            self.connected.clear()
            self._tell()

    def _tell(self) -> None:
        if self.on_change is not None:
            self.on_change()

    # -- paho's callbacks, all on the loop's thread

    def _connack(
        self, client: paho.Client, _data: Any, flags: paho.ConnectFlags, reason: ReasonCode, _props: Properties | None
    ) -> None:
        ready = self._ready
        if ready is None or ready.done():
            return
        if reason.is_failure:
            ready.set_exception(refusal(self._endpoint, reason))
            return
        self._present = flags.session_present
        client.subscribe(self.subscriptions)

    def _suback(
        self, _client: paho.Client, _data: Any, _mid: int, reasons: list[ReasonCode], _props: Properties | None
    ) -> None:
        ready = self._ready
        if ready is None or ready.done():
            return
        refused = [topic for (topic, _), reason in zip(self.subscriptions, reasons, strict=False) if reason.is_failure]
        if refused:
            ready.set_exception(refused_subscriptions(self._endpoint, refused))
        else:
            ready.set_result(self._present)

    def _unsuback(
        self, _client: paho.Client, _data: Any, _mid: int, _reasons: list[ReasonCode], _props: Properties | None
    ) -> None:
        if self._unsubscribed is not None and not self._unsubscribed.done():
            self._unsubscribed.set_result(None)

    def _disconnected(
        self,
        _client: paho.Client,
        _data: Any,
        _flags: paho.DisconnectFlags,
        reason: ReasonCode,
        _props: Properties | None,
    ) -> None:
        self._went()
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(str(reason))
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(
                MqttUnavailableError(f"the MQTT broker of {self._endpoint.site} closed the connection: {reason}")
            )

    def _message(self, _client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        self._got += 1
        if self._discarding:
            return
        try:
            topic = message.topic
        except UnicodeDecodeError:  # the broker should refuse these itself
            topic = "(a topic that is not UTF-8)"
        ticket = self._order.received(message.mid) if message.qos else None
        self.on_message(Delivery(topic, bytes(message.payload), message.dup, ticket))

    def _readable(self) -> None:
        client, socket = self._client, self._socket
        if client is None or socket is None:
            return
        for _ in range(_READS_PER_WAKE):
            before = self._got
            if client.loop_read() != MQTTErrorCode.MQTT_ERR_SUCCESS:
                return
            if len(self._order) >= self.window and not self._discarding:
                socket.stop_reading()
                return
            if self._got == before:
                return
        # A TLS socket may hold decrypted bytes that no poll reports.
        asyncio.get_running_loop().call_soon(self._readable)
