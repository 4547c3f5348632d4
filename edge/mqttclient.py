"""One connection to a site's MQTT broker: how it is made, what a refusal means, and its socket on the asyncio loop."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import Callable
from typing import Any, TypeVar

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from paho.mqtt.reasoncodes import ReasonCode

from edge.errors import MqttLoginRefusedError, MqttRefusedError, MqttUnavailableError, MqttUntrustedError
from fairlead.certs.mqtt import identify
from fairlead.certs.trust import trouble
from fairlead.endpoint import MqttEndpoint, let_in
from fairlead.errors import FairleadError
from fairlead.mqttturn import turn

C = TypeVar("C", bound=paho.Client)

KEEPALIVE = 60
CONNECT_TIMEOUT = 5.0
# CONNACK codes of MQTT 3.1.1 (section 3.2.2.3) as paho names them in MQTT 5's words. Only this one may pass by itself.
_PASSING = "Server unavailable"


def new_client(kind: type[C], endpoint: MqttEndpoint, client_id: str, *, clean: bool = False) -> C:
    """A client of MQTT 3.1.1 that acknowledges by hand and does not reconnect by itself. ``clean``: of no session.

    Raises:
        TrustError: the endpoint's file of authorities cannot be used.
    """
    client = kind(
        CallbackAPIVersion.VERSION2,
        client_id=client_id,
        clean_session=clean,
        protocol=paho.MQTTv311,
        reconnect_on_failure=False,
        manual_ack=True,
    )
    client.connect_timeout = CONNECT_TIMEOUT
    identify(client, endpoint)
    return client


def open_socket(client: paho.Client, endpoint: MqttEndpoint) -> None:
    """Connect, in a thread: TCP, TLS, and CONNECT on its way.

    Raises:
        MqttUnavailableError: nobody answers. MqttUntrustedError: its certificate is not one that is trusted.
    """
    try:
        client.connect(endpoint.host, endpoint.port, KEEPALIVE)
    except ssl.SSLCertVerificationError as error:
        found = trouble(error, endpoint.host, endpoint.tls_ca)
        raise MqttUntrustedError(
            f"no TLS with the MQTT broker of {endpoint.site} at {endpoint.host}:{endpoint.port}: {found.why}",
            hint=found.hint,
            site=endpoint.site,
        ) from error
    except (OSError, ValueError) as error:
        raise MqttUnavailableError(
            f"the MQTT broker of {endpoint.site} at {endpoint.host}:{endpoint.port} does not answer: {error}",
            hint="is the site up? see 'fairlead status'",
        ) from error


def refusal(endpoint: MqttEndpoint, reason: ReasonCode) -> FairleadError:
    """What a CONNACK that is a failure means."""
    if str(reason) == _PASSING:
        return MqttUnavailableError(f"the MQTT broker of {endpoint.site} is not ready")
    return MqttLoginRefusedError(
        f"the MQTT broker of {endpoint.site} refused user {endpoint.user!r}: {reason}",
        hint="check the password (FAIRLEAD_SECRET_<SITE>_<USER>, or the one that 'fairlead up' made)",
        site=endpoint.site,
        user=endpoint.user,
    )


def visit(endpoint: MqttEndpoint, client_id: str, *, clean: bool, subscribe: str | None = None) -> bool:
    """Connect under a client id and leave again, without taking anything; returns whether there was a session.

    ``clean`` ends the session, with all that is queued for it; without it the session is there afterwards, and what was
    queued still is. Blocks: call it in a thread.

    Args:
        subscribe: A filter that the session subscribes to with QoS 1.

    Raises:
        MqttUnavailableError, MqttRefusedError
    """
    return let_in(endpoint, MqttLoginRefusedError, lambda way: _visit(way, client_id, clean=clean, subscribe=subscribe))


def _visit(endpoint: MqttEndpoint, client_id: str, *, clean: bool, subscribe: str | None) -> bool:
    client = new_client(paho.Client, endpoint, client_id, clean=clean)
    present: list[bool] = []
    failures: list[FairleadError] = []
    subscribed: list[bool] = []

    def connected(_c: paho.Client, _d: Any, flags: paho.ConnectFlags, reason: ReasonCode, _p: Any) -> None:
        if reason.is_failure:
            failures.append(refusal(endpoint, reason))
            return
        present.append(flags.session_present)
        if subscribe is not None:
            client.subscribe(subscribe, 1)

    def suback(_c: paho.Client, _d: Any, _mid: int, reasons: list[ReasonCode], _p: Any) -> None:
        subscribed.append(not any(reason.is_failure for reason in reasons))

    client.on_connect = connected
    client.on_subscribe = suback
    open_socket(client, endpoint)
    try:
        end = time.monotonic() + CONNECT_TIMEOUT
        while not failures and not (present and (subscribe is None or subscribed)):
            if turn(client, 0.1) != MQTTErrorCode.MQTT_ERR_SUCCESS or time.monotonic() > end:
                break
        client.disconnect()
    finally:
        if (sock := client.socket()) is not None:
            sock.close()
    if failures:
        raise failures[0]
    if not present or (subscribe is not None and not subscribed):
        raise MqttUnavailableError(f"the MQTT broker of {endpoint.site} took the connection but did not answer")
    if subscribed == [False]:
        raise refused_subscriptions(endpoint, [str(subscribe)])
    return present[0]


def echo(endpoint: MqttEndpoint, client_id: str, topic: str) -> bool:
    """Whether the broker carries a message of this user to itself on a topic. Blocks: call it in a thread.

    Raises:
        MqttUnavailableError, MqttRefusedError
    """
    return let_in(endpoint, MqttLoginRefusedError, lambda way: _echo(way, client_id, topic))


def _echo(endpoint: MqttEndpoint, client_id: str, topic: str) -> bool:
    _visit(endpoint, client_id, clean=True, subscribe=None)  # says what is wrong, if anything is
    client = new_client(paho.Client, endpoint, client_id, clean=True)
    heard: list[bool] = []

    def connected(*_: Any) -> None:
        client.subscribe(topic, 1)

    def subscribed(*_: Any) -> None:
        client.publish(topic, b"", 1)

    def came(*_: Any) -> None:
        heard.append(True)

    client.on_connect, client.on_subscribe, client.on_message = connected, subscribed, came
    open_socket(client, endpoint)
    end = time.monotonic() + CONNECT_TIMEOUT
    while not heard and time.monotonic() < end:
        if turn(client, 0.1) != MQTTErrorCode.MQTT_ERR_SUCCESS:
            raise MqttUnavailableError(f"the MQTT broker of {endpoint.site} closed the connection")
    client.disconnect()
    return bool(heard)


def refused_subscriptions(endpoint: MqttEndpoint, filters: list[str]) -> MqttRefusedError:
    """What a SUBACK that is a failure means."""
    return MqttRefusedError(
        f"the MQTT broker of {endpoint.site} refused the subscription to {', '.join(filters)}",
        hint="its access control must let the bridge read fairlead/v1/#, fairlead/intakes/# and $SYS/broker/#",
    )


class LoopSocket:
    """A client's socket on the running loop: writes by itself, reads while it is asked to.

    Args:
        readable: Called when there is something to read.
    """

    def __init__(self, client: paho.Client, readable: Callable[[], None]) -> None:
        self._client = client
        self._readable = readable
        self.reading = False
        client.on_socket_register_write = self._want_write
        client.on_socket_unregister_write = self._unwant_write
        client.on_socket_close = self._closed

    def start_reading(self) -> None:
        if (sock := self._client.socket()) is not None:
            asyncio.get_running_loop().add_reader(sock, self._readable)
            asyncio.get_running_loop().call_soon(self._readable)  # for what the client has received already
            self.reading = True

    def stop_reading(self) -> None:
        self.reading = False
        if (sock := self._client.socket()) is not None:
            asyncio.get_running_loop().remove_reader(sock)

    def close(self) -> None:
        """Close it, whatever state it is in."""
        self.stop_reading()
        client = self._client  # which may outlive the loop
        client.on_socket_register_write = client.on_socket_unregister_write = client.on_socket_close = None
        if (sock := self._client.socket()) is not None:
            with contextlib.suppress(RuntimeError):
                asyncio.get_running_loop().remove_writer(sock)
            with contextlib.suppress(OSError):
                sock.close()

    def _want_write(self, client: paho.Client, _data: Any, sock: Any) -> None:
        asyncio.get_running_loop().add_writer(sock, client.loop_write)

    def _unwant_write(self, _client: paho.Client, _data: Any, sock: Any) -> None:
        asyncio.get_running_loop().remove_writer(sock)

    def _closed(self, _client: paho.Client, _data: Any, sock: Any) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(sock)
        loop.remove_writer(sock)
        self.reading = False
