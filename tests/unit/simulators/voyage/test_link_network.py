"""Weather of links where others run the replicators: over the lines that are there, or not at all."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest

from fairlead.errors import ConfigurationError
from simulators.fleet.scenario_file import load
from simulators.network.control_client import ControlClient
from simulators.network.registry import Order, ProxyRegistry
from simulators.network.server import ControlServer
from simulators.physics.climate import link_weather
from simulators.voyage.services import SailSettings, link_network
from simulators.voyage.voyage import Voyage
from topologies.context import Context, open_topology
from topologies.endpoints import LINES

SETTINGS = SailSettings(speed=None, patience=60, elsewhere=True)


@pytest.fixture
def context(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    monkeypatch.setenv("FAIRLEAD_HOME", str(short_path))
    return open_topology("big-blue")


@pytest.fixture
def trip(context: Context) -> Voyage:
    return Voyage(load("typhoon-tokyo").adjusted(containers=10), context.topology, seed=7)


@pytest.fixture
def lines(context: Context) -> Iterator[Path]:
    """Proxies for every link of the topology, to brokers that are not used."""
    pulls = {(link.to, link.from_): [("127.0.0.1", 1)] for link in context.topology.directed_links()}
    at = context.folder / "run" / LINES
    at.parent.mkdir(parents=True)
    ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        stop = asyncio.Event()
        async with ProxyRegistry(pulls) as exchange:
            server = await asyncio.start_unix_server(ControlServer(exchange).serve, at)
            ready.set_result((asyncio.get_running_loop(), stop))
            await stop.wait()
            server.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    loop, stop = ready.result(60)
    yield at
    loop.call_soon_threadsafe(stop.set)
    thread.join()


def closed(at: Path) -> set[str]:
    with ControlClient(at) as looking:
        return {name for name, way in looking.send(Order()).ways.items() if not way.open}


def test_a_voyage_controls_the_proxies_of_another_process(context: Context, trip: Voyage, lines: Path) -> None:
    (one, other), begins, ends = next(link_weather(trip.plan).outages())
    with link_network(context, trip, SETTINGS) as leader:
        assert leader is not None
        leader.apply_weather(begins)
        assert {f"{one}>{other}", f"{other}>{one}"} <= closed(lines)
        leader.apply_weather(ends)
        assert {f"{one}>{other}", f"{other}>{one}"}.isdisjoint(closed(lines))
        assert {one, other} in [set(cut.between) for cut in leader.cuts]


def test_without_proxies_a_voyage_that_cuts_links_is_refused(context: Context, trip: Voyage) -> None:
    with pytest.raises(ConfigurationError, match="cuts the link") as refused:
        with link_network(context, trip, SETTINGS):
            raise AssertionError
    assert "--calm" in str(refused.value.hint)


def test_calm_leaves_the_proxies_alone(context: Context, trip: Voyage, lines: Path) -> None:
    with link_network(context, trip, replace(SETTINGS, calm=True)) as leader:
        assert leader is None
    assert not closed(lines)
