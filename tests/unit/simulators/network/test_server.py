"""Proxies behind a socket: one client controls them, and their weather ends with it."""

from __future__ import annotations

import asyncio
import datetime as dt
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fairlead.errors import UnavailableError
from fairlead.kafka.endpoint import Address
from simulators.network.control_client import ControlClient
from simulators.network.controller import NetworkController
from simulators.network.proxy import HOST
from simulators.network.registry import Carried, Order
from simulators.network.server import run
from simulators.network.weather import Conditions, LinkTrouble, LinkWeather
from tests.unit.simulators.network.echo import answers
from topologies.endpoints import write_address_overrides
from topologies.loader.load import load

START = dt.datetime(2026, 5, 4, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)
OUT, BACK = ("tokyo", "duck-star"), ("duck-star", "tokyo")


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server((HOST, 0)) as free:
        number: int = free.getsockname()[1]
    yield number


@pytest.fixture
async def place(short_path: Path, echo: Address, port: int) -> AsyncIterator[Path]:
    """Where orders are taken for one proxy, through which duck-star pulls from tokyo, at ``port``."""
    write_address_overrides(short_path / "address-overrides.json", {"duck-star": {"tokyo": ((echo, (HOST, port)),)}})
    stop, at = asyncio.Event(), short_path / "links.sock"
    serving = asyncio.ensure_future(run(short_path / "address-overrides.json", at, stop))
    while not at.exists():
        assert not serving.done(), serving.exception()
        await asyncio.sleep(0.01)
    yield at
    stop.set()
    await serving


async def send(client: ControlClient, order: Order) -> dict[str, Carried]:
    return (await asyncio.to_thread(client.send, order)).ways


async def entered(at: Path) -> ControlClient:
    return await asyncio.to_thread(ControlClient(at).__enter__)


async def answered(port: int, *, within: float = 60.0) -> bool:
    """Whether a new connection through the proxy is answered; False also when it is reset."""
    streams = await asyncio.open_connection(HOST, port)
    try:
        return await answers(streams, within=within)
    finally:
        streams[1].close()


async def test_data_passes_while_no_client_controls(place: Path, port: int) -> None:
    assert await answered(port)
    client = await entered(place)
    ways = await send(client, Order())
    assert {name: way.bytes for name, way in ways.items()} == {"tokyo>duck-star": 1, "duck-star>tokyo": 1}
    client.__exit__()


async def test_one_direction_is_closed_and_opened(place: Path, port: int) -> None:
    client = await entered(place)
    ways = await send(client, Order(close=(OUT,)))
    assert (ways["tokyo>duck-star"].open, ways["duck-star>tokyo"].open) == (False, True)
    assert not await answered(port, within=0.1)
    assert (await send(client, Order()))["duck-star>tokyo"].bytes == 1, "the question arrived, the answer did not"
    await send(client, Order(reset=(OUT,), open=(OUT,)))
    assert await answered(port)
    client.__exit__()


async def test_a_fuse_resets_a_connection_in_the_middle(place: Path, port: int) -> None:
    client = await entered(place)
    await send(client, Order(fuse=((OUT, 1),)))
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(b"??")
    with pytest.raises(ConnectionError):
        assert await reader.readexactly(1) == b"?"
        await reader.readexactly(1)
    writer.close()
    assert (await send(client, Order()))["tokyo>duck-star"].resets == 1
    assert await answered(port)
    client.__exit__()


async def test_weather_ends_with_the_client(place: Path, port: int) -> None:
    client = await entered(place)
    await send(client, Order(shape=((OUT, Conditions(latency=60_000)),), close=(BACK,)))
    assert not await answered(port, within=0.1)
    client.__exit__()
    watcher = await entered(place)
    while not (await send(watcher, Order()))["duck-star>tokyo"].open:  # noqa: ASYNC110 - the server sends no events
        await asyncio.sleep(0.01)
    assert await answered(port, within=50.0)
    watcher.__exit__()


async def test_one_client_controls_and_others_may_read(place: Path) -> None:
    first, second = await entered(place), await entered(place)
    await send(second, Order())
    await send(first, Order(close=(OUT,)))
    with pytest.raises(UnavailableError, match="another client"):
        await send(second, Order(open=(OUT,)))
    assert not (await send(second, Order()))["tokyo>duck-star"].open
    first.__exit__()
    second.__exit__()


async def test_an_order_for_other_sites_is_refused(place: Path) -> None:
    client = await entered(place)
    with pytest.raises(UnavailableError, match=r"no link connects .*sydney.*tokyo>duck-star"):
        await send(client, Order(close=(OUT, ("sydney", "tokyo"))))
    assert (await send(client, Order()))["tokyo>duck-star"].open, "nothing was done"
    client.__exit__()


async def test_without_a_server_the_error_has_a_hint(short_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"links\.sock") as failure, ControlClient(short_path / "links.sock"):
        raise AssertionError
    assert "--calm" in str(failure.value.hint)


async def test_a_controller_applies_weather_over_the_socket(place: Path, port: int) -> None:
    topology = load("minimal", env={})
    trouble = LinkTrouble.model_validate({"site": "tokyo", "starts": "5d", "lasts": "2d"})
    client = await entered(place)
    controller = NetworkController(topology, LinkWeather(topology, START, [trouble]), client.send)
    await asyncio.to_thread(controller.apply_weather, START)
    assert await answered(port)
    await asyncio.to_thread(controller.apply_weather, START + 5 * DAY)
    assert set(controller.cut_pairs) == {frozenset(("tokyo", "duck-star"))}
    assert not await answered(port, within=0.1)
    await asyncio.to_thread(controller.apply_weather, START + 7 * DAY)
    assert await answered(port)
    (cut,) = controller.cuts
    assert (cut.starts, cut.ends) == (START + 5 * DAY, START + 7 * DAY)
    client.__exit__()
