"""One MQTT connection with its own paho client, whose network thread reports to the event loop.

QoS 1, publishing only.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any

from paho.mqtt import client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from paho.mqtt.reasoncodes import ReasonCode

from fairlead.certs.mqtt import identify, untrusted
from fairlead.endpoint import MqttEndpoint

REFUSALS = frozenset({"Not authorized", "Bad user name or password"})
_TIMEOUT = 10.0  # seconds for the TCP connection, and again for the CONNACK
_GOODBYE = 2.0  # seconds for a broker to take a DISCONNECT
_KEEPALIVE = 20  # seconds; a broker that went away without a word is noticed after 1.5 times as long


class Connection:
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
        self._news: deque[int] = deque()  # acknowledged ids that the event loop has not seen yet
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
        client.max_inflight_messages_set(0)  # no limit here: the sender keeps the window
        identify(client, endpoint)
        client.on_connect = self._connected
        client.on_disconnect = self._disconnected
        client.on_publish = self._published
        return client

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Say goodbye, hang up on a broker that does not listen, and wait for the thread to end."""
        if self._connecting is not None:
            await asyncio.wait([self._connecting])
        self._client.disconnect()
        if not self._started:
            return
        try:
            async with asyncio.timeout(_GOODBYE):
                await asyncio.shield(self._end)
        except TimeoutError:
            sock = self._client.socket()
            if isinstance(sock, socket.socket):  # a TLS socket is one as well
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
        await asyncio.to_thread(self._client.loop_stop)

    async def open(self) -> str | None:
        """Connect and log in; None when that worked, else the problem in a few words.

        Raises:
            UntrustedError: the broker's certificate is not trusted, which does not pass by itself.
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
        """Return, when the connection has ended, why."""
        return await asyncio.shield(self._end)

    def publish(self, topic: str, payload: bytes) -> None:
        """Send one message with QoS 1; when the connection is broken, ``ended`` tells."""
        self._expected.append(self._client.publish(topic, payload, qos=1).mid)

    # -- paho's thread

    def _in_loop(self, call: Callable[..., None], *args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody wants to know any more
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
        self._news.append(mid)
        if not self._woken:  # one wake-up of the event loop takes many acknowledgements
            self._woken = True
            self._in_loop(self._take_news)

    # -- the event loop

    def _take_news(self) -> None:
        self._woken = False  # before the news are looked at: what comes from now on wakes again
        while self._news and not self._end.done():
            if self._news.popleft() != self._expected.popleft():
                _settle(self._end, "the broker acknowledged out of order")
            else:
                self._on_acknowledged()


def _settle(future: asyncio.Future[Any], value: str | None) -> None:
    if not future.done():
        future.set_result(value)
