"""A port with a real broker, its topology's rules applied, and the board served over HTTP in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from acl.apply import apply_topology
from board.server import Listen, serving
from board.service import BoardService
from board.sign_in import Throttle
from board.viewer import LOCAL
from fairlead.kafka.admin import create_logs
from fairlead.local.sites import LocalSites, SiteSpec
from fairlead.records import encode
from fairlead.records.alert import Alert, Evidence
from fairlead.records.event import Event, EventMetadata, EventPayload
from fairlead.records.reading import Device, GeoLocation
from fairlead.records.ship import Position
from tests.support.openapi import check_answer
from tests.support.sites import NewSites
from tests.support.tables import Rows, fill
from tests.support.waits import PATIENCE
from topologies.context import Context, open_topology
from topologies.users import service_users

PORT, SHIP, IMO = "tokyo", "duck-star", "9074729"
CUSTOMERS = tuple(f"customer{number}" for number in range(20))
TOPOLOGY = f"""
name: board
title: Board Line
sites:
  {PORT}: {{kind: port, title: Port of Tokyo, unlocode: JPTYO}}
  {SHIP}: {{kind: ship, title: MV Duck Star, imo: "{IMO}"}}
streams:
  containers: {{insert_point: moves, owners: [BIGU]}}
links:
  - {{from: {SHIP}, to: {PORT}, streams: {{alerts: all, custody: all, events: all, ships: all}}}}
  - {{from: {SHIP}, to: {PORT}, when: berthed, streams: {{containers: all}}}}
customers:
{"".join(f"  {name}: {{feed_at: {PORT}, table: true}}" + chr(10) for name in CUSTOMERS)}
users:
  operator: {{groups: [operators], at: [{PORT}]}}
  analyst: {{groups: [analysts], at: [{PORT}]}}
  stranger: {{at: [{PORT}]}}
shore: {{at: {PORT}}}
board: {{at: [{PORT}], read: "g:analysts | g:operators", operate: "g:operators"}}
"""
START = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)


@dataclass
class World:
    """The site, the board's address, and ways to sign in and to raise alerts."""

    context: Context
    board: BoardService
    address: str
    local: LocalSites = field(repr=False)

    @contextlib.contextmanager
    def browser(self, name: str = "") -> Iterator[httpx.Client]:
        """Give an HTTP client that has signed in; without a name as nobody. It fails on an answer that the OpenAPI
        document does not name."""
        hooks = {"response": [check_answer]}
        with httpx.Client(base_url=self.address, timeout=PATIENCE, event_hooks=hooks) as client:
            if name:
                answer = self.sign_in(client, name, self.password(name))
                assert answer.status_code == 303, answer.text
            yield client

    def sign_in(self, client: httpx.Client, name: str, password: str) -> httpx.Response:
        return client.post("/sign-in", data={"name": name, "password": password, "next": "/"})

    def password(self, name: str) -> str:
        secret = self.context.resolver.kafka(PORT, name).password
        assert secret is not None
        return secret.get_secret_value()

    def local_link(self) -> str:
        return f"{self.address}/local/{self.board.sessions.link_for(LOCAL.name)}"

    def append(self, topic: str, value: bytes) -> None:
        """Append a record as the administrator."""
        endpoint = self.context.resolver.kafka(PORT, "admin")
        create_logs(endpoint, {topic: {}})
        producer = Producer(endpoint.librdkafka())
        failed: list[object] = []
        producer.produce(topic, value, on_delivery=lambda error, _: failed.append(error) if error else None)
        assert producer.flush(PATIENCE) == 0
        assert not failed

    def read(self, topic: str) -> list[bytes]:
        """Wait for a topic and its first records, as the administrator; return what it has then."""
        endpoint = self.context.resolver.kafka(PORT, "admin")
        consumer = Consumer({**endpoint.librdkafka(), "group.id": "admin.board-tests", "auto.offset.reset": "earliest"})
        found: list[bytes] = []
        end = time.monotonic() + PATIENCE
        try:
            consumer.assign([TopicPartition(topic, 0, 0)])
            while not found:
                assert time.monotonic() < end, f"waited for a record of {topic}"
                found += [m.value() or b"" for m in consumer.consume(100, 0.5) if m.error() is None]
        finally:
            consumer.close()
        return found

    def raise_alert(self, alert: Alert) -> None:
        self.append(f"alerts.{alert.raised_at}", encode(alert))

    def publish(self, event: Event) -> None:
        self.append(f"events.{event.metadata.publisher}", encode(event))


def port_call(code: str, when: dt.datetime, port: str = "JPTYO", voyage: str = "001", **changes: object) -> Event:
    """An ARRI or DEPA of the ship, or a LOAD or DISC of a box with ``equipment_reference``, as the port tells it."""
    of_ship = code in ("ARRI", "DEPA")
    fields: dict[str, object] = {
        "event_date_time": when,
        "un_location_code": port,
        "vessel_imo_number": IMO,
        "voyage_reference": voyage,
        "transport_event_type_code" if of_ship else "equipment_event_type_code": code,
    }
    return Event(
        metadata=EventMetadata(
            event_id=f"{code}-{when.isoformat()}-{port}-{changes}",
            event_created_date_time=min(when, START),
            event_type="TRANSPORT" if of_ship else "EQUIPMENT",
            publisher=PORT,
        ),
        payload=EventPayload(**(fields | changes)),  # type: ignore[arg-type]
    )


def fix(when: dt.datetime, latitude: float, longitude: float) -> Position:
    """A position of the ship."""
    return Position(
        vessel_imo_number=IMO,
        device=Device(device_id="gps", boot_id=1, sequence=1, device_date_time=when),
        geo_location=GeoLocation(latitude=latitude, longitude=longitude),
        speed_over_ground=17.2,
        course_over_ground=215.0,
    )


def sail(world: World) -> None:
    """Let the ship arrive at Tokyo, load, leave, and be on its way to Singapore and Sydney."""
    day = dt.timedelta(days=1)
    came = START - 4 * day
    for event in (
        port_call("ARRI", came - day / 8, event_classifier_code="PLN"),
        port_call("ARRI", came),
        *(port_call("DISC", came + day / 8, equipment_reference=f"BIGU10000{n}0") for n in range(3)),
        *(port_call("LOAD", came + day / 4, equipment_reference=f"BIGU10001{n}0") for n in range(5)),
        port_call("DEPA", came + day),
        port_call("ARRI", came + 8 * day, "SGSIN", "002", event_classifier_code="PLN"),
        port_call("ARRI", came + 8.2 * day, "SGSIN", "002", event_classifier_code="EST"),
        port_call("DEPA", came + 9 * day, "SGSIN", "002", event_classifier_code="PLN"),
        port_call("ARRI", came + 19 * day, "AUSYD", "003", event_classifier_code="PLN"),
    ):
        world.publish(event)
    way = ((35.6, 139.8), (34.6, 139.6), (32.4, 135.2), (29.1, 130.0), (25.6, 125.4), (22.2, 121.9), (19.5, 119.6))
    for at, place in enumerate(way):
        world.append(f"ships.{IMO}.location", encode(fix(came + day + at * day / 2, *place)))


def alert(number: str = "BIGU1000010", **changes: object) -> Alert:
    """An overboard alert of the ship, with its first state."""
    values: dict[str, object] = {
        "alert_id": f"OVERBOARD-{number}-1-0",
        "kind": "OVERBOARD",
        "severity": "CRITICAL",
        "state": "OPENED",
        "equipment_reference": number,
        "raised_at": SHIP,
        "event_date_time": START,
        "raised_date_time": START,
        "vessel_imo_number": IMO,
        "evidence": (Evidence(name="immersed", weight=0.9, detail="in water for 30 s"),),
    }
    return Alert(**(values | changes))  # type: ignore[arg-type]


TABLES: Rows = {
    "sites": [
        {"site": PORT, "kind": "port", "title": "Port of Tokyo", "un_location_code": "JPTYO"},
        {"site": SHIP, "kind": "ship", "title": "MV Duck Star", "vessel_imo_number": IMO},
    ],
    "containers_now": [
        {
            "equipment_reference": "BIGU1000010",
            "holder": PORT,
            "holder_kind": "port",
            "un_location_code": "JPTYO",
            "device_date_time": START,
            "seen_date_time": START,
            "setpoint_temperature": -18.0,
            "supply_temperature": -11.5,
            "is_connected_to_power_source": False,
            "booking_reference": "BKG0000001",
        },
    ],
    "bookings": [
        {
            "booking_reference": "BKG0000001",
            "equipment_reference": "BIGU1000010",
            "customer": "customer0",
            "commodity": "<script>alert(1)</script>",
            "status": "CONFIRMED",
            "valid_from": START - dt.timedelta(days=9),
            "is_current": True,
        },
    ],
    **{name: [] for name in ("positions", "port_calls", "dock_movements", "alerts_now", "excursions", "outlook")},
}
"""Rows of the tables that the port's page reads: one frozen box on the dock without power."""


@contextlib.contextmanager
def served(board: BoardService) -> Iterator[str]:
    """Serve a board in a thread with an event loop of its own; give its address."""
    ready, ended = threading.Event(), threading.Event()
    found: list[str] = []
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def run() -> None:
        async with serving(board, Listen(port=0)) as address:
            found.append(address)
            ready.set()
            await stop.wait()

    def work() -> None:
        try:
            loop.run_until_complete(run())
        finally:
            loop.close()
            ready.set()
            ended.set()

    threading.Thread(target=work, name="board").start()
    assert ready.wait(PATIENCE)
    assert found, "the board could not start"
    try:
        yield found[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        assert ended.wait(PATIENCE)


@pytest.fixture(scope="session")
def started(tmp_path_factory: pytest.TempPathFactory, new_sites: NewSites) -> Iterator[World]:
    home = tmp_path_factory.mktemp("board")
    file = home / "board.yaml"
    file.write_text(TOPOLOGY, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAIRLEAD_HOME", str(home))
        context = open_topology(str(file))
        local = new_sites(context.folder)
        local.up([SiteSpec(PORT, tuple(service_users(context.topology, PORT)))])
        try:
            apply_topology(context.topology, context.resolver, sites=[PORT])
            fill(context.folder, TABLES)
            board = BoardService(context, PORT)
            with served(board) as address:
                world = World(context, board, address, local)
                world.append(f"alerts.{PORT}", b"{}")  # so that the log exists; the board logs it and goes on
                sail(world)
                yield world
        finally:
            local.down(purge=True)


@pytest.fixture
def world(started: World) -> World:
    """Give the board of the session, without any failed sign-ins."""
    started.board.throttle = Throttle()
    return started
