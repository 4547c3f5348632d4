"""A bridge with intake processes: whatever is killed or changed, every reading is in its log once, and in order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

import psutil
import pytest
from confluent_kafka import KafkaException

from edge.bridge import Bridge
from fairlead.local.sites import LocalSites
from tests.integration.edge.fleet import EVENTS, Fleet, Publisher, assert_all_there_once, child, enter, until

pytestmark = pytest.mark.integration

BOXES = 6


async def stream(device: Publisher, boxes: list[str], rounds: range) -> None:
    """Readings of several boxes in turn."""
    for first in range(rounds.start, rounds.stop, 5):
        part = range(first, min(first + 5, rounds.stop))
        await asyncio.gather(*(device.readings(box, part) for box in boxes))


def pids(bridge: Bridge) -> list[int]:
    return [each["pid"] for each in bridge.snapshot()["intakes"]]


async def all_stored(fleet: Fleet, boxes: list[str], count: int) -> None:
    """Wait until every reading is in its log, which need not be there yet."""

    def stored() -> bool:
        with contextlib.suppress(KafkaException):
            return all(len(fleet.sequences(fleet.port, box)) >= count for box in boxes)
        return False

    await until(stored, what="every reading in its log")


async def test_readings_are_shared_and_stay_in_order(fleet: Fleet) -> None:
    fleet.intakes = 2
    with fleet.publisher(fleet.port) as device:
        async with fleet.running(fleet.port) as bridge:
            boxes = await enter(fleet, device, BOXES)
            await stream(device, boxes, range(60))
            await device.publish("fairlead/v1/nothing", b"{}")
            await device.publish(EVENTS, *(fleet.event("GTOT", box) for box in boxes))
            await until(lambda: bridge.metrics.grants == BOXES, what="all boxes gone")
            running = pids(bridge)
            taken = [each["taken"] for each in bridge.snapshot()["intakes"]]
            assert min(taken) > BOXES * 60 // 3
            assert bridge.metrics.strays == 0 or bridge.metrics.drained == bridge.metrics.strays
            await until(lambda: bridge.metrics.dead_letters == 1, what="the dead letter")
            assert bridge.snapshot()["passed_unordered"] == 0
    assert not any(psutil.pid_exists(pid) for pid in running)
    assert_all_there_once(fleet, boxes, 60)  # the gate-outs have overtaken no reading


async def publishing(device: Publisher, boxes: list[str], rounds: range, share: float) -> asyncio.Task[None]:
    """Publish in the background; returns when a share of it is out."""
    already = device.published
    task = asyncio.create_task(stream(device, boxes, rounds))
    await until(lambda: device.published >= already + len(boxes) * len(rounds) * share, what="the middle of publishing")
    return task


async def test_an_intake_is_killed(fleet: Fleet) -> None:
    fleet.intakes = 2
    with fleet.publisher(fleet.port) as device:
        async with fleet.running(fleet.port) as bridge:
            boxes = await enter(fleet, device, BOXES)
            sending = await publishing(device, boxes, range(60), 0.3)
            os.kill(pids(bridge)[0], signal.SIGKILL)
            await sending
            await until(lambda: bridge.snapshot()["intakes"][0]["restarts"] == 1, what="another intake")
            await all_stored(fleet, boxes, 60)
            assert bridge.snapshot()["passed_unordered"] == 0
    assert_all_there_once(fleet, boxes, 60)


async def test_the_mqtt_broker_is_started_again_and_has_forgotten_the_sharing(fleet: Fleet, sites: LocalSites) -> None:
    """Mosquitto 2.0 keeps no shared subscription over a restart: what comes before the intakes are back is in a net."""
    fleet.intakes = 2
    with fleet.publisher(fleet.port) as device:
        async with child(fleet, fleet.port) as bridge:
            boxes = await enter(fleet, device, BOXES)
            await stream(device, boxes, range(10))
            everybody = [psutil.Process(bridge.pid), *psutil.Process(bridge.pid).children()]
            for process in everybody:
                process.suspend()  # so that none of them is back before the devices are
            try:
                await asyncio.to_thread(sites.restart, "alpha", "mqtt")
                await stream(device, boxes, range(10, 20))
            finally:
                for process in everybody:
                    process.resume()
            await stream(device, boxes, range(20, 30))
            await all_stored(fleet, boxes, 30)
            bridge.send_signal(signal.SIGTERM)
            assert await bridge.wait() == 0
    assert_all_there_once(fleet, boxes, 30)


async def test_the_bridge_is_killed_and_its_intakes_are_changed(fleet: Fleet) -> None:
    """Sessions of intakes that are not wanted any more are emptied and ended: from 2 to 0, to 3, to 1."""
    with fleet.publisher(fleet.port) as device:
        boxes: list[str] = []
        first = 0
        for intakes in (2, 0, 3, 1):
            fleet.intakes = intakes
            async with child(fleet, fleet.port) as bridge:
                children = psutil.Process(bridge.pid).children()
                assert len(children) == intakes
                boxes = boxes or await enter(fleet, device, BOXES)
                sending = await publishing(device, boxes, range(first, first + 30), 0.5)
                bridge.send_signal(signal.SIGKILL)
                await bridge.wait()
                await sending
                await until(lambda: not any(each.is_running() for each in children), what="the end of the intakes")  # noqa: B023
            first += 30
        fleet.intakes = 0
        async with fleet.running(fleet.port) as last:
            await stream(device, boxes, range(first, first + 5))
            await all_stored(fleet, boxes, first + 5)
            await until(lambda: last.snapshot()["unacked"] == 0, what="every acknowledgement")
    assert_all_there_once(fleet, boxes, first + 5)


async def test_what_cannot_be_used_is_kept_once(fleet: Fleet) -> None:
    """While the bridge is away all of it is queued twice, for the intakes and for a net."""
    fleet.intakes = 2
    with fleet.publisher(fleet.port) as device:
        async with fleet.running(fleet.port):
            pass
        await asyncio.gather(*(device.publish("fairlead/v1/nonsense", f"{n}".encode()) for n in range(20)))
        async with fleet.running(fleet.port) as bridge:
            await until(lambda: bridge.metrics.received >= 40, what="both copies of each")
            await device.publish("fairlead/v1/nonsense", b"last")  # behind everything that was queued
            await until(lambda: bridge.metrics.dead_letters > 20, what="the last one")
            await until(lambda: not bridge.snapshot()["unacked"], what="every acknowledgement")
    letters = [letter.body["payload"] for letter in fleet.read(fleet.port, f"deadletters.{fleet.port}")]
    assert len(letters) == len(set(letters)) == 21
