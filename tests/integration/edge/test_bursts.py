"""Devices store and forward: several devices send a day of readings at the same time."""

from __future__ import annotations

import asyncio
import datetime as dt
import json

import pytest

from tests.support.edge.fleet import EVENTS, Copier, Fleet, Publisher, handled, now, until
from tests.support.edge.samples import reading, readings_topic

pytestmark = pytest.mark.integration

STEP = dt.timedelta(minutes=5)
BEFORE = 24  # readings before the silence
STORED = 288  # readings during the silence: one day
REPEATED = 10  # sent again when the connection is back
REBOOT = 200  # the stored reading that begins a new boot
WARM = range(100, 124)
BAND = {"setpoints": {"temperature": 4.0}}
GOOD, BAD = ({**BAND, "measurements": {"supplyTemperature": value}} for value in (4.0, 9.0))


class Device:
    """The device of one box, with its measurements from two hours before the silence until now."""

    def __init__(self, box: str, began: dt.datetime, *, reboots: bool) -> None:
        self.box = box
        self.payloads: list[bytes] = []
        self.names: list[tuple[int, int]] = []
        for nth in range(BEFORE + STORED):
            stored = nth - BEFORE
            boot, sequence = (2, stored - REBOOT) if reboots and stored >= REBOOT else (1, nth)
            fields = BAD if stored in WARM else GOOD
            at = began + nth * STEP
            self.payloads.append(reading(sequence, number=box, boot=boot, at=at, name=f"dev-{box}", **fields))
            self.names.append((boot, sequence))

    async def publish(self, broker: Publisher, first: int, last: int) -> None:
        await broker.publish(readings_topic(self.box), *self.payloads[first:last])


def position(fleet: Fleet, sequence: int, at: dt.datetime) -> bytes:
    body = {
        "vesselIMONumber": fleet.imo,
        "device": {"deviceId": "gps", "bootId": 1, "sequence": sequence, "deviceDateTime": at.isoformat()},
        "geoLocation": {"latitude": -30.0, "longitude": 155.0},
        "speedOverGround": 18.0,
    }
    return json.dumps(body).encode()


async def test_a_day_of_readings_at_once_is_stored_and_judged_in_order(fleet: Fleet) -> None:
    """A day of readings that arrives at once is stored, and judged for alerts, in order."""
    boxes = [fleet.new_box() for _ in range(5)]
    port, ship = fleet.port, fleet.ship
    copier = Copier(fleet, port, ship)
    began = now().replace(microsecond=0) - (BEFORE + STORED) * STEP
    devices = [Device(box, began, reboots=box == boxes[0]) for box in boxes]
    silent, live = devices[:2], devices[2:]
    async with fleet.running(port) as ashore, fleet.running(ship) as afloat:
        with fleet.publisher(port) as quay, fleet.publisher(ship) as deck, fleet.publisher(ship) as other:
            for code in ("GTIN", "LOAD"):
                await quay.publish(EVENTS, *(fleet.event(code, box) for box in boxes))
            await handled(ashore, 2 * len(boxes))
            await copier.copy(f"custody.{port}", *map(fleet.log, boxes))
            await until(lambda: afloat.snapshot()["custody"]["held"] == len(boxes), what="custody on board")

            async def sail(first: int, last: int, aboard: list[Device]) -> None:
                """Let the ship and these boxes report, from one moment to another."""
                for nth in range(first, last, 12):
                    for device in aboard:
                        await device.publish(deck, nth, min(nth + 12, last))
                    at = began + (min(nth + 12, last) - 1) * STEP
                    await deck.publish(f"fairlead/v1/ships/{fleet.imo}/position", position(fleet, nth, at))

            await sail(0, BEFORE, devices)
            await sail(BEFORE, BEFORE + STORED, live)
            await handled(afloat, deck.published)
            first = BEFORE - REPEATED
            end = BEFORE + STORED
            await asyncio.gather(silent[0].publish(deck, first, end), silent[1].publish(other, first, end))
            await handled(afloat, deck.published + other.published)
            assert afloat.metrics.repeats == REPEATED * len(silent)
    for device in devices:
        stored = fleet.read(ship, fleet.log(device.box))
        assert [(r.body["device"]["bootId"], r.body["device"]["sequence"]) for r in stored] == device.names
        assert not any("late" in record.headers for record in stored)
    alerts = [record.body for record in fleet.read(ship, f"alerts.{ship}")]
    for device in silent:
        own = [(a["kind"], a["state"]) for a in alerts if a["equipmentReference"] == device.box]
        assert own == [
            ("SILENCE", "OPENED"),
            ("SILENCE", "CLEARED"),
            ("TEMPERATURE", "OPENED"),
            ("TEMPERATURE", "CLEARED"),
        ]
    opened = {a["equipmentReference"]: a["eventDateTime"] for a in alerts if a["kind"] == "TEMPERATURE"}
    assert set(opened) == set(boxes)
    raised = [a["eventDateTime"] for a in alerts if (a["kind"], a["state"]) == ("TEMPERATURE", "OPENED")]
    wanted = began + (BEFORE + WARM.start) * STEP + dt.timedelta(hours=1)
    assert {dt.datetime.fromisoformat(at) for at in raised} == {wanted}
