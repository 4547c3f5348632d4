"""Count the readings in the logs and those that each customer could read, and compare both with the truth.

Customers read readings and alerts; a port's authority reads the movements at its port. The logs are read as the
cluster's super user, the customers' records with their own passwords. The counting is pure, so that tests need no
brokers.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec

from acl.compile import log_exists_at
from acl.kafka import Received
from acl.probe import entitlement, entitles, probe_customer, sites_of
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import extents, sweep
from fairlead.kafka.convention import is_data
from fairlead.kafka.protocol.record import Record
from fairlead.kafka.protocol.types import TP
from fairlead.records import decoder, headers
from fairlead.records.alert import Alert, alert_key
from fairlead.records.reading import Reading
from simulators.fleet.plan import VoyagePlan
from simulators.report.model import CustomerAlertFigures, CustomerFigures
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


class CustomerReads:
    """The readings and movements that one customer got, by site; the probe calls it from several threads.

    ``alerts``: how often its feed has each record of logs of alerts, by the record's origin, less those taken back.
    """

    def __init__(self) -> None:
        self.by_site: dict[str, Counter[RecordIdentity]] = {}
        self.alerts: dict[str, Counter[str]] = {}
        self._lock = threading.Lock()

    def __call__(self, site: str, record: Received) -> None:
        for name, value in record.headers:
            if name in (headers.ORIGIN, headers.RETRACTS) and value is not None and value.startswith(b"alerts."):
                with self._lock:
                    given = self.alerts.setdefault(site, Counter())
                    given[value.decode("utf-8", "replace")] += 1 if name == headers.ORIGIN else -1
                return
        one = identity_of(record.value or b"")
        if one is None:
            return
        with self._lock:
            self.by_site.setdefault(site, Counter())[one] += 1


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


def entitled_alerts(
    plan: VoyagePlan, topology: Topology, customer: str, alerts: Mapping[str, Alert]
) -> dict[str, Alert] | None:
    """Return those of these states of alerts that a customer must get: about boxes of its owner codes, or about boxes
    of its bookings while these hold. None if its feed has no alerts."""
    spec = topology.customers[customer]
    if spec.feed_at is None or spec.feed == "movements":
        return None
    if spec.feed == "alerts":
        return {origin: alert for origin, alert in alerts.items() if alert.equipment_reference[:4] in spec.owners}
    boxes = {box.number: box for box in plan.boxes if customer in (box.lot.customer, box.lot.consignee)}
    return {
        origin: alert
        for origin, alert in alerts.items()
        if alert.equipment_reference in boxes and boxes[alert.equipment_reference].booked(alert.event_date_time)
    }


def alert_figures(due: Mapping[str, Alert], of_sites: Iterable[Counter[str]]) -> CustomerAlertFigures:
    """Compare the states of alerts that a customer must get with those in its feed at each site that has it."""
    given = [{origin: times for origin, times in got.items() if times > 0} for got in of_sites]
    return CustomerAlertFigures(
        raised=len({alert_key(alert) for alert in due.values()}),
        due=len(due),
        read=min((len(due.keys() & got.keys()) for got in given), default=0),
        repeated=max((sum(times - 1 for times in got.values()) for got in given), default=0),
        foreign=max((len(got.keys() - due.keys()) for got in given), default=0),
    )


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
    sunk: Collection[ReadingId] = (),
    *,
    alerts: Mapping[str, Alert] | None = None,
) -> CustomerFigures:
    """Log in as the customer everywhere, read all it can, and try what it must not. Return its worst site's figures.

    Args:
        alerts: The states of alerts that it must get, by their place in their log; None if its feed has no alerts.
        sunk: Readings that are lost for good with a ship; nobody can get them.
    """
    reads = CustomerReads()
    access = probe_customer(topology, resolver, customer, on_record=reads)
    entitled = entitled_to(truth, topology, customer) - set(sunk)
    home = sites_of(topology, customer)
    has_feed = [
        s for s in home if s == topology.customers[customer].feed_at or log_exists_at(topology, "feeds", customer, s)
    ]
    of_sites = [figures(entitled, reads.by_site.get(site, Counter())) for site in home]
    return CustomerFigures(
        entitled=len(entitled),
        read=min((read for read, _, _ in of_sites), default=0),
        repeated=max((repeated for _, repeated, _ in of_sites), default=0),
        foreign_read=max((foreign for _, _, foreign in of_sites), default=0),
        refused=access.refused,
        wrongly_allowed=access.wrongly_allowed,
        alerts=None if alerts is None else alert_figures(alerts, [reads.alerts.get(s, Counter()) for s in has_feed]),
    )
