"""The bridge's session at a real Mosquitto bounds unacknowledged messages, and keeps queued ones across restarts."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from edge.mqtt.session import EXCESS, Delivery, MqttSession
from fairlead.kafka.endpoint import MqttEndpoint
from fairlead.mqtt import poll_once
from tests.support.edge.fleet import Fleet, handled, until
from tests.support.edge.samples import readings_topic
from tests.support.mqtt_sessions import end_session
from tests.support.waits import PATIENCE

pytestmark = pytest.mark.integration

MARKS = "fairlead/v1/marks"


class Taker:
    """A session with its own client id, and the messages it got."""

    def __init__(self, endpoint: MqttEndpoint, topic: str, window: int) -> None:
        self.endpoint = endpoint
        self.client_id = f"session-{topic}"
        self.topic = topic
        self._window = window
        self.came: list[Delivery] = []
        self._finished = 0

    @property
    def readings(self) -> list[int]:
        return [int(delivery.payload) for delivery in self.came if delivery.topic == self.topic]

    @property
    def marks(self) -> int:
        return sum(delivery.topic == MARKS for delivery in self.came)

    def finish_next(self) -> None:
        """Mark the first unfinished reading as stored."""
        ack = [each.ack for each in self.came if each.ack is not None][self._finished]
        self._finished += 1
        ack.finish_part()

    @contextlib.asynccontextmanager
    async def session(self) -> AsyncIterator[MqttSession]:
        self.came.clear()
        self._finished = 0
        made = MqttSession(
            self.endpoint,
            client_id=self.client_id,
            subscriptions=[(self.topic, 1), (MARKS, 0)],
            on_message=self.came.append,
            window=self._window,
        )
        running = asyncio.create_task(made.run())
        try:
            await asyncio.wait_for(made.connected.wait(), PATIENCE)
            yield made
            await made.disconnect()
            await asyncio.wait_for(running, PATIENCE)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


@pytest.fixture
def taker(fleet: Fleet) -> Iterator[Taker]:
    made = Taker(fleet.mqtt[fleet.port], readings_topic(fleet.new_box()), 7)
    yield made
    end_session(made.endpoint, made.client_id)


def payloads(numbers: range) -> list[bytes]:
    return [b"%d" % number for number in numbers]


async def test_no_more_than_a_bounded_number_is_unacknowledged(fleet: Fleet, taker: Taker) -> None:
    """A session never has more than ``EXCESS`` windows of unacknowledged messages; before any PUBACK, one window.

    A mark has QoS 0, so it is not counted and overtakes waiting messages: when it arrives, no other is under way. Each
    PUBACK may admit one more window (Mosquitto 2.0.11), up to the number at which the session stops reading its socket.
    """
    with fleet.publisher(fleet.port) as device:
        async with taker.session() as made:
            await device.publish(taker.topic, *payloads(range(200)))
            await device.publish(MARKS, b"")
            await until(lambda: taker.marks == 1)
            assert taker.readings == list(range(7))
            for count in range(1, 101):
                taker.finish_next()
                await until(lambda: len(taker.readings) > count)  # noqa: B023
                assert made.outstanding <= 7 * EXCESS
        async with taker.session():
            await until(lambda: 100 in taker.readings)
            assert taker.readings[0] == 100


async def test_a_session_outlives_its_client(fleet: Fleet, taker: Taker) -> None:
    with fleet.publisher(fleet.port) as device:
        async with taker.session():
            await device.publish(taker.topic, *payloads(range(2)))
            await until(lambda: len(taker.readings) == 2)
            taker.finish_next()
            taker.finish_next()
        await device.publish(taker.topic, *payloads(range(2, 6)))
        async with taker.session():
            await until(lambda: len(taker.readings) == 4)
            assert taker.readings == list(range(2, 6))


async def test_a_session_of_mqtt_3_keeps_what_is_queued_for_it(fleet: Fleet, taker: Taker) -> None:
    """A session opened with MQTT 3.1.1, as older bridges did, keeps its queued messages."""

    def subscribe_now(client: paho.Client, *_: Any) -> None:
        client.subscribe(taker.topic, 1)

    def subscribe() -> None:
        endpoint = taker.endpoint
        done: list[bool] = []
        client = paho.Client(
            CallbackAPIVersion.VERSION2, client_id=taker.client_id, clean_session=False, protocol=paho.MQTTv311
        )
        assert endpoint.user is not None and endpoint.password is not None
        client.username_pw_set(endpoint.user, endpoint.password.get_secret_value())
        client.on_connect = subscribe_now
        client.on_subscribe = lambda *_: done.append(True)
        client.connect(endpoint.host, endpoint.port)
        while not done:
            assert poll_once(client, PATIENCE) == paho.MQTT_ERR_SUCCESS
        client.disconnect()

    await asyncio.to_thread(subscribe)
    with fleet.publisher(fleet.port) as device:
        await device.publish(taker.topic, *payloads(range(5)))
        async with taker.session():
            await until(lambda: len(taker.readings) == 5)
            assert taker.readings == list(range(5))


@pytest.mark.parametrize("forgets", [False, True], ids=["session kept", "session forgotten"])
async def test_a_retained_message_is_stored_once(fleet: Fleet, forgets: bool) -> None:
    """Mosquitto does not send a message with the retain flag again when a bridge connects.

    What the bridge cannot use has no identity: it would be a second dead letter at every start. Mosquitto sends
    retained messages at SUBSCRIBE, so before whatever is published later.
    """
    topic = f"fairlead/v1/retained-{fleet.port}"
    with fleet.publisher(fleet.port) as device:
        async with fleet.running(fleet.port) as bridge:
            await device.publish(topic, b"kept for whoever subscribes", retain=True)
            await handled(bridge, 1)
        try:
            if forgets:
                fleet.forget_sessions()
            async with fleet.running(fleet.port) as bridge:
                await device.publish(topic, b"later")
                await handled(bridge, 1)
        finally:
            fleet.forget_sessions()
            await device.publish(topic, b"", retain=True)  # Mosquitto deletes the retained message
    letters = fleet.read(fleet.port, f"deadletters.{fleet.port}")
    stored = [base64.b64decode(letter.body["payload"]) for letter in letters]
    assert stored == [b"kept for whoever subscribes", b"later"]
