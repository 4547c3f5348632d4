"""Lines in a process of their own: led by one at a time, over a socket; calm when nobody leads them."""

from __future__ import annotations

import asyncio
import datetime as dt
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fairlead.errors import UnavailableError
from fairlead.kafka.endpoint import Address
from simulators.network.leader import NetworkController
from simulators.network.line import HOST
from simulators.network.orders import Carried, Order
from simulators.network.remote import RemoteLines
from simulators.network.server import run
from simulators.network.weather import Conditions, LinkTrouble, LinkWeather
from tests.unit.simulators.voyage.echoes import answers
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
    """Where orders are taken for one line, by which duck-star pulls from tokyo, at ``port``."""
    write_address_overrides(short_path / "detours.json", {"duck-star": {"tokyo": ((echo, (HOST, port)),)}})
    stop, at = asyncio.Event(), short_path / "links.sock"
    serving = asyncio.ensure_future(run(short_path / "detours.json", at, stop))
    while not at.exists():
        assert not serving.done(), serving.exception()
        await asyncio.sleep(0.01)
    yield at
    stop.set()
    await serving


async def give(lines: RemoteLines, order: Order) -> dict[str, Carried]:
    return (await asyncio.to_thread(lines.give, order)).ways


async def entered(at: Path) -> RemoteLines:
    return await asyncio.to_thread(RemoteLines(at).__enter__)


async def answered(port: int, *, within: float = 60.0) -> bool:
    """Whether a new connection over the line is answered; False also when it is reset."""
    streams = await asyncio.open_connection(HOST, port)
    try:
        return await answers(streams, within=within)
    finally:
        streams[1].close()


async def test_everything_goes_through_while_nobody_leads(place: Path, port: int) -> None:
    assert await answered(port)
    lines = await entered(place)
    ways = await give(lines, Order())
    assert {name: way.bytes for name, way in ways.items()} == {"tokyo>duck-star": 1, "duck-star>tokyo": 1}
    lines.__exit__()


async def test_one_direction_can_be_swallowed(place: Path, port: int) -> None:
    lines = await entered(place)
    ways = await give(lines, Order(close=(OUT,)))
    assert (ways["tokyo>duck-star"].open, ways["duck-star>tokyo"].open) == (False, True)
    assert not await answered(port, within=0.1)
    assert (await give(lines, Order()))["duck-star>tokyo"].bytes == 1, "the question arrived, the answer did not"
    await give(lines, Order(reset=(OUT,), open=(OUT,)))
    assert await answered(port)
    lines.__exit__()


async def test_a_connection_is_reset_in_the_middle(place: Path, port: int) -> None:
    lines = await entered(place)
    await give(lines, Order(fuse=((OUT, 1),)))
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(b"??")
    with pytest.raises(ConnectionError):
        assert await reader.readexactly(1) == b"?"
        await reader.readexactly(1)
    writer.close()
    assert (await give(lines, Order()))["tokyo>duck-star"].resets == 1
    assert await answered(port)
    lines.__exit__()


async def test_lines_are_calm_when_whoever_led_them_is_gone(place: Path, port: int) -> None:
    lines = await entered(place)
    await give(lines, Order(shape=((OUT, Conditions(latency=60_000)),), close=(BACK,)))
    assert not await answered(port, within=0.1)
    lines.__exit__()
    watcher = await entered(place)
    while not (await give(watcher, Order()))["duck-star>tokyo"].open:  # noqa: ASYNC110 - it tells of no events
        await asyncio.sleep(0.01)
    assert await answered(port, within=50.0)
    watcher.__exit__()


async def test_one_leads_and_others_may_look(place: Path) -> None:
    first, second = await entered(place), await entered(place)
    await give(second, Order())
    await give(first, Order(close=(OUT,)))
    with pytest.raises(UnavailableError, match="somebody else"):
        await give(second, Order(open=(OUT,)))
    assert not (await give(second, Order()))["tokyo>duck-star"].open
    first.__exit__()
    second.__exit__()


async def test_an_order_for_other_sites_is_refused(place: Path) -> None:
    lines = await entered(place)
    with pytest.raises(UnavailableError, match=r"no line links .*sydney.*tokyo>duck-star"):
        await give(lines, Order(close=(OUT, ("sydney", "tokyo"))))
    assert (await give(lines, Order()))["tokyo>duck-star"].open, "nothing was done"
    lines.__exit__()


async def test_who_finds_nobody_is_told_what_to_do(short_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"links\.sock") as failure, RemoteLines(short_path / "links.sock"):
        raise AssertionError
    assert "--calm" in str(failure.value.hint)


async def test_the_weather_of_a_voyage_reaches_them(place: Path, port: int) -> None:
    topology = load("minimal", env={})
    trouble = LinkTrouble.model_validate({"site": "tokyo", "starts": "5d", "lasts": "2d"})
    lines = await entered(place)
    leader = NetworkController(topology, LinkWeather(topology, START, [trouble]), lines.give)
    await asyncio.to_thread(leader.at, START)
    assert await answered(port)
    await asyncio.to_thread(leader.at, START + 5 * DAY)
    assert set(leader.cut_sites) == {"tokyo", "duck-star"}
    assert not await answered(port, within=0.1)
    await asyncio.to_thread(leader.at, START + 7 * DAY)
    assert await answered(port)
    (cut,) = leader.cuts
    assert (cut.starts, cut.ends) == (START + 5 * DAY, START + 7 * DAY)
    lines.__exit__()
