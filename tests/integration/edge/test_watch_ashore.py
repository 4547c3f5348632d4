"""The alert engine in a real bridge of a port: it watches the boxes in the yard, from the gate to the ship."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from edge.alerts.operator import chosen, order_for, place_order, read_alerts
from fairlead.kafka.client.cluster import Cluster
from fairlead.records import decoder
from fairlead.records.alert import Alert
from tests.support.edge.fleet import EVENTS, Fleet, Publisher, enter, handled, now, until
from tests.support.edge.samples import reading, readings_topic

pytestmark = pytest.mark.integration

ALERTS = decoder(Alert)
CHILLED: dict[str, Any] = {"setpoints": {"temperature": 4.0}, "measurements": {"supplyTemperature": 4.0}}
UNPLUGGED: dict[str, Any] = {**CHILLED, "isPowered": False, "isConnectedToPowerSource": False}


async def unplugged(device: Publisher, box: str, *minutes_ago: int) -> None:
    """Publish a reading of an unplugged box for each of these times."""
    began = now()
    times = [began - dt.timedelta(minutes=ago) for ago in minutes_ago]
    readings = [reading(n, number=box, at=at, name=f"d-{box}", **UNPLUGGED) for n, at in enumerate(times)]
    await device.publish(readings_topic(box), *readings)


async def test_a_box_without_power_in_the_yard_is_told_until_it_has_power_or_leaves(fleet: Fleet) -> None:
    """An unplugged box raises an alert, which a person may acknowledge and which its plug or its LOAD ends; a box that
    is not in the yard raises none.
    """

    def told() -> list[tuple[str, str, str]]:
        found = [ALERTS.decode(each.value) for each in fleet.read(fleet.port, f"alerts.{fleet.port}")]
        return [(alert.equipment_reference, alert.kind, alert.state) for alert in found]

    with fleet.publisher(fleet.port) as device:
        async with fleet.running(fleet.port) as bridge:
            stays, leaves = await enter(fleet, device, 2)
            await until(lambda: bridge.snapshot()["custody"]["held"] == 2, what="custody of both boxes")
            for box in (stays, leaves, fleet.new_box()):
                await unplugged(device, box, 70, 40, 9)
            await handled(bridge, 11)
            opened = [(box, "POWER_LOST", "OPENED") for box in (stays, leaves)]
            assert told() == opened
            async with await Cluster.open(fleet.kafka[fleet.port], client_id="operator") as cluster:
                alert = chosen(await read_alerts(cluster), stays, fleet.port, acknowledge=True)
                order = order_for(alert, "a plug is on its way", now(), acknowledge=True)
                seen = await place_order(cluster, fleet.kafka[fleet.port], order, wait=60)
            assert (seen.state, seen.acknowledged_by) == ("UPDATED", order.ordered_by)
            opened.append((stays, "POWER_LOST", "UPDATED"))
            await device.publish(EVENTS, fleet.event("LOAD", leaves))
            await until(lambda: bridge.snapshot()["custody"]["held"] == 1, what="the box on its ship")
            await until(lambda: len(told()) == 4, what="the end of its alert")
            await unplugged(device, leaves, 8, 7, 6, 5, 4)  # what was still on its way is the ship's now
            await handled(bridge, 17)
        async with fleet.running(fleet.port) as bridge:
            powered = reading(3, number=stays, at=now(), name=f"d-{stays}", **CHILLED)
            await device.publish(readings_topic(stays), powered)
            await handled(bridge, 1)
    assert told() == [*opened, (leaves, "POWER_LOST", "CLEARED"), (stays, "POWER_LOST", "CLEARED")]
