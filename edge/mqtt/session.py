"""The bridge's session with the site's MQTT broker: MQTT 5 with paho, run by the asyncio loop, manual acknowledgement.

The session is persistent under a fixed client id, with QoS 1: the broker keeps unacknowledged messages and sends them
again after a reconnect, so a lost connection or a killed bridge loses no message. QoS 2 is not used, because paho sends
PUBREC before the message is stored. Receive Maximum, in CONNECT, bounds the number of unacknowledged messages; the
broker queues the rest. Mosquitto 2.0.11 respects it only until the first PUBACK, and each PUBACK lets it send that many
more. So the session stops reading the socket at ``EXCESS`` times as many, and TCP holds the broker back.

Everything but the TCP connect runs on the event loop's thread, without locks or queues between threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec
import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MessageType, MQTTErrorCode
from paho.mqtt.exception import MalformedPacket
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from edge.errors import MqttLoginRefusedError, MqttRefusedError, MqttUnavailableError, MqttUntrustedError
from edge.mqtt.acks import AckOrder, PendingAck
from fairlead.certs.trust import trouble
from fairlead.errors import FairleadError
from fairlead.kafka.endpoint import MqttEndpoint, MqttWay, current, with_each_password
from fairlead.mqtt import identify

log = logging.getLogger(__name__)

T = TypeVar("T")

WINDOW = 1_000
"""Most unacknowledged messages. The broker's own limit (Mosquitto: ``max_inflight_messages``) may be lower."""

EXCESS = 5
KEEPALIVE = 60
CONNECT_TIMEOUT = 5.0
REFUSED_SECONDS = 30.0
_NEVER = 0xFFFFFFFF  # Session Expiry Interval; Mosquitto's ``persistent_client_expiration`` may still end the session
_PACKETS_PER_WAKE = 128
_FIRST_DELAY, _LONGEST_DELAY = 0.2, 5.0
_PASSING = ("Server unavailable", "Server busy", "Connection rate exceeded")  # CONNACK reasons worth a retry

_RECEIVE: Final = 65536  # bytes at a time
_LONGEST_SIZE: Final = 4  # bytes that encode a packet's length
_U16: Final = struct.Struct(">H")
_PUBACK: Final = b"\x40\x02"
_DUP, _QOS2 = 0x08, 0x04
_PUBLISH: Final = int(MessageType.PUBLISH)
_SUCCESS: Final = MQTTErrorCode.MQTT_ERR_SUCCESS


class Delivery(msgspec.Struct, frozen=True):
    """One message from the broker. ``ack`` is None for QoS 0, which needs no acknowledgement."""

    topic: str
    payload: bytes
    redelivered: bool
    ack: PendingAck | None


def _options(qos: int) -> SubscribeOptions:
    """Return the options of a subscription. With QoS 1 the session queues each message for the bridge, so it does not
    ask for retained ones: the broker would send them at every connect, and they may be older than what is stored.
    """
    handling = SubscribeOptions.RETAIN_DO_NOT_SEND if qos else SubscribeOptions.RETAIN_SEND_ON_SUBSCRIBE
    return SubscribeOptions(qos=qos, retainHandling=handling)


class MqttSession:
    """One client of one broker, which reconnects by itself.

    Args:
        endpoint: The broker's address and login. If callable, it is called at every connect, because passwords change.
        on_message: Called on the event loop for every message, in the order of receipt; must not block. An exception
            ends ``run`` with that error, because the same message would raise it again after a reconnect.
        subscriptions: ``(topic filter, QoS)``, subscribed at every connect. Retained messages come with QoS 0 only.
        window: Receive Maximum. After a reconnect the broker sends messages again that are still being stored, so at
            most twice as many are in memory.
    """

    # Of the current connection; ``_connect`` creates them.
    _connack: asyncio.Future[bool]
    _suback: asyncio.Future[None]
    _lost: asyncio.Future[str]

    def __init__(
        self,
        endpoint: MqttWay,
        *,
        client_id: str,
        subscriptions: Sequence[tuple[str, int]],
        on_message: Callable[[Delivery], None],
        window: int = WINDOW,
    ) -> None:
        self._ask = endpoint
        self._endpoint = current(endpoint)
        self._refusals = 0  # refused logins in a row
        self._refused_since = 0.0
        self._client_id = client_id
        self._subscriptions = [(topic, _options(qos)) for topic, qos in subscriptions]
        self._deliver = on_message
        self._window = window
        self._order = AckOrder(self)
        self._closing = False
        self._discarding = False
        self._had_session = False
        self._room = asyncio.Event()
        self.connected = asyncio.Event()
        self.acknowledged = 0
        self.connections = 0
        self.sessions_lost = 0
        self._client: BulkClient | None = None
        self._reading = False

    @property
    def outstanding(self) -> int:
        """How many messages were received on this connection and are not yet acknowledged."""
        return len(self._order)

    def finish(self, ack: PendingAck) -> None:
        """Note that all parts of a message are safe in Kafka, and send the PUBACKs that are due now, in order."""
        client = self._client
        for mid in self._order.finish(ack):
            if client is not None:
                client.ack(mid, 1)
                self.acknowledged += 1
        if client is not None and not self._reading and self.outstanding <= self._window:
            self._start_reading(client)
        if ack.epoch != self._order.epoch and self._order.left_behind <= self._window:
            self._room.set()

    async def run(self) -> None:
        """Stay connected until cancelled, or until ``disconnect``.

        Raises:
            MqttRefusedError: the broker refuses this user, password or client id, and a retry would not help. A login
                that was accepted before is retried for ``REFUSED_SECONDS`` if the endpoint is callable.
            Exception: an error that ``on_message`` raised.
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
                if self._closing:
                    return
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

    def pause(self) -> None:
        """Discard new messages, which the broker sends again later. Earlier ones can still be acknowledged."""
        self._discarding = True

    async def disconnect(self) -> None:
        """Disconnect once the broker has every acknowledgement. The session stays at the broker.

        To close a socket with unread messages resets the connection, which could lose PUBACKs in flight. So this
        subscribes once more first: a broker answers in order, and its SUBACK shows that it has read all PUBACKs.
        """
        self._closing = True
        self._room.set()
        self.pause()
        client = self._client
        if client is not None and client.is_connected():
            with contextlib.suppress(MqttUnavailableError, MqttRefusedError):
                await self._subscribe(client, self._subscriptions[-1:])
            client.disconnect()
            client.loop_write()
            self._drop()
        if client is not None and not self._lost.done():
            self._lost.set_result("closed here")

    # -- one connection

    async def _connect(self) -> None:
        """Connect, resume the session and subscribe."""
        loop = asyncio.get_running_loop()
        self._order.new_connection()
        self._endpoint = current(self._ask)
        ways = with_each_password(self._endpoint)
        way = ways[self._refusals % len(ways)]
        self._connack, self._suback, self._lost = loop.create_future(), loop.create_future(), loop.create_future()
        client = self._client = new_client(way, self._client_id)
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_disconnect = self._on_disconnect
        client.on_message = self._on_message
        await asyncio.to_thread(open_connection, client, way, window=self._window)
        if client.socket() is not None:
            client.on_socket_close = _leave_loop
            client.on_socket_register_write = _write_when_ready
            client.on_socket_unregister_write = _write_no_more
            self._start_reading(client)
            client.loop_write()
        present = await self._answer(self._connack)
        await self._subscribe(client, self._subscriptions)
        self.connections += 1
        self._refusals = 0
        if not present and self._had_session:
            self.sessions_lost += 1
            log.error(
                "%s: the MQTT broker has lost the bridge's session; queued messages may be lost",
                self._endpoint.site,
            )
        self._had_session = True
        self.connected.set()

    async def _stay(self) -> str:
        """Keep the connection alive until it is lost, and return why. Raises any error that ``on_message`` raised."""
        while not self._lost.done():
            await asyncio.wait((self._lost,), timeout=1.0)
            if self._client is not None:
                self._client.loop_misc()
        return self._lost.result()

    async def _subscribe(self, client: BulkClient, filters: list[tuple[str, SubscribeOptions]]) -> None:
        """Subscribe, and wait for the SUBACK; the broker has then read everything that was sent before.

        Raises:
            MqttUnavailableError, MqttRefusedError
        """
        self._suback = asyncio.get_running_loop().create_future()
        client.subscribe(filters)
        self._start_reading(client)
        await self._answer(self._suback)

    async def _answer(self, answer: asyncio.Future[T]) -> T:
        """Wait for an answer of the broker.

        Raises:
            MqttUnavailableError: the broker closes the connection, or does not answer in ``CONNECT_TIMEOUT`` seconds.
            MqttRefusedError: the broker refuses.
            Exception: an error that ``on_message`` raised meanwhile.
        """
        await asyncio.wait((answer, self._lost), timeout=CONNECT_TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        if self._lost.done():
            raise MqttUnavailableError(
                f"the MQTT broker of {self._endpoint.site} closed the connection: {self._lost.result()}"
            )
        raise MqttUnavailableError(
            f"the MQTT broker of {self._endpoint.site} at {self._endpoint.host}:{self._endpoint.port} "
            "accepted the connection but did not answer"
        )

    def _may_pass(self) -> bool:
        """Return whether to retry a login that was just refused.

        Every known password is tried once. A login that worked before is retried for ``REFUSED_SECONDS``, because its
        password may have been changed a moment ago.
        """
        now = asyncio.get_running_loop().time()
        self._refused_since = self._refused_since if self._refusals else now
        self._refusals += 1
        if self._refusals < len(with_each_password(current(self._ask))):
            return True
        return callable(self._ask) and self._had_session and now - self._refused_since < REFUSED_SECONDS

    async def _has_room(self) -> None:
        """Wait until at most ``window`` messages of earlier connections are still being stored."""
        while self._order.left_behind > self._window and not self._closing:
            self._room.clear()
            await self._room.wait()

    def _drop(self) -> None:
        """Close the connection, whatever state it is in."""
        client, self._client = self._client, None
        self._order.new_connection()
        self.connected.clear()
        if client is None:
            return
        client.on_disconnect = client.on_message = None
        # The client may outlive the loop.
        client.on_socket_close = client.on_socket_register_write = client.on_socket_unregister_write = None
        if (sock := client.socket()) is not None:
            _leave_loop(client, None, sock)
            with contextlib.suppress(OSError):
                sock.close()

    # -- paho's callbacks, on the loop's thread

    def _start_reading(self, client: BulkClient) -> None:
        loop = asyncio.get_running_loop()
        if (sock := client.socket()) is not None:
            self._reading = True
            loop.add_reader(sock, self._read, client)
            loop.call_soon(self._read, client)  # no poll reports bytes that the client has received already

    def _stop_reading(self, client: BulkClient) -> None:
        self._reading = False
        if (sock := client.socket()) is not None:
            asyncio.get_running_loop().remove_reader(sock)

    def _read(self, client: BulkClient) -> None:
        """Read packets, at most ``_PACKETS_PER_WAKE``; leave the rest to a later turn of the event loop."""
        # The SUBACK follows messages that the broker sent before, so these must be read first.
        limited = self._suback.done() and not self._discarding
        order, most = self._order, EXCESS * self._window
        for _ in range(_PACKETS_PER_WAKE):
            if limited and len(order) >= most:
                self._stop_reading(client)
                return
            try:
                if client is not self._client or client.loop_read() != _SUCCESS:
                    return
            except Exception as error:  # a bug in paho; a malformed packet only ends the connection
                self._fail(error)
                return
            if client.drained:
                return
        asyncio.get_running_loop().call_soon(self._read, client)

    def _on_message(self, _client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        if self._discarding:
            return
        try:
            topic = message.topic
        except UnicodeDecodeError:  # the broker should refuse these itself
            topic = "(a topic that is not UTF-8)"
        ack = self._order.received(message.mid) if message.qos else None
        try:
            self._deliver(Delivery(topic, bytes(message.payload), message.dup, ack))
        except Exception as error:
            error.add_note(f"while processing a message of {len(message.payload):,} bytes on {topic!r}")
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """End ``run`` with an error."""
        self.pause()
        if not self._lost.done():
            self._lost.set_exception(error)
            self._lost.exception()  # marks it as retrieved: maybe no task waits for it

    def _on_connect(
        self, _client: paho.Client, _data: Any, flags: paho.ConnectFlags, reason: ReasonCode, _props: Properties | None
    ) -> None:
        if self._connack.done():
            return
        if reason.is_failure:
            self._connack.set_exception(refusal(self._endpoint, reason))
        else:
            self._connack.set_result(flags.session_present)

    def _on_subscribe(
        self, _client: paho.Client, _data: Any, _mid: int, reasons: list[ReasonCode], _props: Properties | None
    ) -> None:
        if self._suback.done():
            return
        refused = [topic for (topic, _), reason in zip(self._subscriptions, reasons, strict=False) if reason.is_failure]
        if refused:
            self._suback.set_exception(
                MqttRefusedError(
                    f"the MQTT broker of {self._endpoint.site} refused the subscription to {', '.join(refused)}",
                    hint="its access control must let the bridge read fairlead/v1/# and $SYS/broker/#",
                )
            )
        else:
            self._suback.set_result(None)

    def _on_disconnect(
        self, _client: paho.Client, _data: Any, _flags: paho.DisconnectFlags, reason: ReasonCode, _props: Any
    ) -> None:
        self.connected.clear()
        if not self._lost.done():
            self._lost.set_result(str(reason))


def new_client(endpoint: MqttEndpoint, client_id: str) -> BulkClient:
    """Return an MQTT 5 client with manual acknowledgement that does not reconnect by itself.

    Raises:
        TrustError: the endpoint's file of certificate authorities cannot be used.
    """
    client = BulkClient(
        CallbackAPIVersion.VERSION2,
        client_id=client_id,
        protocol=paho.MQTTv5,
        reconnect_on_failure=False,
        manual_ack=True,
    )
    client.connect_timeout = CONNECT_TIMEOUT
    identify(client, endpoint)
    return client


def open_connection(client: paho.Client, endpoint: MqttEndpoint, *, window: int = WINDOW, clean: bool = False) -> None:
    """Connect by TCP and TLS, and send CONNECT. Blocks; call it in a thread.

    Args:
        window: Receive Maximum.
        clean: End the session that the broker has, and begin one that ends with the connection.

    Raises:
        MqttUnavailableError: the broker does not answer.
        MqttUntrustedError: the broker's certificate is not trusted.
    """
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    properties.SessionExpiryInterval = 0 if clean else _NEVER
    properties.ReceiveMaximum = window
    try:
        client.connect(endpoint.host, endpoint.port, KEEPALIVE, clean_start=clean, properties=properties)
    except ssl.SSLCertVerificationError as error:
        found = trouble(error, endpoint.host, endpoint.tls_ca)
        raise MqttUntrustedError(
            f"no TLS with the MQTT broker of {endpoint.site} at {endpoint.host}:{endpoint.port}: {found.why}",
            hint=found.hint,
            site=endpoint.site,
        ) from error
    except (OSError, ValueError) as error:
        if endpoint.tls and isinstance(error, ssl.SSLError | ConnectionResetError):
            raise MqttUnavailableError(
                f"no TLS with the MQTT broker of {endpoint.site} at {endpoint.host}:{endpoint.port}: {error}",
                hint="name the port of a TLS listener; only where readings and passwords may go in clear text: "
                "security: PLAINTEXT in the site's mqtt",
                site=endpoint.site,
            ) from error
        raise MqttUnavailableError(
            f"the MQTT broker of {endpoint.site} at {endpoint.host}:{endpoint.port} does not answer: {error}",
            hint="check that the site is up: fairlead status",
        ) from error


def refusal(endpoint: MqttEndpoint, reason: ReasonCode) -> FairleadError:
    """Return the error for a CONNACK with a failure code."""
    if str(reason) in _PASSING:
        return MqttUnavailableError(f"the MQTT broker of {endpoint.site} is not ready: {reason}")
    if str(reason) == "Unsupported protocol version":
        return MqttRefusedError(
            f"the MQTT broker of {endpoint.site} does not speak MQTT 5",
            hint="the bridge needs MQTT 5: Mosquitto from 1.6 on, or another broker that has it",
            site=endpoint.site,
        )
    return MqttLoginRefusedError(
        f"the MQTT broker of {endpoint.site} refused user {endpoint.user!r}: {reason}",
        hint="check the password (FAIRLEAD_SECRET_<SITE>_<USER>, or the one that 'fairlead up' made)",
        site=endpoint.site,
        user=endpoint.user,
    )


def _write_when_ready(client: paho.Client, _data: Any, sock: Any) -> None:
    asyncio.get_running_loop().add_writer(sock, client.loop_write)


def _write_no_more(_client: paho.Client, _data: Any, sock: Any) -> None:
    asyncio.get_running_loop().remove_writer(sock)


def _leave_loop(_client: paho.Client, _data: Any, sock: Any) -> None:
    loop = asyncio.get_running_loop()
    loop.remove_reader(sock)
    loop.remove_writer(sock)


# -- paho's client, with a faster reader and grouped PUBACKs


class Published:
    """A received message: the part of ``paho.MQTTMessage`` that the session uses."""

    __slots__ = ("_topic", "dup", "mid", "payload", "qos")

    def __init__(self, topic: bytes, mid: int, payload: bytes, qos: int, dup: bool) -> None:
        self._topic = topic
        self.mid = mid
        self.payload = payload
        self.qos = qos
        self.dup = dup

    @property
    def topic(self) -> str:
        """The topic as text. Raises UnicodeDecodeError if it is not UTF-8, as paho does."""
        return self._topic.decode()


class BulkClient(paho.Client):
    """paho's MQTT 5 client for an event loop that reads many packets with one ``recv`` and sends PUBACKs in groups.

    paho reads a packet with four system calls, builds tables of all properties for each message, and writes each PUBACK
    separately: about 55 µs of CPU per message, of 135 µs that a reading takes in all. This class needs 2 µs. paho still
    does CONNECT, SUBSCRIBE and keep-alive. The class uses names of paho 2.2 that are not public, so the version is
    fixed, and ``tests/unit/edge/mqtt/test_bulkclient.py`` fails when they change.

    ``loop_read`` handles one packet. Further packets of the same ``recv`` stay in the client's buffer, where no poll
    reports them: call ``loop_read`` until ``drained`` is set.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.drained = True  # the last ``loop_read`` found no whole packet, in the buffer or the socket
        self._arrived = b""
        self._at = 0
        self._acks = bytearray()

    def loop_read(self, max_packets: int = 1) -> MQTTErrorCode:
        while True:
            if self._sock is None:
                return MQTTErrorCode.MQTT_ERR_NO_CONN
            try:
                found = self._take_packet()
            except MalformedPacket:
                found = MQTTErrorCode.MQTT_ERR_PROTOCOL
            self.drained = found is None
            if found is not None:
                return self._loop_rc_handle(found) if found else found
            try:
                data = self._sock_recv(_RECEIVE)
            except BlockingIOError:
                return MQTTErrorCode.MQTT_ERR_SUCCESS
            except OSError:
                return self._loop_rc_handle(MQTTErrorCode.MQTT_ERR_CONN_LOST)
            if not data:
                return self._loop_rc_handle(MQTTErrorCode.MQTT_ERR_CONN_LOST)
            self._last_bytes_received = time.monotonic()
            self._arrived = self._arrived[self._at :] + data
            self._at = 0

    def _take_packet(self) -> MQTTErrorCode | None:
        """Handle the next packet; return None while it has not arrived completely.

        Raises:
            MalformedPacket: the bytes are no MQTT packet.
            Exception: an error that ``on_message`` raised.
        """
        data, start = self._arrived, self._at
        if len(data) - start < 2:
            return None
        size, at = data[start + 1], start + 2
        if size > 0x7F:
            size &= 0x7F
            for shift in range(7, 7 * _LONGEST_SIZE, 7):
                if at >= len(data):
                    return None
                size |= (data[at] & 0x7F) << shift
                at += 1
                if data[at - 1] < 0x80:
                    break
            else:
                raise MalformedPacket("the length of a packet has more than four bytes")
        end = at + size
        if end > len(data):
            return None
        self._at = end
        command = data[start]
        if command & 0xF0 == _PUBLISH and not command & _QOS2:
            self._publish(command, data, at, end)
            return _SUCCESS
        self._in_packet = {
            "command": command,
            "have_remaining": 1,
            "remaining_count": [],
            "remaining_mult": 1,
            "remaining_length": size,
            "packet": bytearray(data[at:end]),
            "to_process": 0,
            "pos": 0,
        }
        return self._packet_handle()

    def _publish(self, command: int, data: bytes, at: int, end: int) -> None:
        if at + 2 > end:
            raise MalformedPacket("a PUBLISH has no topic")
        topic_end = body = at + 2 + _U16.unpack_from(data, at)[0]
        qos = (command >> 1) & 1
        if qos:
            body += 2
        if body >= end:
            raise MalformedPacket("a PUBLISH ends before its properties")
        body = self._skip_properties(data, body, end)
        mid = _U16.unpack_from(data, topic_end)[0] if qos else 0
        callback = self.on_message
        if callback is not None:
            message: Any = Published(data[at + 2 : topic_end], mid, data[body:end], qos, bool(command & _DUP))
            callback(self, self._userdata, message)

    @staticmethod
    def _skip_properties(data: bytes, at: int, end: int) -> int:
        """Return where the payload begins. The bridge uses no property of a message."""
        if at < end and data[at] == 0:  # most messages have none
            return at + 1
        size = shift = 0
        while True:
            if at >= end or shift > 7 * (_LONGEST_SIZE - 1):
                raise MalformedPacket("the properties of a PUBLISH have no length")
            size |= (data[at] & 0x7F) << shift
            shift += 7
            at += 1
            if data[at - 1] < 0x80:
                break
        if at + size > end:
            raise MalformedPacket("a PUBLISH is shorter than its properties")
        return at + size

    def ack(self, mid: int, qos: int) -> MQTTErrorCode:
        """Acknowledge a message of QoS 1. PUBACKs of the same turn of the event loop are sent together."""
        if not self._acks:
            asyncio.get_running_loop().call_soon(self._send_acks)
        self._acks += _PUBACK
        self._acks += _U16.pack(mid)
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _send_acks(self) -> None:
        if self._acks:
            acks, self._acks = self._acks, bytearray()
            super()._packet_queue(MessageType.PUBACK, bytes(acks), 0, 1)

    def _packet_queue(self, *args: Any, **kwargs: Any) -> MQTTErrorCode:
        self._send_acks()  # send them before any packet that is queued later
        return super()._packet_queue(*args, **kwargs)
