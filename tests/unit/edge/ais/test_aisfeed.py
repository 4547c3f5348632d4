from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator

import pytest
from pyais import encode_dict

from edge.ais.feed import AisFeed, AisSource, parse_source, ship_feed
from edge.ingest.classifier import Classifier
from edge.messages import ShipMessage
from edge.mqtt.session import Delivery
from fairlead.errors import ConfigurationError
from fairlead.records import decoder
from fairlead.records.ship import Position
from tests.support.edge.samples import IMO, topology

POSITIONS = decoder(Position)
LINE = (
    encode_dict({"type": 1, "mmsi": "211000001", "lat": 1.5, "lon": 104.0}, sentence_type="VDO")[0].encode() + b"\r\n"
)


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("tcp://bridge-pc:10110", AisSource("tcp", "bridge-pc", 10110)),
        ("udp://:10110", AisSource("udp", "", 10110)),
        ("tcp://[::1]:4001", AisSource("tcp", "::1", 4001)),
    ],
)
def test_a_source_is_read(text: str, source: AisSource) -> None:
    """The configured AIS source is parsed."""
    assert parse_source(text) == source


@pytest.mark.parametrize(
    "text", ["", "bridge-pc:10110", "tcp://:10110", "tcp://pc:0", "tcp://pc:70000", "http://pc:80"]
)
def test_what_is_no_source_is_refused_with_the_form_that_is(text: str) -> None:
    """An invalid AIS source is refused with an error that shows the valid form."""
    with pytest.raises(ConfigurationError, match="not a source"):
        parse_source(text)


@contextlib.asynccontextmanager
async def running(source: AisSource) -> AsyncIterator[tuple[AisFeed, asyncio.Queue[bytes]]]:
    taken: asyncio.Queue[bytes] = asyncio.Queue()
    feed = AisFeed(source, IMO, taken.put_nowait)
    task = asyncio.create_task(feed.run())
    try:
        yield feed, taken
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_server_is_read_and_connected_again_when_it_goes() -> None:
    """The feed reads from a TCP server, and reconnects when the connection ends."""
    connections: list[asyncio.StreamWriter] = []
    again = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        writer.write(b"x" * 9_000 + b"\n" + LINE)
        if len(connections) == 1:
            await writer.drain()
            writer.close()
            await writer.wait_closed()
        else:
            again.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, running(AisSource("tcp", "127.0.0.1", port)) as (_, taken):
        position = POSITIONS.decode(await asyncio.wait_for(taken.get(), 5))
        await asyncio.wait_for(again.wait(), 5)
        assert (position.vessel_imo_number, len(connections)) == (IMO, 2)
    for writer in connections:
        writer.close()


async def test_datagrams_are_read() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    async with running(AisSource("udp", "127.0.0.1", port)) as (feed, taken):
        await asyncio.wait_for(feed.connected.wait(), 5)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(LINE, ("127.0.0.1", port))
        assert POSITIONS.decode(await asyncio.wait_for(taken.get(), 5)).vessel_imo_number == IMO


async def test_a_position_goes_the_way_of_the_ship_s_own_messages() -> None:
    """A position takes the same way as the ship's own MQTT messages."""
    taken: list[Delivery] = []
    feed = ship_feed(AisSource("udp", "127.0.0.1", 9), IMO, taken.append)
    feed.line_came(LINE)
    [delivery] = taken
    assert (delivery.topic, delivery.redelivered, delivery.ack) == (f"fairlead/v1/ships/{IMO}/position", False, None)
    classified = Classifier(topology(), "star").classify(delivery.topic, delivery.payload, time.time_ns() // 1_000_000)
    assert isinstance(classified, ShipMessage) and classified.log == f"ships.{IMO}.location"
