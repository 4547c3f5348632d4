"""Count the readings in the logs and those that each customer could read, and compare both with the truth.

Customers read readings and alerts; a port's authority reads the movements at its port. The logs are read as the
cluster's super user, the customers' records with their own passwords. The counting is pure, so that tests need no
brokers.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

import msgspec

from acl.kafka import Received
from acl.probe import entitlement, entitles, probe_customer, sites_of
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import extents, sweep
from fairlead.kafka.convention import is_data
from fairlead.kafka.protocol.record import Record
from fairlead.kafka.protocol.types import TP
from fairlead.names import owner_code
from fairlead.records import decoder
from fairlead.records.alert import Alert
from fairlead.records.reading import Reading
from simulators.report.model import CustomerFigures
from simulators.steps import ReadingId
from simulators.voyage.truth import Truth
from topologies.endpoints import EndpointResolver
from topologies.model import Topology


class LogCount(NamedTuple):
    """The comparison of published and stored readings."""

    in_logs: int
    lost: int
    repeated: int


_reading = decoder(Reading)


def reading_id(payload: bytes) -> ReadingId:
    """Return the identity of a stored reading. Raises msgspec's errors for any other record."""
    reading = _reading.decode(payload)
    return ReadingId(
        reading.equipment_reference, reading.device.device_id, reading.device.boot_id, reading.device.sequence
    )


def count_readings(published: Collection[ReadingId], stored: Counter[ReadingId]) -> LogCount:
    """Compare published with stored readings; ``in_logs`` counts each published reading once."""
    found = sum(1 for one in published if one in stored)
    return LogCount(
        in_logs=found,
        lost=len(published) - found,
        repeated=sum(times - 1 for times in stored.values()),
    )


async def records_of(cluster: Cluster, logs: Iterable[str]) -> dict[str, list[Record]]:
    """Read every data record (without markers and fillers) of these logs in offset order, up to their present ends.

    Raises the errors of ``fairlead.kafka.client.reader``.
    """
    out: dict[str, list[Record]] = {log: [] for log in logs}
    async for tp, records in sweep(cluster, await extents(cluster, [TP(log) for log in out])):
        out[tp.topic] += filter(is_data, records)
    return out


def ids_of(records: Iterable[Record]) -> Counter[ReadingId]:
    """Count how often each reading is stored. Ignore other records, which other lines of the report count."""
    found: Counter[ReadingId] = Counter()
    for record in records:
        try:
            found[reading_id(record.value or b"")] += 1
        except msgspec.DecodeError:
            continue
    return found


RecordIdentity = ReadingId | str
"""A reading by its identity, a movement by the id of its event."""


class _Movement(msgspec.Struct, frozen=True, tag_field="kind", tag="movement"):
    event_id: str = msgspec.field(name="eventID")
    revision: int


AlertIdentity = tuple[str, int]
"""One state of an alert: the alert's id and the state's revision."""

_alert = decoder(Alert)


class CustomerReads:
    """What one customer got, by site: readings and movements, and the alerts in its feed (how often each, and about
    which boxes). The probe calls it from several threads."""

    def __init__(self) -> None:
        self.by_site: dict[str, Counter[RecordIdentity]] = {}
        self.alerts: dict[str, Counter[AlertIdentity]] = {}
        self.boxes: dict[AlertIdentity, str] = {}
        self._lock = threading.Lock()

    def __call__(self, site: str, record: Received) -> None:
        value = record.value or b""
        one = identity_of(value)
        if one is not None:
            with self._lock:
                self.by_site.setdefault(site, Counter())[one] += 1
        elif record.topic.startswith("feeds."):
            try:
                alert = _alert.decode(value)
            except msgspec.DecodeError:
                return
            with self._lock:
                self.alerts.setdefault(site, Counter())[alert.alert_id, alert.revision] += 1
                self.boxes[alert.alert_id, alert.revision] = alert.equipment_reference


def identity_of(value: bytes) -> RecordIdentity | None:
    """Return the reading or movement in a record; None for alerts, corrections and other records of a feed."""
    try:
        return reading_id(value)
    except msgspec.DecodeError:
        pass
    try:
        movement = msgspec.json.decode(value, type=_Movement)
    except msgspec.DecodeError:
        return None
    return None if movement.revision else movement.event_id


def entitled_to(truth: Truth, topology: Topology, customer: str) -> set[RecordIdentity]:
    """Return what a customer must get: movements at its port if it is the port's authority, else readings."""
    spec = topology.customers[customer]
    if spec.feed == "movements" and spec.port is not None:
        return set(truth.events[spec.port])
    return {*entitled_readings(truth, topology, customer)}


def entitled_readings(truth: Truth, topology: Topology, customer: str) -> set[ReadingId]:
    """Return the readings that a customer must get: those of its bookings, and of all boxes whose logs it may read."""
    out: set[ReadingId] = set(truth.entitled.get(customer, ()))
    may_read = entitlement(topology, customer)
    for one in truth.published:
        stream = topology.container_stream(one.container)
        if stream and entitles(may_read, f"{stream}.{one.container}"):
            out.add(one)
    return out


def alerts_due(topology: Topology, customer: str, alerts: Iterable[Alert]) -> set[AlertIdentity] | None:
    """Return the alerts that a feed of alerts must have: all about its owners' containers. None for other feeds."""
    spec = topology.customers[customer]
    if spec.feed != "alerts":
        return None
    return {
        (one.alert_id, one.revision)
        for one in alerts
        if one.equipment_reference and owner_code(one.equipment_reference) in spec.owners
    }


def figures(entitled: Collection[RecordIdentity], got: Counter[RecordIdentity]) -> tuple[int, int, int]:
    """Return ``(read, repeated, foreign)`` of one site."""
    mine = set(entitled)
    return (
        len(mine & got.keys()),
        sum(times - 1 for times in got.values()),
        sum(times for one, times in got.items() if one not in mine),
    )


def read_as_customer(
    topology: Topology,
    resolver: EndpointResolver,
    truth: Truth,
    customer: str,
    alerts: Collection[Alert],
    sunk: Collection[ReadingId] = (),
) -> CustomerFigures:
    """Log in as the customer everywhere, read all it can, and try what it must not. Return its worst site's figures.

    Args:
        alerts: All states of all alerts in the logs where the feeds are written.
        sunk: Readings that are lost for good with a ship; nobody can get them.
    """
    reads = CustomerReads()
    access = probe_customer(topology, resolver, customer, on_record=reads)
    entitled = entitled_to(truth, topology, customer) - set(sunk)
    of_sites = [figures(entitled, reads.by_site.get(site, Counter())) for site in sites_of(topology, customer)]
    told = reads.alerts.get(topology.customers[customer].feed_at or "", Counter())
    due, booked = alerts_due(topology, customer, alerts), truth.booked_by(customer)
    mine = due if due is not None else {one for one, box in reads.boxes.items() if box in booked}
    return CustomerFigures(
        entitled=len(entitled),
        read=min((read for read, _, _ in of_sites), default=0),
        repeated=max((repeated for _, repeated, _ in of_sites), default=0) + told.total() - len(told),
        foreign_read=max((foreign for _, _, foreign in of_sites), default=0) + len(reads.boxes.keys() - mine),
        alerts=len(told.keys() & mine),
        alerts_due=None if due is None else len(due),
        refused=access.refused,
        wrongly_allowed=access.wrongly_allowed,
    )
