"""Publish to one site's MQTT broker as a device does, and keep each message until the broker has acknowledged it.

``DeviceConnection`` is one MQTT connection (paho, QoS 1, publishing only); paho's thread reports to the event loop.
``MqttSender`` opens connections one after the other. Messages wait in order from ``send`` until their PUBACK. When a
connection ends, a new client connects and sends everything unacknowledged again, in order and before anything newer.
So a broker may get a message twice, but never a newer message of a box before an older one. (paho could resend by
itself, but a message published between its TCP connection and its CONNACK would overtake older ones.)

A broker that is killed forgets messages that it acknowledged and had not yet saved. So if the site's profile is
``durable``, a device keeps a message for ``MqttEndpoint.keep_seconds`` after its PUBACK. When its connection ends, it
sends the kept messages again first. The bridge drops the ones that it already has.

Limits: ``WINDOW`` messages in flight to the broker, ``BACKLOG`` unacknowledged in all; ``room`` waits while the
backlog is full.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from paho.mqtt import client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from paho.mqtt.reasoncodes import ReasonCode

from fairlead.errors import RefusedError
from fairlead.kafka.endpoint import MqttEndpoint
from fairlead.local.passwords import secret_variable
from fairlead.mqtt import identify, untrusted

REFUSALS = frozenset({"Not authorized", "Bad user name or password"})
_TIMEOUT = 10.0  # seconds for the TCP connection, and again for the CONNACK
_DISCONNECT_SECONDS = 2.0  # seconds for a broker to handle a DISCONNECT
_KEEPALIVE = 20  # seconds; a dead connection is detected after 1.5 times as long


class DeviceConnection:
    """One connection, opened once. Leaving ``async with`` closes it and ends its thread.

    Args:
        on_acknowledged: Called in the event loop for each PUBACK, in the order of ``publish``. A broker acknowledges
            in the order in which it got the messages (MQTT 3.1.1, section 4.6); one that does not is disconnected.
    """

    def __init__(self, endpoint: MqttEndpoint, client_id: str, on_acknowledged: Callable[[], None]) -> None:
        self._endpoint = endpoint
        self._on_acknowledged = on_acknowledged
        self._loop = asyncio.get_running_loop()
        self._expected: deque[int] = deque()  # message ids under way
        self._acknowledged_ids: deque[int] = deque()  # acknowledged ids that the event loop has not seen yet
        self._answer: asyncio.Future[str | None] = self._loop.create_future()
        self._end: asyncio.Future[str] = self._loop.create_future()
        self._connecting: asyncio.Future[MQTTErrorCode] | None = None
        self._started = False
        self._woken = False
        self._client = self._new_client(client_id)

    def _new_client(self, client_id: str) -> mqtt.Client:
        endpoint = self._endpoint
        client = mqtt.Client(
            CallbackAPIVersion.VERSION2,
            client_id=client_id,
            protocol=mqtt.MQTTv311,
            clean_session=True,
            reconnect_on_failure=False,
        )
        client.connect_timeout = _TIMEOUT
        client.max_inflight_messages_set(0)  # no limit here: ``MqttSender`` limits messages in flight to ``WINDOW``
        identify(client, endpoint)
        client.on_connect = self._connected
        client.on_disconnect = self._disconnected
        client.on_publish = self._published
        return client

    async def __aenter__(self) -> DeviceConnection:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Disconnect, close the socket if the broker does not react, and wait for the thread to end."""
        if self._connecting is not None:
            await asyncio.wait([self._connecting])
        self._client.disconnect()
        if not self._started:
            return
        try:
            async with asyncio.timeout(_DISCONNECT_SECONDS):
                await asyncio.shield(self._end)
        except TimeoutError:
            sock = self._client.socket()
            if isinstance(sock, socket.socket):  # includes TLS sockets
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
        await asyncio.to_thread(self._client.loop_stop)

    async def open(self) -> str | None:
        """Connect and log in. Return None on success, else the problem in a few words.

        Raises:
            UntrustedError: the broker's certificate is not trusted; trying again cannot help.
        """
        try:
            self._connecting = self._loop.run_in_executor(
                None, self._client.connect, self._endpoint.host, self._endpoint.port, _KEEPALIVE
            )
            await asyncio.shield(self._connecting)
        except ssl.SSLCertVerificationError as error:
            raise untrusted(self._endpoint, error) from error
        except (OSError, ValueError) as error:
            return str(error) or type(error).__name__
        self._client.loop_start()
        self._started = True
        try:
            async with asyncio.timeout(_TIMEOUT):
                return await self._answer
        except TimeoutError:
            return f"no answer to CONNECT for {_TIMEOUT:.0f} s"

    async def ended(self) -> str:
        """Wait until the connection has ended; return the reason."""
        return await asyncio.shield(self._end)

    def publish(self, topic: str, payload: bytes) -> None:
        """Send one message with QoS 1. ``ended`` reports a broken connection."""
        self._expected.append(self._client.publish(topic, payload, qos=1).mid)

    # -- paho's thread

    def _in_loop(self, call: Callable[..., None], *args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: no one waits for the result
            self._loop.call_soon_threadsafe(call, *args)

    def _connected(
        self, _client: mqtt.Client, _data: Any, _flags: mqtt.ConnectFlags, reason: ReasonCode, _properties: Any
    ) -> None:
        self._in_loop(_settle, self._answer, str(reason) if reason.is_failure else None)

    def _disconnected(
        self, _client: mqtt.Client, _data: Any, _flags: mqtt.DisconnectFlags, reason: ReasonCode, _properties: Any
    ) -> None:
        self._in_loop(_settle, self._answer, f"connection closed: {reason}")
        self._in_loop(_settle, self._end, f"connection lost: {reason}")

    def _published(self, _client: mqtt.Client, _data: Any, mid: int, _reason: ReasonCode, _properties: Any) -> None:
        self._acknowledged_ids.append(mid)
        if not self._woken:  # one wake-up of the event loop handles many acknowledgements
            self._woken = True
            self._in_loop(self._process_acknowledgements)

    # -- the event loop

    def _process_acknowledgements(self) -> None:
        self._woken = False  # cleared before reading, so that later acknowledgements wake the loop again
        while self._acknowledged_ids and not self._end.done():
            if self._acknowledged_ids.popleft() != self._expected.popleft():
                _settle(self._end, "the broker acknowledged out of order")
            else:
                self._on_acknowledged()


def _settle(future: asyncio.Future[Any], value: str | None) -> None:
    if not future.done():
        future.set_result(value)


WINDOW = 500
BACKLOG = 5_000
FIRST_DELAY, LAST_DELAY = 0.1, 5.0  # seconds between two attempts to connect

log = logging.getLogger(__name__)


class _Message(NamedTuple):
    topic: str
    payload: bytes


class MqttSender:
    """Publishes to one broker. Use it inside ``async with``; all calls from the same event loop.

    Args:
        client_id: MQTT client id; no two connections to a broker at the same time may share one.
        on_trouble: Called with the cause of an outage whenever it changes, and with None when the outage is over.
        clock: Returns seconds, to measure how long messages are kept.
    """

    def __init__(
        self,
        endpoint: MqttEndpoint,
        client_id: str,
        *,
        on_trouble: Callable[[str | None], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._endpoint = endpoint
        self._client_id = client_id
        self._on_trouble = on_trouble or (lambda _: None)
        self._clock = clock
        self._kept: deque[_Message] = deque()  # unacknowledged and unsent, oldest first
        self._sent = 0  # how many of them are under way on this connection
        self._unsaved: deque[tuple[float, _Message]] = deque()  # time of the PUBACK, and the message that is kept
        self._connection: DeviceConnection | None = None
        self._changed = asyncio.Event()
        self._failure: RefusedError | None = None
        self._task: asyncio.Task[None] | None = None
        self.acknowledged = 0
        self.sent_again = 0  # messages that were queued again after their acknowledgement
        self.trouble: str | None = None

    @property
    def waiting(self) -> int:
        """How many messages are not acknowledged yet."""
        return len(self._kept)

    async def __aenter__(self) -> MqttSender:
        self._task = asyncio.create_task(self._run(), name=f"mqtt {self._endpoint.site}")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Disconnect, and forget what is not sent or not saved. A second call does nothing."""
        if self._task:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    @property
    def full(self) -> bool:
        """Whether the backlog is full."""
        return len(self._kept) >= BACKLOG

    async def room(self) -> None:
        """Wait while the backlog is full; then ``send`` may be called once.

        Raises:
            RefusedError: the broker refuses this user or password.
        """
        while self.full:
            await self._wait()
        self._raise_failure()

    def send(self, topic: str, payload: bytes) -> None:
        """Queue a message. The sender keeps it until ``keep_seconds`` after its acknowledgement."""
        self._kept.append(_Message(topic, payload))
        self._publish_more()

    async def flush(self) -> None:
        """Wait until every message is acknowledged, without a time limit.

        Raises:
            RefusedError: as ``room``.
        """
        while self._kept:
            await self._wait()
        self._raise_failure()

    async def _wait(self) -> None:
        self._raise_failure()
        self._changed.clear()
        await self._changed.wait()

    def _raise_failure(self) -> None:
        if self._failure:
            raise self._failure

    def _publish_more(self) -> None:
        connection = self._connection
        while connection is not None and self._sent < min(WINDOW, len(self._kept)):
            message = self._kept[self._sent]
            self._sent += 1
            connection.publish(message.topic, message.payload)

    # -- the connection

    async def _run(self) -> None:
        try:
            while True:
                await self._one_connection()
        except RefusedError as error:
            self._failure = error
            self._changed.set()

    async def _one_connection(self) -> None:
        """Connect, retrying without limit, then wait until the connection ends."""
        delay = FIRST_DELAY
        while True:
            async with DeviceConnection(self._endpoint, self._client_id, self._acknowledge) as connection:
                problem = await connection.open()
                if problem is None:
                    self._report(None)
                    await self._use(connection)
                    return
            if problem in REFUSALS:
                raise self._refused(problem)
            self._report(problem)
            await asyncio.sleep(delay)
            delay = min(2 * delay, LAST_DELAY)

    async def _use(self, connection: DeviceConnection) -> None:
        self._connection, self._sent = connection, 0
        try:
            self._publish_more()
            self._report(await connection.ended())
        finally:
            self._connection, self._sent = None, 0
            self._requeue_unsaved()

    def _acknowledge(self) -> None:
        """Handle the PUBACK of the oldest message in flight."""
        message = self._kept.popleft()
        self._sent -= 1
        self.acknowledged += 1
        if self._endpoint.keep_seconds:
            self._unsaved.append((self._clock(), message))
            self._drop_saved()
        self._publish_more()
        self._changed.set()

    def _drop_saved(self) -> None:
        """Drop the messages that the broker has saved by now."""
        until = self._clock() - self._endpoint.keep_seconds
        while self._unsaved and self._unsaved[0][0] < until:
            self._unsaved.popleft()

    def _requeue_unsaved(self) -> None:
        """Queue again the messages that the broker may not have saved when the connection ended."""
        self._drop_saved()
        again = len(self._unsaved)
        self.sent_again += again
        self.acknowledged -= again
        self._kept.extendleft(message for _, message in reversed(self._unsaved))
        self._unsaved.clear()

    def _refused(self, problem: str) -> RefusedError:
        site, user = self._endpoint.site, self._endpoint.user or ""
        variable = secret_variable(site, user)
        return RefusedError(
            f"the MQTT broker of {site} does not let user {user!r} in: {problem}",
            hint=f"its password comes from {variable}, or from secrets.json in the topology's state folder",
            site=site,
            user=user,
        )

    def _report(self, problem: str | None) -> None:
        if problem == self.trouble:
            return
        self.trouble = problem
        where = f"{self._endpoint.site} at {self._endpoint.host}:{self._endpoint.port}"
        if problem:
            log.warning("MQTT broker of %s: %s; %d messages are kept for it", where, problem, len(self._kept))
        else:
            log.info("MQTT broker of %s: connected", where)
        self._on_trouble(problem)
