"""Data on disk stays readable: today's Fairlead reads a fleet that the Fairlead of 2026-11-22 wrote.

If one of these fails, a name or a format on disk has changed. Users have such data: the change needs a migration, not
another archive.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import msgspec
import pytest

from acl import history
from edge.strays.report import find_waiting
from fairlead.custody.history import chains
from fairlead.custody.ledger import read_ledgers
from fairlead.custody.view import CustodyView
from fairlead.kafka import convention
from fairlead.kafka.protocol.batch import split
from fairlead.kafka.protocol.record import Record
from fairlead.local.registry import LocalSiteRegistry
from fairlead.records import decoder, encode, headers
from fairlead.records.alert import Alert
from fairlead.records.booking import Booking
from fairlead.records.custody import CustodyEntry, CustodyOrder, Marker, ledger_entries
from fairlead.records.edge import DeadLetter, Stray
from fairlead.records.event import Event
from fairlead.records.reading import Reading
from fairlead.records.ship import Environment, Position
from replication import overrides
from replication.operations.links.access import read_status
from shore import read
from shore.delta.evolution import check_types
from shore.jobs.checkpoint import read_checkpoint
from shore.paths import TablePaths
from shore.tables import TABLES
from simulators.fleet.scenario import Scenario
from simulators.steps import BarrierKind, MessageKind, Publish, Step, VoyageBarrier
from simulators.voyage.recording import ReplayedVoyage
from simulators.voyage.voyage import Voyage
from tests.unit.stored.conftest import StoredFleet
from topologies.ledger_trust import sifted
from topologies.loader.load import load
from topologies.model import Topology

Decode = Callable[[bytes], Any]

DECODERS: dict[str, Decode] = {
    "alerts.": decoder(Alert).decode,
    "bookings.": decoder(Booking).decode,
    "containers.": decoder(Reading).decode,
    "custody.": ledger_entries.decode,
    "deadletters.": decoder(DeadLetter).decode,
    "events.": decoder(Event).decode,
    "fairlead.access": partial(msgspec.json.decode, type=history.Entry),
    "fairlead.custody": decoder(CustodyOrder).decode,
    "fairlead.orders": overrides.decode,
    "ships.9074729.environment": decoder(Environment).decode,
    "ships.9074729.location": decoder(Position).decode,
    "strays.": decoder(Stray).decode,
}
"""By the beginning of a topic's name. A customer's feed has records of other logs, as they are there."""


@pytest.fixture(scope="module")
def topology(stored: StoredFleet) -> Topology:
    return load(str(stored.folder / "topologies" / "minimal.yaml"), env={})


def data_records(stored: StoredFleet, site: str, prefix: str) -> Iterator[tuple[str, Record]]:
    for topic, records in stored.sites[site].records.items():
        if topic.startswith(prefix):
            yield from ((topic, record) for record in records if convention.is_data(record))


# --- logs


def test_every_log_has_its_records_and_markers(stored: StoredFleet) -> None:
    found = {
        site: {
            topic: {
                "end": cluster.end(topic),
                "data": sum(map(convention.is_data, records)),
                "markers": sum(map(convention.is_marker, records)),
            }
            for topic, records in cluster.records.items()
        }
        for site, cluster in stored.sites.items()
    }
    assert found == stored.expected["logs"]


def test_every_batch_keeps_to_the_convention_of_offsets(stored: StoredFleet) -> None:
    logs = stored.sites["tokyo"].logs
    batches = [view.header for topic, data in logs.items() if not topic.startswith("fairlead.") for view in split(data)]
    assert len(batches) > 200
    assert all(convention.is_ours(header) for header in batches)


@pytest.mark.parametrize("prefix", DECODERS)
def test_every_stored_value_is_decoded_completely(stored: StoredFleet, prefix: str) -> None:
    """Encoded again, it is the same: a field that has another name now would be missing, or be left out."""
    records = [record for site in stored.sites for _, record in data_records(stored, site, prefix)]
    assert records
    for record in records:
        value = record.value or b""
        assert encode(DECODERS[prefix](value)) == value


def test_every_stored_marker_is_decoded_completely(stored: StoredFleet) -> None:
    markers = [
        record for records in stored.sites["tokyo"].records.values() for record in filter(convention.is_marker, records)
    ]
    assert len(markers) == sum(log["markers"] for log in stored.expected["logs"]["tokyo"].values())
    for record in markers:
        assert encode(decoder(Marker).decode(record.value or b"")) == record.value


def test_stored_headers_have_the_current_names(stored: StoredFleet) -> None:
    found: Counter[tuple[str, ...]] = Counter()
    for topic, records in stored.sites["tokyo"].records.items():
        for record in records:
            found[topic.partition(".")[0], *(name for name, _ in record.headers)] += 1
    assert found.keys() >= {
        ("containers", headers.KIND),
        ("containers", headers.RECEIVED),
        ("containers", headers.RECEIVED, headers.ORIGIN),
        ("feeds", headers.ORIGIN, headers.RECEIVED),
        ("strays", headers.RECEIVED),
    }
    assert {name for names in found for name in names[1:]} == {headers.KIND, headers.RECEIVED, headers.ORIGIN}


# --- custody


async def test_stored_ledgers_give_the_same_holders(stored: StoredFleet, topology: Topology) -> None:
    ledgers = sifted(topology, await read_ledgers(stored.cluster("tokyo"), "tokyo"))
    assert not ledgers.damaged
    assert not ledgers.missing
    assert not ledgers.refused
    view = CustodyView()
    for entry in ledgers.entries:
        if isinstance(entry, CustodyEntry):
            view.apply(entry)
    found = {log: [view.holder(log), view.term(log), view.marker(log)] for log in view.logs()}
    assert found == stored.expected["custody"]
    assert {chain.log for chain in chains(ledgers.entries)} == found.keys()


async def test_stored_strays_are_read(stored: StoredFleet, topology: Topology) -> None:
    cluster = stored.cluster("tokyo")
    ledgers = sifted(topology, await read_ledgers(cluster, "tokyo"))
    [waiting] = await find_waiting(cluster, ledgers, topology.is_box_log)
    assert (waiting.log, waiting.kept_at) == ("containers.BIGU7827198", {"tokyo": 3})


# --- tables


def test_stored_columns_have_the_current_names_and_types(stored: StoredFleet) -> None:
    check_types(TablePaths.of(stored.state))
    found = {info.name: {column.name for column in info.columns} for info in read.tables(stored.state)}
    assert found.keys() == {folder.name for folder in (stored.state / "delta").iterdir()}
    for name, columns in found.items():
        assert columns <= set(TABLES[name].schema.names), f"columns of table {name} have other names now"


def test_tables_have_their_rows(stored: StoredFleet) -> None:
    expected = stored.expected["tables"]
    assert {name: read.table(stored.state, name).count_rows() for name in expected} == expected


def test_the_table_of_readings_equals_the_logs(stored: StoredFleet) -> None:
    """As ``shore verify`` compares them: up to where the job's checkpoint says that it has read."""
    checkpoint = read_checkpoint(TablePaths.of(stored.state), "readings")
    assert checkpoint is not None
    columns = "log, log_offset, device_id, boot_id, sequence, device_date_time, supply_temperature"
    rows = read.rows(read.sql(stored.state, f"select {columns} from readings order by log, log_offset"))  # noqa: S608
    expected = []
    for topic, record in data_records(stored, "tokyo", "containers."):
        reading = decoder(Reading).decode(record.value or b"")
        if record.offset < checkpoint.positions[topic]:
            device, measured = reading.device, reading.measurements.supply_temperature
            identity = (device.device_id, device.boot_id, device.sequence, device.device_date_time)
            expected.append((topic, record.offset, *identity, measured))
    assert [tuple(row.values()) for row in rows] == sorted(expected)


@pytest.mark.parametrize("job", ["readings", "operations", "alerts", "alerts_now", "voyages", "feeds", "quality"])
def test_checkpoints_say_how_far_each_job_has_read(stored: StoredFleet, job: str) -> None:
    checkpoint = read_checkpoint(TablePaths.of(stored.state), job)
    assert checkpoint is not None
    assert not checkpoint.under_way
    assert checkpoint.positions or checkpoint.tables


# --- state files, topologies, recordings


def test_stored_sites_are_read(stored: StoredFleet) -> None:
    assert LocalSiteRegistry(stored.state).status().keys() == {"tokyo", "duck-star"}


def test_stored_replicator_status_is_read(stored: StoredFleet) -> None:
    for site, other in (("tokyo", "duck-star"), ("duck-star", "tokyo")):
        status = read_status(stored.state, site)
        assert status is not None
        link = status.link(f"{other}->{site}")
        assert link is not None
        assert (link["state"], link["lag"]) == ("mirroring", 0)


@pytest.mark.parametrize("name", ["minimal", "big-blue", "chain", "fan-in", "two-way"])
def test_a_topology_is_loaded(stored: StoredFleet, name: str) -> None:
    assert load(str(stored.folder / "topologies" / f"{name}.yaml"), env={}).name == name


def as_then(steps: Iterable[Step]) -> Iterator[Step]:
    """Yield steps as voyages of that day had them: without arrivals that are measured, schedules, and the transport
    documents of bookings."""
    schedules: Counter[str | None] = Counter()
    for step in steps:
        match step:
            case Publish(kind=MessageKind.SCHEDULE):
                schedules[step.log] += 1
            case Publish(kind=MessageKind.BOOKING):
                booking = decoder(Booking).decode(step.payload)
                plain = msgspec.structs.replace(booking, transport_document_reference="")
                yield dataclasses.replace(step, payload=encode(plain))
            case VoyageBarrier(kind=BarrierKind.ARRIVAL):
                pass
            case VoyageBarrier():
                ends = {log: end - schedules[log] for log, end in step.log_ends.items()}
                yield dataclasses.replace(step, log_ends=ends)
            case _:
                yield step


def without_courses(steps: Iterable[Step]) -> Iterator[Step]:
    """Yield the steps, positions without course and heading: a ship's were those with which it began its leg."""
    for step in steps:
        if isinstance(step, Publish) and step.kind is MessageKind.POSITION:
            payload = re.sub(rb',"(courseOverGround|heading)":[0-9.]+', b"", step.payload)
            step = dataclasses.replace(step, payload=payload)
        yield step


def test_a_stored_recording_equals_the_scenario_today(stored: StoredFleet, topology: Topology) -> None:
    recorded = ReplayedVoyage(stored.folder / "voyage.gz", topology)
    assert recorded.expected_messages() == stored.expected["recording"]["messages"]
    steps = list(recorded.steps())
    assert len(steps) == stored.expected["recording"]["steps"]
    header = recorded.header
    scenario = Scenario.model_validate(header.scenario)
    today = Voyage(scenario, topology, seed=header.seed, with_bad=header.with_bad).steps()
    assert list(without_courses(steps)) == list(without_courses(as_then(today)))
