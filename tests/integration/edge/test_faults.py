"""Brokers and bridges die: every reading is still in its log once, in order."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import signal
import socket
from collections.abc import Awaitable, Callable

import pytest
from confluent_kafka import KafkaException
from pydantic import SecretStr

from edge.errors import MqttRefusedError
from fairlead.errors import FairleadError
from fairlead.kafka.protocol.errors import AuthenticationFailed
from fairlead.local.sites import LocalSites
from tests.support.edge.fleet import Fleet, Publisher, assert_all_there_once, child, enter, handled, until
from tests.support.waits import PATIENCE

pytestmark = [pytest.mark.long, pytest.mark.integration]

BOXES = 5
ROUNDS = 60


async def stream(device: Publisher, boxes: list[str], rounds: range) -> None:
    """Publish readings of several boxes in turn, each when the MQTT broker has acknowledged the one before."""
    for number in rounds:
        for box in boxes:
            await device.readings(box, range(number, number + 1))


async def during(device: Publisher, work: Awaitable[None], disturb: Callable[[], Awaitable[None]]) -> None:
    """Publish, and run something in the middle; return when both are done."""
    already = device.published
    task = asyncio.ensure_future(work)
    await until(lambda: device.published > already + BOXES * ROUNDS // 4, what="the middle of publishing")
    assert not task.done()
    await disturb()
    await task


async def all_stored(fleet: Fleet, boxes: list[str], count: int) -> None:
    """Wait until the log of each box has so many readings: after a connection was lost, the bridge receives some again,
    so that it may have received as many messages as were published, but not the last ones yet.
    """

    def enough() -> bool:
        with contextlib.suppress(KafkaException):  # a log that its bridge has not created yet
            return all(len(fleet.sequences(fleet.port, box)) >= count for box in boxes)
        return False

    await until(enough, what="every reading in its log")


async def test_kafka_killed_and_started_again(fleet: Fleet, sites: LocalSites) -> None:
    async def kill() -> None:
        await asyncio.to_thread(sites.kill, "alpha", "kafka")
        await asyncio.sleep(1)
        await asyncio.to_thread(sites.restart, "alpha", "kafka")

    with fleet.publisher(fleet.port) as device:
        async with fleet.running(fleet.port) as bridge:
            boxes = await enter(fleet, device, BOXES)
            await handled(bridge, BOXES)
            await during(device, stream(device, boxes, range(ROUNDS)), kill)
            await handled(bridge, device.published)
            await all_stored(fleet, boxes, ROUNDS)
    assert_all_there_once(fleet, boxes, ROUNDS)


async def test_the_mqtt_broker_stopped_and_started_again(fleet: Fleet, sites: LocalSites) -> None:
    with fleet.publisher(fleet.port) as device:
        async with fleet.running(fleet.port) as bridge:
            boxes = await enter(fleet, device, BOXES)
            await stream(device, boxes, range(10))
            await asyncio.to_thread(sites.restart, "alpha", "mqtt")
            await until(lambda: bridge.snapshot()["mqtt_connections"] >= 2, what="reconnecting")
            await stream(device, boxes, range(10, 20))
            await all_stored(fleet, boxes, 20)
            await handled(bridge, device.published)
            assert bridge.snapshot()["mqtt_sessions_lost"] == 0
    assert_all_there_once(fleet, boxes, 20)


async def test_a_bridge_that_is_killed_loses_and_repeats_nothing(fleet: Fleet) -> None:
    with fleet.publisher(fleet.port) as device:
        async with child(fleet, fleet.port) as bridge:
            boxes = await enter(fleet, device, BOXES)

            async def kill() -> None:
                bridge.send_signal(signal.SIGKILL)
                await bridge.wait()

            await during(device, stream(device, boxes, range(ROUNDS)), kill)
        async with child(fleet, fleet.port) as bridge:

            async def kill_again() -> None:
                bridge.send_signal(signal.SIGKILL)
                await bridge.wait()

            await during(device, stream(device, boxes, range(ROUNDS, 2 * ROUNDS)), kill_again)
        async with fleet.running(fleet.port):
            await stream(device, boxes, range(2 * ROUNDS, 2 * ROUNDS + 5))
            await all_stored(fleet, boxes, 2 * ROUNDS + 5)
    assert_all_there_once(fleet, boxes, 2 * ROUNDS + 5)


async def test_a_bridge_that_is_told_to_stop_acknowledges_what_it_stored(fleet: Fleet) -> None:
    """A bridge that is asked to stop acknowledges everything it has stored."""
    with fleet.publisher(fleet.port) as device:
        async with child(fleet, fleet.port) as bridge:
            boxes = await enter(fleet, device, BOXES)

            async def stop() -> None:
                bridge.send_signal(signal.SIGTERM)
                assert await bridge.wait() == 0

            await during(device, stream(device, boxes, range(ROUNDS)), stop)
        async with fleet.running(fleet.port) as last:
            await stream(device, boxes, range(ROUNDS, ROUNDS + 1))  # behind any message that was left or is sent again
            await all_stored(fleet, boxes, ROUNDS + 1)
            await handled(last, BOXES)
            assert last.metrics.repeats == 0
    assert_all_there_once(fleet, boxes, ROUNDS + 1)


async def test_kafka_that_is_away_at_start_is_waited_for(fleet: Fleet, sites: LocalSites) -> None:
    await asyncio.to_thread(sites.kill, "alpha", "kafka")
    bridge, stop = fleet.bridge(fleet.port), asyncio.Event()
    running = asyncio.create_task(bridge.run(stop))
    try:
        await asyncio.sleep(0.5)
        assert not running.done()
        assert not bridge.ready.is_set()
    finally:
        await asyncio.to_thread(sites.restart, "alpha", "kafka")
    await asyncio.wait_for(bridge.ready.wait(), PATIENCE)
    stop.set()
    await running


async def test_an_unreachable_mqtt_broker_is_waited_for_and_said(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        fleet.mqtt[fleet.port] = dataclasses.replace(fleet.mqtt[fleet.port], port=nobody.getsockname()[1])
        bridge, stop = fleet.bridge(fleet.port), asyncio.Event()
        running = asyncio.create_task(bridge.run(stop))
        await until(lambda: "does not answer" in caplog.text, what="a line about the MQTT broker")
        assert fleet.port in caplog.text
        assert not running.done()
        stop.set()
        await running


@pytest.mark.parametrize("which", ["kafka", "mqtt"])
async def test_a_wrong_password_ends_the_bridge_with_a_clear_error(fleet: Fleet, which: str) -> None:
    wrong = SecretStr("not-the-password")
    if which == "kafka":
        fleet.kafka[fleet.port] = dataclasses.replace(fleet.kafka[fleet.port], password=wrong)
    else:
        fleet.mqtt[fleet.port] = dataclasses.replace(fleet.mqtt[fleet.port], password=wrong)
    with pytest.raises(FairleadError) as caught:
        await asyncio.wait_for(fleet.bridge(fleet.port).run(asyncio.Event()), PATIENCE)
    assert isinstance(caught.value, AuthenticationFailed if which == "kafka" else MqttRefusedError)
    assert caught.value.exit_code == 5
    assert fleet.port in str(caught.value)
    assert "not-the-password" not in str(caught.value)
