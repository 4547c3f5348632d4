"""What a device keeps, and sends again in which order, when its MQTT broker goes away and comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from fairlead.kafka.endpoint import MqttEndpoint
from simulators.voyage import sender
from simulators.voyage.sender import MqttSender

TOPIC = "fairlead/v1/events"


class Broker:
    """Stands in for the broker: what came over which connection; a test acknowledges and breaks it."""

    def __init__(self) -> None:
        self.opened: asyncio.Queue[FakeConnection] = asyncio.Queue()

    def __call__(self, endpoint: MqttEndpoint, client_id: str, on_acknowledged: Callable[[], None]) -> FakeConnection:
        return FakeConnection(self, on_acknowledged)

    async def connected(self) -> FakeConnection:
        """The next connection, which the device uses by then."""
        opened = await asyncio.wait_for(self.opened.get(), 10)
        await asyncio.wait_for(opened.used.wait(), 10)
        return opened


class FakeConnection:
    def __init__(self, broker: Broker, on_acknowledged: Callable[[], None]) -> None:
        self._broker, self._acknowledge = broker, on_acknowledged
        self._end: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.used = asyncio.Event()
        self.got: list[bytes] = []

    async def __aenter__(self) -> FakeConnection:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def open(self) -> str | None:
        self._broker.opened.put_nowait(self)
        return None

    async def ended(self) -> str:
        self.used.set()
        return await asyncio.shield(self._end)

    def publish(self, topic: str, payload: bytes) -> None:
        self.got.append(payload)

    def acknowledge(self, count: int) -> None:
        for _ in range(count):
            self._acknowledge()

    def kill(self) -> None:
        self._end.set_result("connection lost")


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    made = Broker()
    monkeypatch.setattr(sender, "DeviceConnection", made)
    return made


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


def device(keep_seconds: float, clock: Clock | None = None) -> MqttSender:
    endpoint = MqttEndpoint("tokyo", "127.0.0.1", 1, keep_seconds=keep_seconds)
    return MqttSender(endpoint, "device", clock=lambda: clock.now if clock else 0.0)


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


async def test_unacknowledged_messages_are_sent_again_first(broker: Broker) -> None:
    async with device(0.0) as one:
        first = await broker.connected()
        for payload in numbers(0, 5):
            one.send(TOPIC, payload)
        first.acknowledge(2)
        first.kill()
        second = await broker.connected()
        one.send(TOPIC, b"5")
        assert second.got == numbers(2, 6)
        assert (one.acknowledged, one.sent_again) == (2, 0)


async def test_messages_that_the_broker_may_not_have_saved_are_sent_again(broker: Broker, clock: Clock) -> None:
    async with device(10.0, clock) as one:
        first = await broker.connected()
        for payload in numbers(0, 6):
            one.send(TOPIC, payload)
        first.acknowledge(2)
        clock.now += 9.0
        first.acknowledge(2)
        clock.now += 2.0  # the first two were acknowledged 11 s ago, the next two 2 s ago
        assert one.waiting == 2
        first.kill()
        second = await broker.connected()
        one.send(TOPIC, b"6")
        assert second.got == numbers(2, 7)
        assert (one.acknowledged, one.sent_again, one.waiting) == (2, 2, 5)


async def test_a_broker_killed_twice_gets_the_message_a_third_time(broker: Broker, clock: Clock) -> None:
    async with device(10.0, clock) as one:
        first = await broker.connected()
        for payload in numbers(0, 3):
            one.send(TOPIC, payload)
        first.acknowledge(3)
        first.kill()
        second = await broker.connected()
        second.acknowledge(2)
        clock.now += 1.0
        second.kill()
        third = await broker.connected()
        assert third.got == numbers(0, 3)
        third.acknowledge(3)
        await one.flush()
        assert one.acknowledged == 3


async def test_saved_messages_are_dropped(broker: Broker, clock: Clock) -> None:
    async with device(10.0, clock) as one:
        first = await broker.connected()
        for payload in numbers(0, 3):
            one.send(TOPIC, payload)
            first.acknowledge(1)
            clock.now += 20.0
        first.kill()
        assert (await broker.connected()).got == []
        assert (one.acknowledged, one.sent_again) == (3, 0)
