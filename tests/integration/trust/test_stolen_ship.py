"""A thief with all passwords of a ship attacks, berthed and at sea, and changes nothing ashore.

Three real sites with their ACLs, bridges and replicators. The thief uses ordinary clients and acts as the ship's own
bridge; a security review found the attacks. Afterwards one command shuts the ship out.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from edge.alerts.site_alerts import KIND
from edge.bridge import Bridge
from fairlead.cli.app import run
from fairlead.cli.commands.bridge import make_bridge
from fairlead.cli.commands.replicate import replicator_for
from fairlead.custody.history import chains
from fairlead.custody.ledger import read_ledgers
from fairlead.kafka.admin import admin_client, ask_coordinator
from fairlead.kafka.client.appender import Appender
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import term_batch
from fairlead.kafka.credentials import accepts
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.codecs import Codec
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import TP
from fairlead.local.sites import LocalSites
from fairlead.records import encode
from fairlead.records.custody import LedgerEntry
from fairlead.records.edge import Stray
from replication.replicator import Replicator
from tests.support.edge.fleet import EVENTS, Publisher, now, until
from tests.support.edge.samples import event, reading
from tests.support.honest_ledgers import claim, grant, log
from tests.support.waits import PATIENCE
from topologies.context import open_topology
from topologies.ledger_trust import sifted
from topologies.users import upstream_user

pytestmark = [pytest.mark.integration, pytest.mark.processes("its sites are this test's own")]

PORT, HQ, SHIP, IMO = "tokyo", "los-angeles", "duck-star", "9074729"
TOPOLOGY: Final = """\
name: stolen
sites:
  tokyo: {kind: port, unlocode: JPTYO}
  los-angeles: {kind: hq, unlocode: USLAX}
  duck-star: {kind: ship, imo: "9074729"}
streams:
  containers: {insert_point: moves, owners: [BIGU]}
links:
  - from: tokyo
    to: los-angeles
    both: true
    streams: {custody: all, alerts: all, events: all, bookings: all, containers: all, strays: all}
  - from: duck-star
    to: los-angeles
    both: true
    streams: {custody: all, alerts: all, events: all}
  - from: duck-star
    to: tokyo
    when: berthed
    streams: {custody: all, alerts: all, events: all, bookings: all, containers: all, strays: all}
    groups: [desk]
  - from: tokyo
    to: duck-star
    when: berthed
    streams: {custody: all, alerts: all, events: all, bookings: all, containers: aboard}
customers:
  ducks: {feed_at: los-angeles}
shore: {at: los-angeles}
"""
ASHORE, ABOARD, OUTSIDE, NEW = log(1), log(2), log(3), log(4)
OF_THE_SHIP: Final = ("custody.duck-star", "alerts.duck-star", "events.duck-star", "strays.duck-star", "alerts.")
"""Logs that may change ashore: the ship's own about itself, and alerts about it."""


T = TypeVar("T")
_LOADING: Final = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)


class Fleet:
    """The three sites and their workers, which run in this process."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.context = open_topology(str(file))
        self.bridges: dict[str, Bridge] = {}
        self.replicators: dict[str, Replicator] = {}
        self._stops: dict[str, tuple[asyncio.Event, asyncio.Task[None]]] = {}

    def kafka(self, site: str, user: str = "admin") -> KafkaEndpoint:
        return self.context.resolver.kafka(site, user)

    async def start(self, *sites: str) -> None:
        for site in sites:
            bridge, replicator = make_bridge(self.context, site), replicator_for(self.context, site)
            self.bridges[site], self.replicators[site] = bridge, replicator
            for name, work in ((f"bridge {site}", bridge.run), (f"replicator {site}", replicator.run)):
                stop = asyncio.Event()
                self._stops[name] = stop, asyncio.create_task(work(stop))
        await until(lambda: all(self.bridges[each].ready.is_set() for each in sites), what=f"bridges of {sites}")

    async def stop(self, *names: str) -> None:
        """Stop workers; raise the error of the first one that failed."""
        for name in names or tuple(self._stops):
            stop, task = self._stops.pop(name)
            stop.set()
            await task

    def check(self) -> None:
        """Check that every worker still runs."""
        for name, (_, task) in self._stops.items():
            assert not task.done(), (name, task.exception())

    @contextlib.asynccontextmanager
    async def at(self, site: str, user: str = "admin") -> AsyncIterator[Cluster]:
        async with await Cluster.open(self.kafka(site, user), client_id="thief") as cluster:
            yield cluster

    async def holders(self, site: str) -> dict[str, tuple[str | None, int | None]]:
        """Return the holder and the term of each log, according to the entries that a site believes."""
        async with self.at(site) as cluster:
            found = sifted(self.context.topology, await read_ledgers(cluster, site))
        return {each.log: (each.holder, each.newest.term if each.newest else None) for each in chains(found.entries)}

    async def end(self, site: str, topic: str) -> int:
        async with self.at(site) as cluster:
            if topic not in await cluster.topics(refresh=True):
                return -1
            found = (await cluster.end_offsets([TP(topic)]))[TP(topic)]
        assert isinstance(found, int)
        return found

    def alerts(self, site: str) -> list[dict[str, Any]]:
        """Return the alerts about ledgers that a site has raised."""
        found = [json.loads(value) for value in read(self.kafka(site), f"alerts.{site}") if value.startswith(b"{")]
        return [each for each in found if each.get("kind") == KIND]


def read(endpoint: KafkaEndpoint, topic: str) -> list[bytes]:
    consumer = Consumer({**endpoint.librdkafka(), "group.id": "reader", "enable.auto.commit": False, "log_level": 0})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
        consumer.assign([TopicPartition(topic, 0, low)])
        found: list[bytes] = []
        position = low
        while position < high:
            message = consumer.poll(30)
            assert message is not None and message.error() is None
            position = (message.offset() or 0) + 1
            found.append(message.value() or b"")
        return found
    finally:
        consumer.close()


def may_change(topic: str) -> bool:
    return topic.startswith(OF_THE_SHIP) or topic == ABOARD or topic.startswith("__")


async def picture(fleet: Fleet, site: str) -> dict[str, Any]:
    """Return everything of a site that the theft must not change: logs with settings and records, ledgers, groups."""
    client = admin_client(fleet.kafka(site))
    topics = client.list_topics(timeout=30).topics
    names = sorted(name for name in topics if not may_change(name))
    # The names of the ship's own logs may not change either, and neither may their settings.
    wanted = [ConfigResource(ResourceType.TOPIC, name) for name in sorted(topics) if not name.startswith("__")]
    answers = client.describe_configs(wanted)
    settings = {
        resource.name: {key: entry.value for key, entry in answer.result(30).items() if not entry.is_default}
        for resource, answer in answers.items()
    }
    return {
        "topics": sorted(name for name in topics if not name.startswith("__")),
        "partitions": {name: len(topics[name].partitions) for name in topics if not name.startswith("__")},
        "settings": settings,
        "records": {name: await asyncio.to_thread(read, fleet.kafka(site), name) for name in names},
        "holders": await fleet.holders(site),
        "desk": await asyncio.to_thread(_when_loaded, lambda: _positions(client, "desk")),
    }


def _when_loaded(ask: Callable[[], T]) -> T:
    """Ask a group's coordinator until it has loaded: a site creates the topic of offsets at the first request."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return ask()
        except KafkaException as error:
            why = error.args[0]
            if not isinstance(why, KafkaError) or why.code() not in _LOADING or time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def _positions(client: AdminClient, group: str) -> list[tuple[str, int, int]]:
    ask_coordinator(client, group, 30).result(30)
    asked = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(30)
    return sorted((each.topic, each.partition, each.offset) for each in asked.topic_partitions)


# -- the attacks


def by_admin(fleet: Fleet) -> None:
    """Attack with an ordinary client as the administrator of the ship's brokers."""
    client = admin_client(fleet.kafka(SHIP))
    there = client.list_topics(timeout=30).topics
    made = [NewTopic(name, 1, 1) for name in ("containers.NOTABOX", "feeds.ducks", "custody.atlantis", ASHORE, NEW)]
    made += [NewTopic(name, 1, 1) for name in (f"bookings.{PORT}", f"strays.{PORT}", f"bookings.{SHIP}")]
    for answer in client.create_topics([each for each in made if each.topic not in there]).values():
        answer.result(30)
    harmful = {"cleanup.policy": "compact", "max.message.bytes": "64", "retention.ms": "1000000000"}
    resources = [
        ConfigResource(
            ResourceType.TOPIC,
            name,
            incremental_configs=[
                ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in harmful.items()
            ],
        )
        for name in (ABOARD, f"custody.{PORT}", f"events.{SHIP}", ASHORE)
    ]
    for answer in client.incremental_alter_configs(resources).values():
        answer.result(30)
    parts = [NewPartitions(name, 3) for name in (ABOARD, f"custody.{SHIP}", f"events.{SHIP}")]
    for answer in client.create_partitions(parts).values():
        answer.result(30)
    far = [TopicPartition(f"events.{SHIP}", 0, 1, metadata=f"fairlead:{HQ}:{10**18}:1")]  # as if from HQ
    desk = [ConsumerGroupTopicPartitions("desk", far)]
    _when_loaded(lambda: client.alter_consumer_group_offsets(desk)["desk"].result(30))
    producer = Producer({**fleet.kafka(SHIP).librdkafka(), "log_level": 0})
    for topic in ("containers.NOTABOX", "feeds.ducks", "custody.atlantis", f"bookings.{PORT}", f"custody.{PORT}", NEW):
        for n in range(3):
            producer.produce(topic, f"forged {n}", "k", partition=0)
    assert producer.flush(30) == 0


def by_replicator(fleet: Fleet, endpoints: Iterable[KafkaEndpoint]) -> None:
    """Attack with the ship's users at the other sites, which may read what its links carry and nothing else."""
    for endpoint in endpoints:
        refused: list[Any] = []
        producer = Producer({**endpoint.librdkafka(), "log_level": 0, "message.timeout.ms": 10_000})
        for topic in (ASHORE, f"custody.{endpoint.site}", f"bookings.{endpoint.site}"):
            producer.produce(topic, b"forged", b"k", on_delivery=partial(_note, refused))
        producer.flush(30)
        assert len(refused) == 3 and all(error is not None for error in refused), refused
        client = AdminClient({**endpoint.librdkafka(), "log_level": 0})
        with pytest.raises(Exception, match=r"(?i)authoriz"):
            client.create_topics([NewTopic("containers.NOTABOX", 1, 1)])["containers.NOTABOX"].result(30)


def _note(told: list[Any], error: Any, _message: Any) -> None:
    told.append(error)


def forged(term_aboard: int) -> list[LedgerEntry]:
    """Return ledger entries that the ship may not write."""
    return [
        grant(SHIP, ASHORE, 32767, None),
        grant(SHIP, ASHORE, 2, None),
        grant(SHIP, ABOARD, 32767, None),
        grant(SHIP, ABOARD, term_aboard + 1, PORT, drained={f"strays.{PORT}": 10**12}),
        grant(SHIP, "feeds.ducks", 1, SHIP),
        grant(SHIP, f"bookings.{PORT}", 1, SHIP),
        grant(SHIP, NEW, 1, SHIP),
        grant(SHIP, OUTSIDE, 3, SHIP, from_site=None, event="GTIN"),
        grant(SHIP, ASHORE, 17, SHIP, event="SEIZURE"),
        grant(PORT, ASHORE, 2, SHIP),
        claim(SHIP),
    ]


def poison() -> list[bytes]:
    good = json.loads(encode(grant(SHIP, ASHORE, 2, None)))
    fields: list[dict[str, Any]] = [
        {"eventDateTime": "2026-03-01T12:00:00"},
        {"eventDateTime": "0001-01-01T00:00:00+14:00"},
        {"term": 10**30},
        {"markerOffset": -1},
    ]
    return [b"\xff{", *(json.dumps({**good, **each}).encode() for each in fields)]


async def by_bridge(fleet: Fleet, attempt: int) -> None:
    """Append forged strays, forged entries and unreadable entries to the ship's own logs, as its bridge could."""
    term = (await fleet.holders(SHIP))[ABOARD][1]
    assert term is not None
    strays = [
        NewRecord(
            encode(Stray(log=each, payload=reading(n), received_date_time=now())),
            b"k",
            (("received", b"x"),),
            timestamp_ms=0,
        )
        for n, each in enumerate(("feeds.ducks", f"bookings.{PORT}", f"custody.{PORT}", "containers.NOTABOX"))
    ]
    made_up = reading(900 + attempt, number=ASHORE.partition(".")[2])  # as a sensor would send it
    strays.append(
        NewRecord(encode(Stray(log=ASHORE, payload=made_up, received_date_time=now())), b"k", timestamp_ms=attempt)
    )
    entries = [*map(encode, forged(term)), *poison()]
    async with fleet.at(SHIP, "bridge") as cluster:
        appender = Appender(cluster)
        for topic, records in (
            (f"custody.{SHIP}", [NewRecord(value, timestamp_ms=5 + attempt) for value in entries]),
            (f"strays.{SHIP}", strays),
        ):
            position = await appender.renew(TP(topic))
            assert position is not None
            codec = Codec.ZSTD if topic.startswith("strays") else Codec.NONE
            batch = term_batch(records, term=position.term, offset=position.end, marker=position.marker, codec=codec)
            (answer,) = (await cluster.produce({TP(topic): batch})).values()
            assert answer.error_code == 0
        await appender.close()


def test_a_stolen_ship_changes_nothing_ashore_and_is_shut_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path / "home"))
    file = tmp_path / "stolen.yaml"
    file.write_text(TOPOLOGY, encoding="utf-8")
    local = LocalSites(open_topology(str(file)).folder)
    try:
        assert run(["up", "-t", str(file)]) == 0
        assert run(["acl", "apply", "-t", str(file), "--yes"]) == 0
        asyncio.run(_with_workers(Fleet(file), capsys))
    finally:
        local.down(purge=True)


async def _with_workers(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        await _stolen(fleet, capsys)
    finally:
        with contextlib.suppress(Exception):
            await fleet.stop()


async def _stolen(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    await fleet.start(PORT, HQ, SHIP)
    quay = Publisher(fleet.context.resolver.mqtt(PORT, "device"))
    deck = Publisher(fleet.context.resolver.mqtt(SHIP, "device"))

    async def happens(code: str, of: str = ABOARD) -> None:
        where = {"vesselIMONumber": IMO, "UNLocationCode": "JPTYO"}
        name, box = f"{code}-{of}", of.partition(".")[2]
        for device in (quay, deck) if code in ("ARRI", "DEPA") else (quay,):
            await device.publish(EVENTS, event(code, number=box, event_id=name, at=now(), **where))

    await happens("ARRI")
    for box in (ASHORE, ABOARD, OUTSIDE):
        await happens("GTIN", box)
        await quay.readings(box.partition(".")[2], range(3))
    await happens("LOAD", ABOARD)
    await happens("GTOT", OUTSIDE)
    await until(lambda: fleet.bridges[SHIP].snapshot()["custody"]["held"] == 1, what="the box aboard")
    await deck.readings(ABOARD.partition(".")[2], range(3, 5))
    await quay.readings(ABOARD.partition(".")[2], range(5, 7))  # received at the quay: strays of the port
    await until(lambda: fleet.bridges[PORT].snapshot()["strays_waiting"] == 2, what="the port's strays")
    for topic in OF_THE_SHIP[:3]:
        for site in (PORT, HQ):
            await _reaches(fleet, topic, SHIP, site)
    await _reaches(fleet, f"strays.{SHIP}", SHIP, PORT)
    await _reaches(fleet, ABOARD, SHIP, PORT)
    await _comes(lambda: _alike(fleet), "that both sites ashore have the same logs")
    before = {site: await picture(fleet, site) for site in (PORT, HQ)}
    assert before[PORT]["holders"] == {ASHORE: (PORT, 1), ABOARD: (SHIP, 2), OUTSIDE: (None, 2)}

    # Berthed: the thief works beside the ship's replicator and controls the ship's bridge.
    stolen = [fleet.kafka(site, upstream_user(SHIP)) for site in (PORT, HQ)]
    await fleet.stop(f"bridge {SHIP}")
    await by_bridge(fleet, 1)
    await asyncio.to_thread(by_admin, fleet)
    await asyncio.to_thread(by_replicator, fleet, stolen)
    for site in (PORT, HQ):
        await _reaches(fleet, f"custody.{SHIP}", SHIP, site)
        await until(lambda site=site: bool(fleet.alerts(site)), what=f"an alert at {site}")  # type: ignore[misc]
    await _unchanged(fleet, before)

    # At sea: only the satellite is left.
    end = await fleet.end(PORT, f"events.{PORT}")
    await happens("DEPA")
    await _comes(lambda: _ends(fleet, PORT, f"events.{PORT}", end + 1), "the departure in the port's log")
    for site in (PORT, HQ):
        await _reaches(fleet, f"events.{PORT}", PORT, site)
    before = {site: await picture(fleet, site) for site in (PORT, HQ)}
    await by_bridge(fleet, 2)
    await _reaches(fleet, f"custody.{SHIP}", SHIP, HQ)
    await _unchanged(fleet, before)
    for site in (PORT, HQ):
        said = " ".join(each["detail"] for alert in fleet.alerts(site) for each in alert["evidence"])
        assert all(alert["vesselIMONumber"] == IMO for alert in fleet.alerts(site))
        assert ASHORE in said and f"custody.{SHIP}@" in str(fleet.alerts(site))
        assert fleet.bridges[site].snapshot()["entries_refused"] > 0
        assert fleet.replicators[site].snapshot()["entries_refused"] > 0

    # Everything ashore restarts with the records that the thief has left.
    fleet.check()
    await fleet.stop(*(f"{kind} {site}" for site in (PORT, HQ) for kind in ("bridge", "replicator")))
    await fleet.start(PORT, HQ)
    await quay.readings(ASHORE.partition(".")[2], range(3, 4))
    await _comes(lambda: _ends(fleet, PORT, ASHORE, 5), "a new reading in its log")
    await _reaches(fleet, ASHORE, PORT, HQ)

    # One command shuts the ship out.
    command = ["site", "distrust", SHIP, "--reason", "stolen in Tokyo", "-t", str(fleet.file)]
    assert await asyncio.to_thread(run, command) == 2
    assert await asyncio.to_thread(run, [*command, "--dry-run"]) == 0
    assert (await fleet.holders(PORT))[ABOARD] == (SHIP, 2)
    capsys.readouterr()
    code = await asyncio.to_thread(run, [*command, "--yes", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert (code, told["failed"]) == (0, []), told
    assert (await fleet.holders(PORT))[ABOARD] == (PORT, 18)
    for endpoint in stolen:
        assert not await asyncio.to_thread(accepts, endpoint)
    reached = {site: await fleet.end(site, f"custody.{SHIP}") for site in (PORT, HQ)}
    await by_bridge(fleet, 3)
    await _reaches(fleet, f"custody.{PORT}", PORT, HQ)  # the links ashore still copy
    assert {site: await fleet.end(site, f"custody.{SHIP}") for site in (PORT, HQ)} == reached
    await until(lambda: fleet.bridges[PORT].snapshot()["strays_waiting"] == 0, what="the box's strays in its log")
    fleet.check()
    quay.close()
    deck.close()
    await fleet.stop()


async def _reaches(fleet: Fleet, topic: str, source: str, target: str) -> None:
    async def there() -> bool:
        return await fleet.end(target, topic) >= await fleet.end(source, topic) > 0

    await _comes(there, f"{topic} of {source} at {target}")


async def _ends(fleet: Fleet, site: str, topic: str, end: int) -> bool:
    return await fleet.end(site, topic) == end


async def _alike(fleet: Fleet) -> bool:
    """Return whether port and headquarters have the same logs of all streams that they exchange, with the same ends."""
    shared = ("custody.", "alerts.", "events.", "bookings.", "containers.", "strays.")
    ends: list[dict[TP, Any]] = []
    for site in (PORT, HQ):
        async with fleet.at(site) as cluster:
            names = [name for name in await cluster.topics(refresh=True) if name.startswith(shared)]
            ends.append(dict(await cluster.end_offsets([TP(name) for name in names])))
    return ends[0] == ends[1] and TP(f"strays.{SHIP}") in ends[0] and TP(ABOARD) in ends[0]


async def _comes(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    try:
        async with asyncio.timeout(PATIENCE):
            while not await condition():  # noqa: ASYNC110 - another process sets no event
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"{what} did not come about") from None


async def _unchanged(fleet: Fleet, before: dict[str, dict[str, Any]]) -> None:
    for site, was in before.items():
        now_is = await picture(fleet, site)
        for what, value in was.items():
            assert now_is[what] == value, f"{what} at {site}"
