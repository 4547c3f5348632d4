"""A voyage with twenty customers on two real sites, to test who can read which bytes there and who should.

Some customers have detailed feeds, some coarse ones, two own boxes and have alerts, one has movements; half of the
bookings are corrected, ended early or cancelled after shore has delivered their records.

Every log is at both sites, even those that no link would carry, so that only ACLs keep a customer out.
``tests.support.leaks`` computes who is entitled to what.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import shore
from acl import probe as attempts
from acl.apply import apply_topology
from acl.kafka import StartAt, UserConsumer, WrongPassword
from fairlead.kafka.client.connection import connect
from fairlead.kafka.convention import is_data
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.record import NewRecord
from fairlead.local.sites import LocalSites, SiteSpec
from fairlead.records import encode
from fairlead.records.booking import Booking
from shore.jobs.runner import JOBS
from simulators.fleet import scenario_file
from simulators.voyage.voyage import Voyage
from tests.support.kafka_requests import schema_request
from tests.support.leak_feeds import (
    Due,
    Holds,
    Sailed,
    alerts_about,
    claims,
    coarse,
    detailed,
    followed,
    holds,
    movements,
    placed,
)
from tests.support.leaks import (
    Content,
    Told,
    alerts_of,
    bookings_of,
    by_log,
    corrections_of,
    custody_of,
    events_of,
    logs_of,
    readings_of,
)
from tests.support.patience import patient
from tests.support.shore.world import World as Corner
from topologies.endpoints import EndpointResolver
from topologies.loader.load import load, read
from topologies.model import Topology
from topologies.users import ADMIN, service_users

HQ, PORT = "los-angeles", "singapore"
SHIPPERS = tuple(f"shipper-{number:02d}" for number in range(1, 11))
RECIPIENTS = ("shop-1", "shop-2")
"""Recipients of goods, with coarse feeds."""
AUTHORITY, AUTHORITYS_PORT = "authority", "SGSIN"
"""A port authority, which has a feed of movements."""
OWNERS = ("yellow", "red")
"""Owners of boxes, with feeds of alerts. Red has bookings as well, which give it nothing."""
AT_BOTH, NOT_BROUGHT = (*SHIPPERS[:2], RECIPIENTS[0]), SHIPPERS[2]
"""Customers with a user at the port as well. A link carries the feeds of the first ones there, not that of the last."""
LINES = {"BIGU": "Big Blue", "YELU": "yellow", "REDU": "Red Leasing"}

TOPOLOGY = """
name: leaks
sites:
  los-angeles: {kind: hq, unlocode: USLAX}
  singapore: {kind: port, unlocode: SGSIN}
streams:
  containers: {title: Big Blue, insert_point: moves, owners: [BIGU]}
  yellow: {insert_point: moves, owners: [YELU], permissions: {consume: "u:yellow | (g:auditors & !g:retired)"}}
  red:
    insert_point: moves
    owners: [REDU]
    permissions: {consume: "u:red"}
    keys: KEYS
links:
  - {from: singapore, to: los-angeles, streams: {
      containers: all, yellow: all, red: all, alerts: all, events: all, custody: all, bookings: all}}
  - {from: los-angeles, to: singapore, streams: {
      containers: all, yellow: all, red: all, alerts: all, bookings: all, feeds: [BROUGHT]}}
customers:
  yellow: {feed_at: los-angeles, feed: alerts, owners: [YELU], reads_at: [los-angeles, singapore]}
  red: {title: Red Leasing, feed_at: los-angeles, feed: alerts, owners: [REDU], reads_at: [singapore]}
  lessor: {feed_at: los-angeles, reads_at: [singapore]}
  auditor: {reads_at: [singapore], groups: [auditors]}
  retired: {reads_at: [los-angeles, singapore], groups: [auditors, retired]}
  unbooked: {feed_at: los-angeles}
  nothing: {}
  authority: {feed_at: los-angeles, feed: movements, port: SGSIN}
SHIPPERS
shore: {at: los-angeles}
"""

BOOKINGS = next(job.name for job in JOBS.values() if "bookings" in job.tables)
"""The job that keeps table ``bookings``, which feeds follow."""

SAID_FROM = int(dt.datetime(2026, 8, 1, tzinfo=dt.UTC).timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class World:
    """Two sites with every log at both, even those that no link would carry, and the facts about them."""

    topology: Topology
    resolver: EndpointResolver
    expected: dict[tuple[str, str], Content]
    topics: tuple[str, ...]


def topology_for(whole: str, beginning: str) -> Topology:
    """Return the topology; the lessor has one box of stream red, and the boxes whose numbers begin alike."""
    shippers = "".join(
        f"  {name}: {{feed_at: {HQ}{f', reads_at: [{PORT}]' if name in (*AT_BOTH, NOT_BROUGHT) else ''}"
        f"{', feed: coarse' if name in RECIPIENTS else ''}}}\n"
        for name in (*SHIPPERS, *RECIPIENTS)
    )
    keys = f'{{{whole}: {{consume: "u:lessor"}}, "{beginning}*": {{consume: "u:lessor"}}}}'
    text = TOPOLOGY.replace("KEYS", keys).replace("BROUGHT", ", ".join((*AT_BOTH, "lessor")))
    return read(text.replace("SHIPPERS\n", shippers), "leaks.yaml")


@contextmanager
def sailed(
    folder: Path, *, seed: int, containers: int, hours: int, bookings: int, session: SparkSession | None = None
) -> Iterator[World]:
    """Run both sites with the logs of a voyage and the feeds that shore's jobs wrote.

    Args:
        folder: Folder of the sites' files.
        hours: Hours between two readings of a box.
        session: Spark session to use; without it, one is started.
    """
    rng = random.Random(seed)  # noqa: S311 - a simulation
    interval = dt.timedelta(hours=hours)
    scenario, big_blue = scenario_file.load("duck-voyage"), load("big-blue")
    steps = list(
        Voyage(scenario.adjusted(containers=containers, reading_interval=interval), big_blue, seed=seed).steps()
    )
    readings = readings_of(steps)
    events = events_of(steps, lambda site: f"events.{site if site == PORT else HQ}")
    custody = custody_of(events, {one.box: one.log for one in readings}, f"custody.{PORT}")
    alerts = alerts_of(rng, readings, (HQ, PORT), len(readings) // 20)
    red = sorted({told.box for told in readings if told.log.startswith("red.")})
    whole, beginning = red[0], red[-1][:6]
    topology = topology_for(whole, beginning)
    without = ("unbooked", AUTHORITY, "yellow")
    feeders = [name for name, customer in topology.customers.items() if customer.feed_at and name not in without]
    booked = bookings_of(rng, feeders, (*(4 * RECIPIENTS), *feeders), readings, bookings)
    corrected = corrections_of(rng, booked, feeders, readings)
    local = LocalSites(folder / topology.name)
    resolver = EndpointResolver(topology, local)

    def work(jobs: tuple[str, ...]) -> None:
        shore.run(topology, resolver.kafka(HQ, "shore"), local.folder, jobs, once=True, session=session)

    local.up([SiteSpec(site, tuple(service_users(topology, site))) for site in topology.sites])
    try:
        apply_topology(topology, resolver)
        logs = by_log([*readings, *alerts, *events, *custody])
        records = {log: [one.record() for one in told] for log, told in logs.items()}
        office = f"bookings.{HQ}"
        first = records | {office: [said(number, one) for number, one in enumerate(booked)]}
        then = {office: [said(number, one) for number, one in enumerate(corrected, len(booked))]}
        for appended, jobs in ((first, ("readings", "operations", BOOKINGS)), (then, ("operations", BOOKINGS))):
            for site in topology.sites:
                Corner(resolver.kafka(site, ADMIN)).append(appended)
            patient(partial(work, jobs))
            patient(partial(work, ("feeds",)))
        topics = copy_feeds(resolver)
        everything = Sailed(*(placed(told, logs) for told in (readings, alerts, events, custody)))
        feeds = feeds_of(topology, everything, holds(booked), holds([*booked, *corrected]))
        yield World(topology, resolver, expected_of(topology, feeds, readings, whole, beginning), topics)
    finally:
        local.down(purge=True)


def said(number: int, booking: Booking) -> NewRecord:
    """Return a booking's state, published one second after the one before."""
    return NewRecord(encode(booking), booking.booking_reference.encode(), timestamp_ms=SAID_FROM + number * 1000)


def copy_feeds(resolver: EndpointResolver) -> tuple[str, ...]:
    """Copy every feed to the port too, even those that no link carries; return the topics that exist then."""
    at_hq, at_port = (Corner(resolver.kafka(site, ADMIN)) for site in (HQ, PORT))
    with UserConsumer(resolver.kafka(HQ, ADMIN), group=f"{ADMIN}.leaks") as reader:
        topics = reader.visible()
    feeds = [topic for topic in topics if topic.startswith("feeds.")]
    found = {topic: [record for record in at_hq.read(topic) if is_data(record)] for topic in feeds}
    copies = {
        topic: [NewRecord(r.value, r.key, tuple(r.headers), timestamp_ms=r.timestamp_ms) for r in records]
        for topic, records in found.items()
    }
    at_port.append(copies)
    return topics


def feeds_of(topology: Topology, everything: Sailed, before: Holds, after: Holds) -> dict[str, Content]:
    """Return everything each feed has had, from the bookings before and after their correction."""

    def due(name: str, held: Holds) -> Due:
        if name == AUTHORITY:
            return movements(AUTHORITYS_PORT, everything, LINES)
        if owners := topology.customers[name].owners:
            return alerts_about(owners, everything)
        return (coarse if name in RECIPIENTS else detailed)(name, held, everything)

    return {name: followed(name, due(name, before), due(name, after)) for name in topology.customers}


def expected_of(
    topology: Topology, feeds: dict[str, Content], readings: list[Told], whole: str, beginning: str
) -> dict[tuple[str, str], Content]:
    """Return the expected records by customer and by each site where it has a user."""
    own = {
        "yellow": logs_of(readings, lambda log: log.startswith("yellow.")),
        "auditor": logs_of(readings, lambda log: log.startswith("yellow.")),
        "red": logs_of(readings, lambda log: log.startswith("red.")),
        "lessor": logs_of(readings, lambda log: log == f"red.{whole}" or log.startswith(f"red.{beginning}")),
    }
    expected: dict[tuple[str, str], Content] = {}
    for name, customer in topology.customers.items():
        feed = feeds[name]
        if customer.feed_at == HQ:
            expected[name, HQ] = feed + own.get(name, Counter())
        elif HQ in customer.reads_at:
            expected[name, HQ] = own.get(name, Counter())
        if PORT in customer.reads_at:
            brought = feed if name in (*AT_BOTH, "lessor") else Counter()
            expected[name, PORT] = brought + own.get(name, Counter())
    return expected


def read_all(endpoint: KafkaEndpoint) -> Content:
    """Return every data record that a plain consumer receives."""
    with UserConsumer(endpoint, group=f"{endpoint.user}.leaks") as reader:
        visible = reader.visible()
        if not visible:
            return Counter()
        records = [one for one in reader.read(visible, start=StartAt.BEGINNING, follow=False) if one is not None]
    return claims(one for one in records if one.is_data)


def fetched(endpoint: KafkaEndpoint, topics: tuple[str, ...]) -> dict[str, tuple[int, int]]:
    """Send one raw fetch request for all existing topics, visible or not; return error code and bytes by topic."""
    partition = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "last_fetched_epoch": -1,
                 "log_start_offset": -1, "partition_max_bytes": 1 << 20}  # fmt: skip
    request = schema_request("everything", "Fetch", 12, {
        "replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 50 << 20, "isolation_level": 0,
        "session_id": 0, "session_epoch": -1, "forgotten_topics_data": [], "rack_id": "",
        "topics": [{"topic": topic, "partitions": [partition]} for topic in topics]})  # fmt: skip

    async def ask() -> dict[str, tuple[int, int]]:
        host, port = endpoint.bootstrap[0]
        connection = await connect(host, port, endpoint, client_id="leaks")
        try:
            answer = await request.ask(connection)
        finally:
            connection.close()
        return {
            one["topic"]: (part["error_code"], len(part["records"] or b""))
            for one in answer.told["responses"]
            for part in one["partitions"]
        }

    return asyncio.run(ask())


def check_there_is_something_to_leak(world: World) -> None:
    """Check the test's own premise: every feed that should have records has some, and those that should be empty
    are."""
    assert len(world.topology.customers) == 20
    entitled = {key: content.total() for key, content in world.expected.items()}
    some = {*OWNERS, "lessor", AUTHORITY, *RECIPIENTS, *SHIPPERS}
    assert all(entitled[name, HQ] > 10 for name in some)
    assert entitled["lessor", PORT] < entitled["red", PORT] + entitled["lessor", HQ]
    assert entitled[NOT_BROUGHT, PORT] == entitled["unbooked", HQ] == entitled["retired", HQ] == 0
    assert not any(name == "nothing" for name, _ in entitled)
    assert {f"feeds.{name}" for name in (*some, "unbooked")} <= set(world.topics)
    for name in (*RECIPIENTS, *SHIPPERS):
        assert any(value.startswith(b"takes back ") for _, value in world.expected[name, HQ]), name
    assert sum(b'"entryType"' in value for name in SHIPPERS for _, value in world.expected[name, HQ]) > len(SHIPPERS)
    for name in OWNERS:
        own = [value for topic, value in world.expected[name, HQ] if topic == f"feeds.{name}"]
        assert own and all(b'"alertID"' in value for value in own), name
        assert not {topic for topic, _ in world.expected[name, PORT]} & {f"feeds.{name}"}, name
    for name in RECIPIENTS:
        values = b" ".join(value for _, value in world.expected[name, HQ])
        assert all(b'"kind": "%s"' % kind in values for kind in (b"milestone", b"conditions"))
        assert b'"OVERBOARD"' in values and b"takes back hours/" in values and b"takes back milestones/" in values


def check_reading(world: World) -> None:
    """Check that a plain client sees, and reads, exactly what its user is entitled to."""
    for (customer, site), expected in world.expected.items():
        got = read_all(world.resolver.kafka(site, customer))
        assert got - expected == Counter(), f"{customer} at {site} reads what is not its own"
        assert expected - got == Counter(), f"{customer} at {site} misses something"


def check_bare_requests(world: World) -> None:
    """Check that the broker refuses a raw fetch of every topic except the user's own, and returns no byte of the
    others.
    """
    for (customer, site), expected in world.expected.items():
        mine = {topic for topic, _ in expected} | ({f"feeds.{customer}"} if (customer, site) in fed(world) else set())
        answers = fetched(world.resolver.kafka(site, customer), world.topics)
        assert set(answers) == set(world.topics)
        assert {topic for topic, (code, _) in answers.items() if code == 0} == mine, (customer, site)
        assert all(size == 0 for topic, (_, size) in answers.items() if topic not in mine)
        assert all(answers[topic][1] > 0 for topic, _ in expected)


def fed(world: World) -> set[tuple[str, str]]:
    """Return where customers have their feeds, empty or not."""
    with_feed = {name for name, customer in world.topology.customers.items() if customer.feed_at}
    return {(name, HQ) for name in with_feed} | {(name, PORT) for name in (*AT_BOTH, "lessor")}


def check_log_ins(world: World) -> None:
    """Check that no customer can log in at a site where it has no user."""
    for customer in world.topology.customers:
        homes = [site for site in world.topology.sites if (customer, site) in world.expected]
        password = world.resolver.kafka(homes[0], customer).password if homes else None
        for site in set(world.topology.sites) - set(homes):
            with pytest.raises(WrongPassword):
                attempts.log_in(world.resolver.kafka(site, ADMIN), customer, password)


def check_that_more_would_be_noticed(world: World) -> None:
    """Check that the test would notice a leak: the super user reads everything, which no customer is entitled to."""
    got = read_all(world.resolver.kafka(HQ, ADMIN))
    assert all(got - expected for expected in world.expected.values())
    answers = fetched(world.resolver.kafka(HQ, ADMIN), world.topics)
    assert {code for code, _ in answers.values()} == {0}


CHECKS = (
    check_there_is_something_to_leak,
    check_reading,
    check_bare_requests,
    check_log_ins,
    check_that_more_would_be_noticed,
)
