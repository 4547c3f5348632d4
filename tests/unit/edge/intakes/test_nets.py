"""Which nets are thrown away and which are emptied; the MQTT broker is a set of session names here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from edge.intakes import nets as module
from edge.intakes.hub import Hub
from edge.intakes.nets import Nets
from edge.intakes.order import Source
from edge.mqtt import MqttSession
from fairlead.endpoint import MqttEndpoint


class Broker:
    """Sessions by name, the core's connection, and a log of what was done."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sessions: set[str] = set()
        self.done: list[str] = []
        self.connections = 1
        self.connected = asyncio.Event()
        self.connected.set()
        self.in_between: Callable[[], None] = lambda: None  # while a mark is under way
        monkeypatch.setattr(module, "visit", self._visit)
        monkeypatch.setattr(module, "exists", self._exists)
        monkeypatch.setattr(module, "end", self._end)
        monkeypatch.setattr(module, "empty", self._empty)

    def nets(self) -> Nets:
        return Nets(
            cast("Hub", self),
            MqttEndpoint("tokyo", "nowhere", 1),
            "b",
            cast("MqttSession", self),
            Source("b", lambda: False),
            self._subscribed,
            every=0.001,
        )

    async def passed(self, *_: Source, alive: Callable[[], bool]) -> bool:
        self.in_between()
        return alive()

    async def _subscribed(self) -> None:
        self.done.append("subscribed")

    def _visit(self, _endpoint: MqttEndpoint, name: str, **_: Any) -> bool:
        self.sessions.add(name)
        self.done.append(f"up {name}")
        return False

    async def _exists(self, _endpoint: MqttEndpoint, name: str) -> bool:
        return name in self.sessions

    async def _end(self, _endpoint: MqttEndpoint, name: str) -> None:
        self.sessions.remove(name)
        self.done.append(f"end {name}")

    async def _empty(self, _hub: Hub, _endpoint: MqttEndpoint, _id: str, names: list[str], _go: asyncio.Event) -> None:
        self.sessions -= set(names)
        self.done += [f"empty {name}" for name in names]

    async def renew(self, nets: Nets, times: int = 1) -> list[str]:
        """What is done in so many renewals."""
        self.done.clear()
        for _ in range(times):
            await nets.renew()
        return list(self.done)


async def test_at_the_start_they_are_emptied_and_then_thrown_away(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(monkeypatch)
    broker.sessions = {"b-net-1"}
    nets = broker.nets()
    await nets.put_up({"b-net-1"})
    assert await broker.renew(nets) == ["subscribed", "up b-net-2", "empty b-net-0", "empty b-net-1"]
    assert await broker.renew(nets) == ["up b-net-0", "end b-net-2"]


async def test_they_are_emptied_when_the_connection_has_been_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(monkeypatch)
    nets = broker.nets()
    await broker.renew(nets, 2)
    broker.connections += 1
    done = await broker.renew(nets)
    assert done == ["subscribed", "up b-net-0", "empty b-net-1"]  # the intakes are back before anything is read
    assert await broker.renew(nets) == ["up b-net-1", "end b-net-0"]


async def test_no_net_is_ended_when_the_connection_is_lost_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(monkeypatch)
    nets = broker.nets()
    await broker.renew(nets, 2)

    def lose() -> None:
        broker.connections += 1
        broker.in_between = lambda: None

    broker.in_between = lose
    assert await broker.renew(nets) == ["up b-net-0"]
    assert await broker.renew(nets) == ["subscribed", "up b-net-2", "empty b-net-0", "empty b-net-1"]


async def test_one_net_is_always_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with a broker that is lost again and again, until all names are taken."""
    broker = Broker(monkeypatch)
    nets = broker.nets()

    def lose() -> None:
        broker.connections += 1

    broker.in_between = lose
    await broker.renew(nets, 6)
    assert len(broker.sessions) == 4
    broker.in_between = lambda: None
    for _ in range(5):
        await broker.renew(nets)
        assert broker.sessions
    assert len(broker.sessions) == 1
