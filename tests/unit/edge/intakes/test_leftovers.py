from __future__ import annotations

import asyncio
from unittest.mock import AsyncMock, MagicMock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.intakes import leftovers, nets
from edge.intakes.leftovers import end, find
from edge.intakes.names import intake_id, net_id
from edge.intakes.nets import Nets
from fairlead.endpoint import MqttEndpoint
from tests.support.examples import examples

TOKYO = MqttEndpoint("tokyo", "nowhere", 1)


class Crash(Exception):
    """The bridge is killed."""


class Broker:
    """Sessions by name; ``left``: visits until the bridge is killed."""

    def __init__(self) -> None:
        self.sessions: set[str] = set()
        self.left = 0

    def visit(self, _endpoint: MqttEndpoint, name: str, *, clean: bool, subscribe: str | None = None) -> bool:
        if not self.left:
            raise Crash
        self.left -= 1
        found = name in self.sessions
        if clean:
            self.sessions.discard(name)
        else:
            self.sessions.add(name)
        return found


async def start(broker: Broker, count: int, visits: int) -> bool:
    """A bridge with so many intakes takes over what is there; False when it was killed on the way."""
    broker.left = visits
    try:
        names = await find(TOKYO, "b", count)
        if count:
            names = await Nets(MagicMock(), TOKYO, "b", MagicMock(), MagicMock(), AsyncMock()).begin(names)
        for name in names:
            await end(TOKYO, name)
    except Crash:
        return False
    return True


@settings(max_examples=examples(40))
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 60)), min_size=1, max_size=6), st.integers(0, 4))
def test_no_session_is_ever_overlooked(history: list[tuple[int, int]], count: int) -> None:
    """Whatever numbers of intakes there were, and wherever the bridge was killed while it took over."""
    broker = Broker()

    async def live() -> None:
        for before, visits in history:
            await start(broker, before, visits)
        assert await start(broker, count, 1_000)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leftovers, "visit", broker.visit)
        patch.setattr(nets, "visit", broker.visit)
        asyncio.run(live())
    intakes = {intake_id("b", number) for number in range(1, count + 1)}
    up = broker.sessions - intakes
    assert intakes <= broker.sessions
    assert len(up) == (1 if count else 0)


async def test_a_net_stays_up_where_all_names_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    broker.sessions = {intake_id("b", 1), *(net_id("b", number) for number in range(4))}
    monkeypatch.setattr(leftovers, "visit", broker.visit)
    monkeypatch.setattr(nets, "visit", broker.visit)
    assert await start(broker, 1, 1_000)
    assert len(broker.sessions - {intake_id("b", 1)}) == 1
