"""What each customer read with its own password, against what the voyage says it is entitled to."""

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


class Reads:
    """Readings one customer got, per site; the probe calls it from several threads."""

    def __init__(self) -> None:
        self.by_site: dict[str, Counter[ReadingId]] = {}
        self._lock = threading.Lock()

    def __call__(self, site: str, record: Received) -> None:
        try:
            one = reading_id(record.value or b"")
        except msgspec.DecodeError:
            return  # an alert or another record of the feed, which has no reading's identity
        with self._lock:
            self.by_site.setdefault(site, Counter())[one] += 1


def entitled_readings(truth: Truth, topology: Topology, customer: str) -> set[ReadingId]:
    """The readings a customer must get: those of its bookings, and of all boxes whose logs it may consume."""
    out: set[ReadingId] = set(truth.entitled.get(customer, ()))
    may_read = entitlement(topology, customer)
    for one in truth.published:
        stream = topology.container_stream(one.container)
        if stream and entitles(may_read, f"{stream}.{one.container}"):
            out.add(one)
    return out


def figures(entitled: Collection[ReadingId], got: Counter[ReadingId]) -> tuple[int, int, int]:
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
    entitled = entitled_readings(truth, topology, customer)
    of_sites = [figures(entitled, reads.by_site.get(site, Counter())) for site in sites_of(topology, customer)]
    return CustomerFigures(
        entitled=len(entitled),
        read=min((read for read, _, _ in of_sites), default=0),
        repeated=max((repeated for _, repeated, _ in of_sites), default=0),
        foreign_read=max((foreign for _, _, foreign in of_sites), default=0),
        refused=access.refused,
        wrongly_allowed=access.wrongly_allowed,
    )
