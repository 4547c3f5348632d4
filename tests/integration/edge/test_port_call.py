"""A port with three brokers loses one for a minute in the middle of a port call of 200 boxes."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from edge.bridge import Bridge
from edge.mqtt import session as mqtt
from edge.mqtt.acks import AckOrder, PendingAck
from edge.mqtt.session import Delivery
from fairlead.local.sites import LocalSites, SiteSpec
from tests.support.edge.fleet import EVENTS, Fleet, Publisher, make_fleet, now, until
from tests.support.edge.samples import reading, readings_topic

pytestmark = [
    pytest.mark.long,
    pytest.mark.integration,
    pytest.mark.processes("stops one broker of three"),
]

BOXES = 200
STOPPED = 2  # node id
AWAY = 60.0  # seconds without that broker
BEFORE = 8.0  # seconds of the port call with all three
EVERY = 2.0  # seconds between readings of a box
LONGEST = 10.0  # seconds that any message may wait for its PUBACK


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSites]:
    """Run ``trio`` with three brokers; the ship has its logs there too, as it lies alongside."""
    local = LocalSites(tmp_path_factory.mktemp("trio"))
    local.up([SiteSpec("trio", ("bridge",), brokers=3), SiteSpec("aboard", ("bridge",))])
    yield local
    local.down(purge=True)


class Waits:
    """Time from the publishing of each message to the bridge's PUBACK, by the messages' own timestamps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds: dict[str, float] = {}  # the longest by topic
        self.slowest: tuple[float, str] = (0.0, "")
        self._published: dict[PendingAck, tuple[float, str]] = {}
        waits = self

        class TimedOrder(AckOrder):
            def finish(self, ack: PendingAck) -> list[int]:
                waiting = list(self._waiting)
                acknowledged = super().finish(ack)
                for each in waiting[: len(acknowledged)]:
                    waits.acknowledged(each)
                return acknowledged

        monkeypatch.setattr(mqtt, "AckOrder", TimedOrder)
        init = mqtt.MqttSession.__init__

        def timed(session: mqtt.MqttSession, *args: Any, **kwargs: Any) -> None:
            take = kwargs["on_message"]

            def noting(delivery: Delivery) -> None:
                waits.taken(delivery)
                take(delivery)

            init(session, *args, **{**kwargs, "on_message": noting})

        monkeypatch.setattr(mqtt.MqttSession, "__init__", timed)

    def taken(self, delivery: Delivery) -> None:
        if delivery.ack is not None:
            body = json.loads(delivery.payload)
            moment = body["device"]["deviceDateTime"] if "device" in body else body["payload"]["eventDateTime"]
            self._published[delivery.ack] = dt.datetime.fromisoformat(moment).timestamp(), delivery.topic

    def acknowledged(self, ack: PendingAck) -> None:
        published, topic = self._published.pop(ack)
        waited = time.time() - published
        self.seconds[topic] = max(waited, self.seconds.get(topic, 0.0))
        self.slowest = max(self.slowest, (waited, topic))

    @property
    def open(self) -> int:
        return len(self._published)


@dataclasses.dataclass
class Box:
    number: str
    aboard: bool = False
    told: int = 0  # readings so far
    moving: asyncio.Lock = dataclasses.field(default_factory=asyncio.Lock)  # keeps moves and reports apart


class PortCall:
    """The boxes' readings and moves; each box reports from its present place."""

    def __init__(self, fleet: Fleet, quay: Publisher, deck: Publisher) -> None:
        self.boxes = [Box(fleet.new_box()) for _ in range(BOXES)]
        self._fleet = fleet
        self._quay = quay
        self._deck = deck
        self.over = asyncio.Event()

    async def enter(self) -> None:
        await self._quay.publish(EVENTS, *(self._fleet.event("GTIN", box.number) for box in self.boxes))

    async def report(self) -> None:
        """Publish one reading of each box every few seconds, until the port call is over."""
        while not self.over.is_set():
            began = time.monotonic()
            for box in self.boxes:
                async with box.moving:
                    place = self._deck if box.aboard else self._quay
                    number, box.told = box.told, box.told + 1
                    payload = reading(number, number=box.number, at=now(), name=f"dev-{box.number}")
                    await place.publish(readings_topic(box.number), payload)
            await asyncio.sleep(max(0.0, EVERY - (time.monotonic() - began)))

    async def move(self, pause: float) -> None:
        """Load every box, and discharge every other one again."""
        for box in self.boxes:
            async with box.moving:
                await self._quay.publish(EVENTS, self._fleet.event("LOAD", box.number))
                box.aboard = True
            await asyncio.sleep(pause)
        for box in self.boxes[::2]:
            async with box.moving:
                await self._deck.publish(EVENTS, self._fleet.event("DISC", box.number))
                box.aboard = False
            await asyncio.sleep(pause)


async def lose_a_broker(trio: LocalSites) -> None:
    """Stop one broker cleanly, and start it again after a minute."""
    await asyncio.sleep(BEFORE)
    process = psutil.Process(trio.status()["trio"].pids[f"kafka-{STOPPED}"])
    process.terminate()
    await asyncio.to_thread(process.wait, 60)
    await asyncio.sleep(AWAY)
    await asyncio.to_thread(trio.restart, "trio", broker=STOPPED)


async def settled(*bridges: Bridge) -> None:
    """Wait until no message is under way and none waits for custody."""

    def open_ends() -> list[int]:
        figures = [bridge.snapshot() for bridge in bridges]
        return [each[name] for each in figures for name in ("unacked", "strays_waiting", "events_waiting")]

    try:
        await until(lambda: not any(open_ends()))
    except AssertionError:
        raise AssertionError(f"not everything is in its log: {[bridge.snapshot() for bridge in bridges]}") from None


async def test_a_broker_that_stops_in_a_port_call_holds_nobody_up_and_loses_nothing(
    trio: LocalSites, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A broker that stops during a port call delays nobody for long and loses nothing."""
    places = {"alpha": "trio", "beta": "aboard"}
    fleet = make_fleet(
        lambda _, user: trio.kafka("trio", user), lambda place, user: trio.mqtt(places[place], user), tmp_path
    )
    waits = Waits(monkeypatch)
    async with fleet.running(fleet.port) as ashore, fleet.running(fleet.ship) as afloat:
        with fleet.publisher(fleet.port) as quay, fleet.publisher(fleet.ship) as deck:
            call = PortCall(fleet, quay, deck)
            await call.enter()
            await until(lambda: ashore.snapshot()["custody"]["held"] == BOXES, what="all boxes in")
            waits.seconds.clear()
            waits.slowest = (0.0, "")
            async with asyncio.TaskGroup() as group:
                reports = group.create_task(call.report())
                broker = group.create_task(lose_a_broker(trio))
                await call.move((BEFORE + AWAY) / (1.5 * BOXES))
                await broker
                call.over.set()
                await reports
            await settled(ashore, afloat)
            custody = [bridge.snapshot()["custody"] for bridge in (ashore, afloat)]
    readings = sum(box.told for box in call.boxes)
    with capsys.disabled():
        slowest = f"slowest {waits.slowest[0]:.1f} s ({waits.slowest[1]})"
        strays = f"strays {ashore.metrics.strays} ashore, {afloat.metrics.strays} aboard"
        print(f"\n{readings} readings, {BOXES + BOXES // 2} moves; {slowest}; {strays}")  # noqa: T201 - its figures
    assert waits.open == 0
    assert waits.slowest[0] <= LONGEST, waits.slowest
    assert [states["broken"] for states in custody] == [0, 0]
    assert [states["held"] for states in custody] == [BOXES // 2, BOXES // 2]
    assert fleet.read(fleet.port, f"deadletters.{fleet.port}") == []
    assert fleet.read(fleet.port, f"deadletters.{fleet.ship}") == []
    for box in call.boxes:
        assert sorted(fleet.sequences(fleet.port, box.number)) == list(range(box.told)), box.number
