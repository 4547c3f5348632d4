"""What each customer read with its own password, against what the voyage says it is entitled to.

That is readings; of a port's authority what happened at its port, of which a feed tells by movements.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection

import msgspec

from acl.probe import entitlement, entitles, probe_customer, sites_of
from acl.reader import Received
from simulators.report.collect import reading_id
from simulators.report.model import CustomerFigures
from simulators.steps import ReadingId
from simulators.truth import Truth
from topologies.directory import Directory
from topologies.model import Topology

What = ReadingId | str
"""A reading by its identity, a movement by the id of its event."""


class _Movement(msgspec.Struct, frozen=True, tag_field="kind", tag="movement"):
    event_id: str = msgspec.field(name="eventID")
    revision: int


class Reads:
    """Readings and movements one customer got, per site; the probe calls it from several threads."""

    def __init__(self) -> None:
        self.by_site: dict[str, Counter[What]] = {}
        self._lock = threading.Lock()

    def __call__(self, site: str, record: Received) -> None:
        one = what(record.value or b"")
        if one is None:
            return
        with self._lock:
            self.by_site.setdefault(site, Counter())[one] += 1


def what(value: bytes) -> What | None:
    """What a record is about; None for an alert or another record of a feed, and for what was said again otherwise."""
    try:
        return reading_id(value)
    except msgspec.DecodeError:
        pass
    try:
        movement = msgspec.json.decode(value, type=_Movement)
    except msgspec.DecodeError:
        return None
    return None if movement.revision else movement.event_id


def entitled_to(truth: Truth, topology: Topology, customer: str) -> set[What]:
    """What a customer must get: movements at its port, if it is the authority there, else readings."""
    spec = topology.customers[customer]
    if spec.feed == "movements" and spec.port is not None:
        return set(truth.events[spec.port])
    return {*entitled_readings(truth, topology, customer)}


def entitled_readings(truth: Truth, topology: Topology, customer: str) -> set[ReadingId]:
    """The readings a customer must get: those of its bookings, and of all boxes whose logs it may consume."""
    out: set[ReadingId] = set(truth.entitled.get(customer, ()))
    may_read = entitlement(topology, customer)
    for one in truth.published:
        stream = topology.container_stream(one.container)
        if stream and entitles(may_read, f"{stream}.{one.container}"):
            out.add(one)
    return out


def figures(entitled: Collection[What], got: Counter[What]) -> tuple[int, int, int]:
    """``(read, repeated, foreign)`` of one site."""
    mine = set(entitled)
    return (
        len(mine & got.keys()),
        sum(times - 1 for times in got.values()),
        sum(times for one, times in got.items() if one not in mine),
    )


def ask(topology: Topology, directory: Directory, truth: Truth, customer: str) -> CustomerFigures:
    """Log in as the customer everywhere, read all it can, try what it must not. Figures are those of its worst site."""
    reads = Reads()
    access = probe_customer(topology, directory, customer, on_record=reads)
    entitled = entitled_to(truth, topology, customer)
    of_sites = [figures(entitled, reads.by_site.get(site, Counter())) for site in sites_of(topology, customer)]
    return CustomerFigures(
        entitled=len(entitled),
        read=min((read for read, _, _ in of_sites), default=0),
        repeated=max((repeated for _, repeated, _ in of_sites), default=0),
        foreign_read=max((foreign for _, _, foreign in of_sites), default=0),
        refused=access.refused,
        wrongly_allowed=access.wrongly_allowed,
    )
