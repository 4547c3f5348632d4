"""A ship's bridge appends digests of its boxes to the ship's own log, and goes on after a restart."""

from __future__ import annotations

import datetime as dt

import msgspec
import pytest

from fairlead.records.digest import Digest, decode_digest
from tests.support.edge.fleet import Fleet, Publisher, handled, now, until
from tests.support.edge.samples import device, reading, readings_topic

pytestmark = pytest.mark.integration

MINUTE = dt.timedelta(minutes=1)


async def test_a_ship_tells_of_its_boxes_every_quarter_of_an_hour(fleet: Fleet) -> None:
    box, other = fleet.new_box(), fleet.new_box()
    began = now().replace(microsecond=0) - 40 * MINUTE
    chilled = {"setpoints": {"temperature": 4.0}, "measurements": {"supplyTemperature": 4.25}}
    with fleet.publisher(fleet.ship) as gateway:
        async with fleet.running(fleet.ship) as bridge:
            for number in (box, other):
                payload = reading(0, number=number, at=began - MINUTE, name=number, **chilled)
                await gateway.publish(readings_topic(number), payload)
            await handled(bridge, 2)
            await sail(fleet, gateway, 0, began)
            await until(lambda: len(digests(fleet)) == 1, what="the first digest")
        async with fleet.running(fleet.ship) as bridge:
            await gateway.publish(
                readings_topic(box), reading(1, number=box, at=began + 9 * MINUTE, name=box, **chilled)
            )
            await sail(fleet, gateway, 1, began + 10 * MINUTE)
            await handled(bridge, 2)
            await sail(fleet, gateway, 2, began + 16 * MINUTE)
            await until(lambda: len(digests(fleet)) == 2, what="the digest after the restart")
            await gateway.publish(
                readings_topic(box), reading(2, number=box, at=began + 17 * MINUTE, name=box, **chilled)
            )
            await handled(bridge, 4)
            await sail(fleet, gateway, 3, began + 32 * MINUTE)
            await until(lambda: len(digests(fleet)) == 3, what="the third digest")
    first, second, third = digests(fleet)
    assert [first.as_of_date_time, second.as_of_date_time] == [began, began + 16 * MINUTE], "none after 10 minutes"
    assert (first.whole, second.whole, third.whole) == (True, True, False)
    assert [told(each) for each in (first, second, third)] == [
        {box: began - MINUTE, other: began - MINUTE},
        {box: began + 9 * MINUTE, other: began - MINUTE},
        {box: began + 17 * MINUTE},
    ]
    assert {one.supply_temperature for one in first.boxes} == {4.25}
    assert first.vessel_imo_number == fleet.imo


async def sail(fleet: Fleet, gateway: Publisher, sequence: int, time: dt.datetime) -> None:
    """Publish the ship's position; its time is the ship's clock."""
    report = {"vesselIMONumber": fleet.imo, "device": device(sequence, at=time, name=fleet.ship)}
    await gateway.publish(f"fairlead/v1/ships/{fleet.imo}/position", msgspec.json.encode(report))


def digests(fleet: Fleet) -> list[Digest]:
    return [decode_digest(record.value) for record in fleet.read(fleet.ship, f"ships.{fleet.imo}.digest")]


def told(digest: Digest) -> dict[str, dt.datetime]:
    return {box.equipment_reference: box.reading_date_time for box in digest.boxes}
