"""A port and a ship for each test, on the run's two sites, and the actions of a test on them."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import itertools
import json
import secrets
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import paho.mqtt.client as paho
from confluent_kafka import Consumer, TopicPartition
from paho.mqtt.enums import CallbackAPIVersion
from stdnum.imo import calc_check_digit

from edge.ais.feed import AisSource
from edge.alerts.site_alerts import LIMIT
from edge.bridge import Bridge, BridgeSettings
from edge.site_kafka import TopicMaker
from fairlead.kafka.admin import create_logs
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.endpoint import KafkaEndpoint, MqttEndpoint
from fairlead.kafka.protocol.batch import split, zero_base_offset
from fairlead.kafka.protocol.record import NewRecord, encode_batch
from fairlead.kafka.protocol.types import TP
from fairlead.names import container_check_digit
from fairlead.records import encode
from fairlead.records.custody import CUSTODY_ORDERS, CustodyOrder, ledger_entries
from tests.support.edge.samples import event, reading, readings_topic
from tests.support.mqtt_sessions import end_session
from tests.support.waits import PATIENCE
from topologies.model import DEFAULT_STREAMS, InsertPoint, Link, Site, SiteKind, Stream, Topology

EVENTS = "fairlead/v1/events"
_serials = itertools.count(secrets.randbelow(400_000))


class Stored(NamedTuple):
    """A record as an ordinary consumer sees it."""

    offset: int
    key: bytes | None
    value: bytes
    headers: dict[str, bytes]
    timestamp_ms: int

    @property
    def body(self) -> Any:
        return json.loads(self.value)

    @property
    def sequence(self) -> int:
        return int(self.body["device"]["sequence"])


@dataclass
class Fleet:
    """A port and a ship whose sites, logs and IMO number only this test uses.

    A bridge remembers how late messages were by the ship's clock, so tests must not share these.
    """

    kafka: dict[str, KafkaEndpoint]
    mqtt: dict[str, MqttEndpoint]
    brokers: dict[str, MqttEndpoint]  # as ``mqtt``, but a test may change it
    devices: dict[str, MqttEndpoint]
    topology: Topology
    port: str
    ship: str
    imo: str
    snapshots: Path | None = None
    stray_limit: float = LIMIT
    ais: AisSource | None = None
    numbers: Iterator[int] = field(default_factory=itertools.count)
    _events: Iterator[int] = field(default_factory=itertools.count)

    def new_box(self) -> str:
        """Return the number of a container that no test has used."""
        ten = f"BIGU{next(_serials):06d}"
        return ten + container_check_digit(ten)

    def log(self, box: str) -> str:
        return f"{next(n for n, s in self.topology.streams.items() if s.owners)}.{box}"

    def event(self, code: str, box: str, *, event_id: str | None = None, **more: Any) -> bytes:
        where = {"vesselIMONumber": self.imo, "UNLocationCode": "JPTYO"}
        name = event_id or f"{self.port}-{next(self._events)}"
        return event(code, number=box, event_id=name, at=now(), **{**where, **more})

    def bridge(self, site: str) -> Bridge:
        snapshot = self.snapshots / f"bridge.{site}.json" if self.snapshots else None
        settings = BridgeSettings(snapshot, stray_limit=self.stray_limit, ais=self.ais if site == self.ship else None)
        return Bridge(self.topology, site, self.kafka[site], self.mqtt[site], settings)

    @contextlib.asynccontextmanager
    async def running(self, site: str) -> AsyncIterator[Bridge]:
        """Run a bridge in this process and stop it cleanly at the end; raise its error, if it had one."""
        bridge, stop = self.bridge(site), asyncio.Event()
        task = asyncio.create_task(bridge.run(stop))
        ready = asyncio.create_task(bridge.ready.wait())
        try:
            await asyncio.wait((task, ready), timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
            assert bridge.ready.is_set()
            yield bridge
        finally:
            ready.cancel()
            stop.set()
            await task

    @contextlib.contextmanager
    def publisher(self, site: str) -> Iterator[Publisher]:
        publisher = Publisher(self.devices[site])
        try:
            yield publisher
        finally:
            publisher.close()

    def read(self, site: str, topic: str) -> list[Stored]:
        """Return every data record of a log, read by an ordinary client, without markers and fillers."""
        consumer = Consumer(
            {**self.kafka[site].librdkafka(), "group.id": "t", "enable.auto.commit": False, "log_level": 0}
        )
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE)
            consumer.assign([TopicPartition(topic, 0, low)])
            found: list[Stored] = []
            position = low
            while position < high:
                message = consumer.poll(10)
                assert message is not None, f"{topic} stopped at {position} of {high}"
                assert message.error() is None, message.error()
                position = (message.offset() or 0) + 1
                headers = {name: value or b"" for name, value in message.headers() or ()}
                if "fairlead" not in headers:
                    found.append(
                        Stored(position - 1, message.key(), message.value() or b"", headers, message.timestamp()[1])
                    )
            return found
        finally:
            consumer.close()

    def sequences(self, site: str, box: str) -> list[int]:
        return [record.sequence for record in self.read(site, self.log(box))]

    def forget_sessions(self) -> None:
        """End the bridges' MQTT sessions, so that the brokers queue no more messages for them."""
        for site, endpoint in self.brokers.items():
            end_session(endpoint, f"fairlead-bridge-{site}")


class Publisher:
    """One device or many: publish with QoS 1 and wait for the broker's acknowledgement."""

    def __init__(self, endpoint: MqttEndpoint) -> None:
        self.published = 0
        self._client = paho.Client(CallbackAPIVersion.VERSION2)
        self._client.max_inflight_messages_set(100)
        _login(self._client, endpoint)
        self._client.connect(endpoint.host, endpoint.port)
        self._client.loop_start()

    async def publish(self, topic: str, *payloads: bytes, retain: bool = False) -> None:
        await until(self._client.is_connected, what="the device's connection")
        sent = [self._client.publish(topic, payload, 1, retain) for payload in payloads]
        for one in sent:
            if one.rc == paho.MQTT_ERR_NO_CONN:  # it has just been lost: paho keeps the message and sends it again
                one.rc = paho.MQTT_ERR_SUCCESS
            await asyncio.to_thread(one.wait_for_publish, PATIENCE)
            assert one.is_published()
        self.published += len(sent)

    async def readings(self, box: str, sequences: range, **more: Any) -> None:
        await self.publish(
            readings_topic(box), *(reading(n, number=box, at=now(), name=f"dev-{box}", **more) for n in sequences)
        )

    def close(self) -> None:
        self._client.loop_stop()
        self._client.disconnect()


def _login(client: paho.Client, endpoint: MqttEndpoint) -> None:
    if endpoint.user and endpoint.password:
        client.username_pw_set(endpoint.user, endpoint.password.get_secret_value())


async def enter(fleet: Fleet, device: Publisher, count: int) -> list[str]:
    """Let new boxes come in through the port's gate."""
    boxes = [fleet.new_box() for _ in range(count)]
    await device.publish(EVENTS, *(fleet.event("GTIN", box) for box in boxes))
    return boxes


def assert_all_there_once(fleet: Fleet, boxes: list[str], count: int) -> None:
    """Check that the port's log of each box has the readings 0 to ``count - 1``, in order."""
    for box in boxes:
        assert fleet.sequences(fleet.port, box) == list(range(count))


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


async def until(condition: Callable[[], bool], *, what: str = "the condition", within: float = PATIENCE) -> None:
    """Wait until a condition outside this process, or in a bridge of this one, holds."""
    try:
        async with asyncio.timeout(within):
            while not condition():  # noqa: ASYNC110 - mostly about other processes, which set no event
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"{what} did not come about within {within:.0f} s") from None


async def handled(bridge: Bridge, messages: int) -> None:
    """Wait until a bridge has received at least so many messages and acknowledged all of them."""

    def done() -> bool:
        snapshot = bridge.snapshot()
        return bool(snapshot["received"] >= messages and snapshot["unacked"] == 0)

    await until(done, what=f"{messages} messages handled; now {bridge.snapshot()}")


def make_fleet(
    kafka: Callable[..., KafkaEndpoint], mqtt: Callable[..., MqttEndpoint], snapshots: Path | None = None
) -> Fleet:
    token = secrets.token_hex(3)
    port, ship = f"port-{token}", f"ship-{token}"
    six = f"{100_000 + secrets.randbelow(900_000)}"
    imo = six + calc_check_digit(six)
    carried = {"custody": "all", "strays": "all", f"boxes-{token}": "all"}  # ``Copier`` copies these
    topology = Topology(
        name="edge-tests",
        links=tuple(
            Link(**{"from": here, "to": there, "streams": carried}) for here, there in ((port, ship), (ship, port))
        ),
        sites={
            port: Site(kind=SiteKind.PORT, unlocode="JPTYO"),
            ship: Site(kind=SiteKind.SHIP, imo=imo),
        },
        streams={**DEFAULT_STREAMS, f"boxes-{token}": Stream(insert_point=InsertPoint.MOVES, owners=("BIGU",))},
    )
    places = {port: "alpha", ship: "beta"}
    brokers = {name: replace(mqtt(place, "bridge"), site=name) for name, place in places.items()}
    return Fleet(
        kafka={name: replace(kafka(place, "admin"), site=name) for name, place in places.items()},
        mqtt=dict(brokers),
        brokers=brokers,
        devices={name: mqtt(place, "device") for name, place in places.items()},
        topology=topology,
        port=port,
        ship=ship,
        imo=imo,
        snapshots=snapshots,
    )


class Copier:
    """Copy logs unchanged from one site to another: a minimal replicator for tests."""

    def __init__(self, fleet: Fleet, source: str, target: str) -> None:
        self._fleet = fleet
        self._source = source
        self._target = target

    async def copy(self, *topics: str) -> None:
        """Copy everything up to the present ends of the source's logs."""
        async with (
            await Cluster.open(self._fleet.kafka[self._source], client_id="copy-from") as source,
            await Cluster.open(self._fleet.kafka[self._target], client_id="copy-to") as target,
        ):
            maker = TopicMaker(self._fleet.kafka[self._target], target)
            await maker.create(topics)
            for topic in topics:
                await self._copy_one(source, target, TP(topic))

    async def create(self, *topics: str) -> None:
        """Create empty logs at the target."""
        async with await Cluster.open(self._fleet.kafka[self._target], client_id="create") as target:
            maker = TopicMaker(self._fleet.kafka[self._target], target)
            await maker.create(topics)

    async def _copy_one(self, source: Cluster, target: Cluster, log: TP) -> None:
        position = (await target.end_offsets([log]))[log]
        end = (await source.end_offsets([log]))[log]
        assert isinstance(position, int)
        assert isinstance(end, int)
        while position < end:
            fetched = (await source.fetch({log: position}))[log]
            assert fetched.error_code == 0
            for view in split(fetched.records):
                batch = bytearray(fetched.records[view.start : view.stop])
                zero_base_offset(batch)
                result = (await target.produce({log: batch}))[log]
                assert result.error_code == 0
                assert result.base_offset == view.header.base_offset
                position = view.header.next_offset


@contextlib.asynccontextmanager
async def child(fleet: Fleet, site: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a bridge in a process of its own and wait until it is ready; kill it at the end if it still runs."""
    assert fleet.snapshots is not None
    kafka, mqtt = fleet.kafka[site], fleet.mqtt[site]
    secrets_and_places = {
        "topology": fleet.topology.model_dump(mode="json", by_alias=True),
        "site": site,
        "kafka": [kafka.bootstrap, kafka.user, kafka.password.get_secret_value() if kafka.password else None],
        "mqtt": [mqtt.host, mqtt.port, mqtt.user, mqtt.password.get_secret_value() if mqtt.password else None],
        "snapshot": str(fleet.snapshots / f"child.{site}.json"),
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.support.edge.run_bridge",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(secrets_and_places, default=str).encode() + b"\n")
        await process.stdin.drain()
        process.stdin.close()
        line = await asyncio.wait_for(process.stdout.readline(), PATIENCE)
        assert line == b"ready\n", line
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def ledger(fleet: Fleet, site: str, at: str | None = None) -> list[Any]:
    """Return the entries of a site's ledger, from its copy at ``at`` if given."""
    return [ledger_entries.decode(record.value) for record in fleet.read(at or site, f"custody.{site}")]


async def order(fleet: Fleet, site: str, kind: Any, log: str, to_site: str, **more: Any) -> str:
    """Write an order as ``fairlead custody`` does; return its id."""
    asked = CustodyOrder(
        order_id=f"order-{fleet.port}-{next(fleet.numbers)}",
        kind=kind,
        log=log,
        at_site=site,
        to_site=to_site,
        ordered_date_time=now(),
        ordered_by="tester",
        **more,
    )
    await asyncio.to_thread(create_logs, fleet.kafka[site], {CUSTODY_ORDERS: {}})
    async with await Cluster.open(fleet.kafka[site], client_id="order") as cluster:
        await cluster.wait_writable([CUSTODY_ORDERS])
        batch = encode_batch([NewRecord(encode(asked), timestamp_ms=0)], producer_id=-1, epoch=-1, sequence=-1)
        assert (await cluster.produce({TP(CUSTODY_ORDERS): batch}))[TP(CUSTODY_ORDERS)].error_code == 0
    return asked.order_id


async def hears(bridge: Bridge, fleet: Fleet, site: str, box: str, sequences: Sequence[int]) -> None:
    """Publish readings of a box at a site and wait until its bridge has processed them."""
    before = bridge.snapshot()["received"]
    with fleet.publisher(site) as device:
        await device.readings(box, range(sequences[0], sequences[-1] + 1))
    await handled(bridge, before + len(sequences))
