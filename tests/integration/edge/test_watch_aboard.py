"""The alert engine in a real bridge of a ship: its position from AIS, and an alert that a person clears."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from edge.ais.feed import AisSource
from edge.alerts.operator import chosen, order_for, place_order, read_alerts
from edge.alerts.state import is_by_hand
from fairlead.kafka.client.cluster import Cluster
from fairlead.records import decoder
from fairlead.records.alert import Alert
from fairlead.records.ship import Position
from tests.support.ais import DAMAGED, REAL, sentences, static
from tests.support.edge.fleet import Fleet, handled, now, until
from tests.support.edge.samples import reading, readings_topic

pytestmark = pytest.mark.integration

POSITIONS, ALERTS = decoder(Position), decoder(Alert)
WATER = {"motion": {"immersed": True, "tiltDegrees": 80.0}}


@contextlib.asynccontextmanager
async def nmea_server(*visits: list[bytes]) -> AsyncIterator[AisSource]:
    """Run an NMEA server that sends these lines to successive clients, and closes all connections except the last."""
    waiting, writers = list(visits), list[asyncio.StreamWriter]()

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        lines = waiting.pop(0) if waiting else []
        writer.write(b"\r\n".join(lines) + b"\r\n")
        await writer.drain()
        if waiting:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield AisSource("tcp", "127.0.0.1", server.sockets[0].getsockname()[1])
    for writer in writers:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def test_positions_come_from_ais_also_when_its_source_goes_away(fleet: Fleet) -> None:
    """Positions come from AIS, and again after its source went away."""
    mmsi = "211%06d" % (int(fleet.new_box()[4:10]) % 1_000_000)  # noqa: UP031 - digits of this test's own

    def own(status: int, **fields: object) -> list[bytes]:
        return sentences("VDM", mmsi=mmsi, status=status, **fields)

    first = [
        b"\xff\x00 noise of the line",
        REAL,  # another ship's
        DAMAGED,
        *own(0),  # not known to be the ship's own yet
        *static(fleet.imo, mmsi),  # two parts
        b"!AIVDM,2,1,9,A,55cut short",
        *own(0, lat=-33.5, lon=151.25, speed=14.2, course=271.0, heading=270),
        *own(1, lat=91.0, lon=181.0, speed=102.3, course=360.0, heading=511),
    ]
    async with nmea_server(first, own(5, lat=-33.6, lon=151.3)) as source:
        fleet.ais = source
        async with fleet.running(fleet.ship):

            def stored() -> list[Position]:
                log = fleet.read(fleet.ship, f"ships.{fleet.imo}.location")
                found = [POSITIONS.decode(each.value) for each in log]
                return [each for each in found if each.device.device_id == f"ais-{mmsi}"]

            await until(lambda: len(stored()) >= 3, what="three positions")
    here, nowhere, again = stored()
    assert here.geo_location is not None and here.speed_over_ground is not None
    assert (round(here.geo_location.latitude, 4), round(here.geo_location.longitude, 4)) == (-33.5, 151.25)
    assert (here.heading, here.navigation_status) == (270, 0)
    assert nowhere.geo_location is None and nowhere.heading is None
    assert nowhere.speed_over_ground is None and nowhere.course_over_ground is None
    assert (again.navigation_status, again.device.sequence) == (5, 2)


async def test_an_alert_that_a_person_clears_stays_so_after_a_restart(fleet: Fleet) -> None:
    """An alert that a person clears stays cleared after a restart."""
    box = fleet.new_box()

    def told() -> list[Alert]:
        return [ALERTS.decode(each.value) for each in fleet.read(fleet.ship, f"alerts.{fleet.ship}")]

    with fleet.publisher(fleet.ship) as device:
        async with fleet.running(fleet.ship) as bridge:
            await device.publish(readings_topic(box), reading(0, number=box, at=now(), **WATER))
            await handled(bridge, 1)
            async with await Cluster.open(fleet.kafka[fleet.ship], client_id="operator") as cluster:
                opened = chosen(await read_alerts(cluster), box, fleet.ship)
                ended = await place_order(
                    cluster, fleet.kafka[fleet.ship], order_for(opened, "the sensor is wet", now()), wait=60
                )
            assert is_by_hand(ended) and ended.alert_id == opened.alert_id
        async with fleet.running(fleet.ship) as bridge:
            await device.publish(readings_topic(box), reading(1, number=box, at=now(), **WATER))
            await handled(bridge, 1)
    assert [(alert.kind, alert.state) for alert in told()] == [("OVERBOARD", "OPENED"), ("OVERBOARD", "CLEARED")]
