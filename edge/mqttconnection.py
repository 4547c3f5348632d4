"""One connection of an MQTT session: CONNECT, SUBSCRIBE, and what the broker answers, until it is lost.

paho calls back on the event loop's thread, because only the loop has it read and write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import paho.mqtt.client as paho
from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from edge.bulkclient import BulkClient
from edge.errors import MqttUnavailableError
from edge.mqttclient import CONNECT_TIMEOUT, LoopSocket, new_client, open_socket, refusal, refused_subscriptions
from fairlead.endpoint import MqttEndpoint

T = TypeVar("T")


class MqttConnection:
    """Opened once, then closed.

    Args:
        on_message: Called for every message, while ``read`` is called.
        on_lost: Called when the broker, or the network, has ended it.
        readable: Called when there is something to read.
    """

    def __init__(
        self,
        endpoint: MqttEndpoint,
        client_id: str,
        subscriptions: Sequence[tuple[str, int]],
        *,
        on_message: Callable[[paho.MQTTMessage], None],
        on_lost: Callable[[], None],
        readable: Callable[[], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        self._endpoint = endpoint
        self._subscriptions = list(subscriptions)
        self._on_lost = on_lost
        self._readable = readable
        self._present = False
        self._socket: LoopSocket | None = None
        self._lost: asyncio.Future[str] = loop.create_future()
        self._ready: asyncio.Future[bool] = loop.create_future()
        self._unsubscribed: asyncio.Future[None] | None = None
        self._client = client = new_client(BulkClient, endpoint, client_id)
        client.on_connect = self._connack
        client.on_subscribe = self._suback
        client.on_unsubscribe = self._unsuback
        client.on_disconnect = self._disconnected
        client.on_message = lambda _client, _data, message: on_message(message)

    async def open(self) -> bool:
        """Connect and subscribe; returns whether the broker had the session.

        Raises:
            MqttUnavailableError, MqttRefusedError
        """
        client = self._client
        await asyncio.to_thread(open_socket, client, self._endpoint)
        self._socket = LoopSocket(client, self._readable)
        self._socket.start_reading()
        if client.want_write():
            client.loop_write()
        return await self._answer(self._ready)

    async def stay(self) -> str:
        """Keep it alive until it is lost; returns why."""
        while True:
            done, _ = await asyncio.wait((self._lost,), timeout=1.0)
            if done:
                return self._lost.result()
            self._client.loop_misc()

    @property
    def there(self) -> bool:
        """Whether it has a socket."""
        return self._socket is not None and self._client.socket() is not None

    @property
    def answered(self) -> bool:
        """Whether the broker has answered all that it was asked."""
        return self._ready.done() and (self._unsubscribed is None or self._unsubscribed.done())

    @property
    def reading(self) -> bool:
        return self._socket is not None and self._socket.reading

    def start_reading(self) -> None:
        if self._socket is not None:
            self._socket.start_reading()

    def stop_reading(self) -> None:
        if self._socket is not None:
            self._socket.stop_reading()

    def read(self) -> bool:
        """Read one packet, or a part; False when it is lost."""
        return self._client.loop_read() == MQTTErrorCode.MQTT_ERR_SUCCESS

    @property
    def drained(self) -> bool:
        """Whether the last ``read`` has found nothing more."""
        return self._client.drained

    def acknowledge(self, mid: int) -> None:
        self._client.ack(mid, 1)

    def publish(self, topic: str, payload: bytes) -> bool:
        return self._client.publish(topic, payload, 1).rc == MQTTErrorCode.MQTT_ERR_SUCCESS

    async def unsubscribe(self, *filters: str) -> None:
        """End subscriptions; returns when the broker has confirmed it.

        Raises:
            MqttUnavailableError
        """
        self._unsubscribed = asyncio.get_running_loop().create_future()
        self._client.unsubscribe(list(filters))
        if not self.reading:
            self.start_reading()
        await self._answer(self._unsubscribed)

    async def settle(self) -> None:
        """Wait until the broker has read all that was written.

        Closing a socket with unread messages in it resets the connection, and acknowledgements still on their way would
        be lost. A broker answers in order: once it confirms a subscription, it has read them all.

        Raises:
            MqttUnavailableError, MqttRefusedError
        """
        self._ready = asyncio.get_running_loop().create_future()
        self._client.subscribe(self._subscriptions[-1:])
        if not self.reading:
            self.start_reading()
        await self._answer(self._ready)

    def goodbye(self) -> None:
        """DISCONNECT."""
        if self._client.socket() is not None:
            self._client.disconnect()
            self._client.loop_write()

    def close(self) -> None:
        """Close the socket, whatever state it is in."""
        if self._socket is not None:
            self._socket.close()
        self._fail_unsubscribed()

    async def _answer(self, future: asyncio.Future[T]) -> T:
        try:
            return await asyncio.wait_for(future, CONNECT_TIMEOUT)
        except TimeoutError:
            raise MqttUnavailableError(
                f"the MQTT broker of {self._endpoint.site} at {self._endpoint.host}:{self._endpoint.port} "
                "took the connection but did not answer"
            ) from None

    # -- paho's callbacks

    def _connack(
        self, client: paho.Client, _data: Any, flags: paho.ConnectFlags, reason: ReasonCode, _props: Properties | None
    ) -> None:
        if self._ready.done():
            return
        if reason.is_failure:
            self._ready.set_exception(refusal(self._endpoint, reason))
            return
        self._present = flags.session_present
        client.subscribe(self._subscriptions)

    def _suback(
        self, _client: paho.Client, _data: Any, _mid: int, reasons: list[ReasonCode], _props: Properties | None
    ) -> None:
        if self._ready.done():
            return
        refused = [topic for (topic, _), reason in zip(self._subscriptions, reasons, strict=False) if reason.is_failure]
        if refused:
            self._ready.set_exception(refused_subscriptions(self._endpoint, refused))
        else:
            self._ready.set_result(self._present)

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
        self._on_lost()
        if not self._lost.done():
            self._lost.set_result(str(reason))
        if not self._ready.done():
            self._ready.set_exception(
                MqttUnavailableError(f"the MQTT broker of {self._endpoint.site} closed the connection: {reason}")
            )
        self._fail_unsubscribed()

    def _fail_unsubscribed(self) -> None:
        if self._unsubscribed is not None and not self._unsubscribed.done():
            self._unsubscribed.set_exception(
                MqttUnavailableError(f"the connection to the MQTT broker of {self._endpoint.site} was lost")
            )
