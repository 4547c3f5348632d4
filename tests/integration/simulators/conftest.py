"""A subscriber at a real MQTT broker that receives the same messages as a bridge."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from fairlead.kafka.endpoint import MqttEndpoint
from tests.support.waits import PATIENCE


class Listener:
    """Receive every message of one broker, with a session that survives the broker's restart."""

    def __init__(self, endpoint: MqttEndpoint) -> None:
        self.messages: list[tuple[str, bytes]] = []
        self._subscribed = threading.Event()
        self._more = threading.Condition()
        self._name = f"listener-{secrets.token_hex(4)}"  # a client id without an old session
        client = paho.Client(CallbackAPIVersion.VERSION2, client_id=self._name, clean_session=False)
        client.username_pw_set(endpoint.user, endpoint.password.get_secret_value() if endpoint.password else None)
        client.reconnect_delay_set(1, 1)
        client.on_connect = lambda c, *_: c.subscribe("fairlead/v1/#", qos=1)
        client.on_subscribe = lambda *_: self._subscribed.set()
        client.on_message = self._take
        client.connect(endpoint.host, endpoint.port)
        client.loop_start()
        self._client = client
        assert self._subscribed.wait(PATIENCE), "the broker did not confirm the subscription"

    def _take(self, _client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        with self._more:
            self.messages.append((message.topic, bytes(message.payload)))
            self._more.notify_all()

    def wait_for(self, condition: Callable[[list[tuple[str, bytes]]], bool], timeout: float = PATIENCE) -> None:
        """Return when the messages so far satisfy ``condition``."""
        with self._more:
            assert self._more.wait_for(lambda: condition(self.messages), timeout), f"got {len(self.messages)} messages"

    def close(self, endpoint: MqttEndpoint) -> None:
        """Disconnect and forget the session, so that the broker keeps nothing for it."""
        self._client.disconnect()
        self._client.loop_stop()
        client = paho.Client(CallbackAPIVersion.VERSION2, client_id=self._name, clean_session=True)
        client.username_pw_set(endpoint.user, endpoint.password.get_secret_value() if endpoint.password else None)
        gone = threading.Event()
        client.on_connect = lambda *_: gone.set()
        client.connect(endpoint.host, endpoint.port)
        client.loop_start()
        assert gone.wait(PATIENCE)
        client.disconnect()
        client.loop_stop()


@pytest.fixture
def listen(mqtt: Callable[..., MqttEndpoint]) -> Iterator[Callable[[str], Listener]]:
    """Return a function that starts a listener at a site's broker: ``listen("alpha")``."""
    listeners: list[tuple[str, Listener]] = []

    def make(site: str) -> Listener:
        listener = Listener(mqtt(site, "bridge"))
        listeners.append((site, listener))
        return listener

    yield make
    for site, listener in listeners:
        listener.close(mqtt(site, "bridge"))
