"""Change one value by hand in any column of any table: ``shore verify`` names the table, row and column."""

from __future__ import annotations

import datetime as dt
import itertools
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from fairlead.errors import ConfigurationError
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.record import NewRecord
from fairlead.records import encode
from fairlead.records.digest import Digest, DigestBox, encode_digest
from fairlead.records.event import Event, EventMetadata, EventPayload
from fairlead.records.reading import Device, GeoLocation
from fairlead.records.ship import Environment, Position
from shore.delta.lake import Lake
from shore.jobs.checkpoint import read_checkpoint, table_ids
from shore.jobs.runner import JOBS
from shore.paths import TablePaths
from shore.repair import backfill
from shore.repair.backfill import BackfillSpan
from shore.tables import TABLES
from shore.tables.feeds import CUSTOMER_FEED
from shore.tables.graph import BY_NAME
from shore.tables.model import Table
from shore.verify import Difference, Verification, verify
from shore.verify.catalogue import DERIVED
from tests.integration.shore.conftest import Shore
from tests.support.shore.world import MINUTE, T0, World, alert, booking, docked, grant, reading
from topologies.model import Geofence, Place, Topology

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.timeout(900),
]  # the jobs run once for all tests

IMO: Final = "9811000"  # no other test of this Kafka has events of this ship
OWN: Final = "customers/own"  # stands for the table of this world's customer, whose name is made up
ALL: Final[dict[str, Table]] = {**TABLES, OWN: CUSTOMER_FEED}


def _level(name: str) -> int:
    """Return how many derivations a table is away from tables that follow from no other."""
    if name in ("feeds", OWN):
        return len(DERIVED) + (name == OWN)
    derived = BY_NAME.get(name)
    return 1 + max(map(_level, derived.inputs)) if derived else 0


LEVELS: Final = [tuple(names) for _, names in itertools.groupby(sorted(ALL, key=_level), key=_level)]
"""All tables, in groups in which none follows from another: ``verify`` reports each although all are wrong."""
COLUMNS: Final = [(name, column) for name, table in ALL.items() for column in table.plain_schema.names]


def _topology(world: World) -> Topology:
    """Return the world's topology with readers of each kind, and a geofence through which its ship sails."""
    plain = world.topology(recipient=True, authority=True, tables=True)
    bay = Geofence(at=Place(latitude=34.0, longitude=139.8), within_km=20)
    return plain.model_copy(update={"geofences": {"bay": bay}})


@dataclass(frozen=True)
class Proven:
    """Tables of one world as the jobs made them, verified, with at least one row in each."""

    world: World
    folder: Path
    spark: SparkSession

    @property
    def paths(self) -> TablePaths:
        return TablePaths.of(self.folder)

    @property
    def lake(self) -> Lake:
        return Lake(self.spark, self.paths)

    def table(self, name: str) -> str:
        return f"customers/{self.world.customer}" if name == OWN else name

    def verify(self, *tables: str) -> Verification:
        topology = _topology(self.world)
        return verify(self.spark, topology, self.world.endpoint, self.folder, [self.table(name) for name in tables])

    def backfill(self, *tables: str, since: dt.datetime | None = None) -> backfill.Backfill:
        topology = _topology(self.world)
        return backfill.plan_backfill(self.lake, topology, self.world.endpoint, BackfillSpan(since), tables)

    def forge(
        self,
        name: str,
        *columns: str,
        wanted: Callable[[dict[str, Any]], bool] = bool,
        row: int = 0,
        change: Callable[[Any, pa.DataType], Any] | None = None,
    ) -> dict[str, Any]:
        """Change values of row number ``row`` of those that are ``wanted``, by ``other`` or ``change``; return the row
        as it was."""
        table = DeltaTable(self.paths.table(self.table(name)))
        rows = ALL[name].sorted(table.to_pyarrow_table().select(ALL[name].plain_schema.names))
        row = [number for number, each in enumerate(rows.to_pylist()) if wanted(each)][row]
        forged = rows
        for column in columns:
            kind, values = rows.schema.field(column).type, rows[column].to_pylist()
            values[row] = (change or other)(values[row], kind)
            forged = forged.set_column(
                rows.schema.get_field_index(column), rows.schema.field(column), pa.array(values, kind)
            )
        assert not forged.equals(rows)
        content = self.spark.createDataFrame(forged)
        content.write.format("delta").mode("overwrite").save(self.paths.table(self.table(name)))
        return dict(rows.slice(row, 1).to_pylist()[0])


def other(value: Any, kind: pa.DataType) -> Any:
    """Return another value of this type."""
    if pa.types.is_boolean(kind):
        return not value
    if pa.types.is_integer(kind):
        return (value or 0) + 1
    if pa.types.is_floating(kind):
        return (value or 0.0) + 1.5
    if pa.types.is_timestamp(kind):
        return (value or T0) + dt.timedelta(seconds=1)
    if pa.types.is_binary(kind):
        return (value or b"") + b" "
    if pa.types.is_list(kind):
        return [*(value or []), {"key": "forged", "value": b"1"}]
    return (value or "") + "X"


@pytest.fixture(scope="module")
def proven(
    kafka: Callable[..., KafkaEndpoint], spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Proven:
    world = World(kafka("alpha", "admin"))
    folder = tmp_path_factory.mktemp("forged")
    fill(world)
    topology = _topology(world)
    Shore(world, folder, spark).run(topology=topology)
    made = Proven(world, folder, spark)
    found = made.verify()
    assert [(each.table, each.notes, each.differences) for each in found.tables if not each.same] == []
    empty = [name for name in ALL if not DeltaTable(made.paths.table(made.table(name))).to_pyarrow_table().num_rows]
    assert not empty
    return made


@pytest.fixture
def tables(proven: Proven, tmp_path: Path) -> Iterator[Proven]:
    """Yield the tables, and restore them after the test."""
    kept = tmp_path / "kept"
    shutil.copytree(proven.folder, kept)
    yield proven
    shutil.rmtree(proven.folder)
    shutil.copytree(kept, proven.folder)


def fill(world: World) -> None:
    """Write what gives every table a row: readings out of band, without power, with a gap, and one that is broken;
    bookings, one with a cold treatment, alerts, ledgers; a ship's positions, weather, digest and schedule, its call at
    a port and what happened to the box there."""
    box, other_box = world.box(0), world.box(1)
    hot = [reading(box, n, T0 + n * 10 * MINUTE, 4.0 if n < 6 else 11.0, is_powered=n < 20) for n in range(30)]
    silent = [reading(box, 30 + n, T0 + (900 + n * 10) * MINUTE) for n in range(6)]
    quiet = [reading(other_box, n, T0 + n * 10 * MINUTE, probe=0.5) for n in range(12)]
    treated: dict[str, Any] = {"cold_treatment_temperature": 1.1, "cold_treatment_days": 14.0}
    told = DigestBox(equipment_reference=box, reading_date_time=T0, supply_temperature=4.0)
    digest = Digest(vessel_imo_number=IMO, as_of_date_time=T0 + MINUTE, whole=True, boxes=(told,))
    at = {site: T0 + hours * 60 * MINUTE for site, hours in (("here", 0), ("away", 3), ("back", 8))}

    def moved(code: str, when: dt.datetime) -> NewRecord:
        event = Event(
            metadata=EventMetadata(
                event_id=f"{code}-{box}", event_created_date_time=when, event_type="EQUIPMENT", publisher="alpha"
            ),
            payload=EventPayload(
                event_date_time=when,
                equipment_event_type_code=code,  # type: ignore[arg-type]  # DCSA's codes
                equipment_reference=box,
                un_location_code="JPTYO",
                vessel_imo_number=IMO if code == "LOAD" else None,
            ),
        )
        return NewRecord(encode(event), f"{code}-{box}".encode(), timestamp_ms=_ms(when))

    def sailing(n: int) -> NewRecord:
        when = T0 + n * 30 * MINUTE
        position = Position(
            vessel_imo_number=IMO,
            device=Device(device_id="ais", boot_id=1, sequence=n, device_date_time=when),
            geo_location=GeoLocation(latitude=35.0 - n / 10, longitude=139.8),
            speed_over_ground=14.0,
            navigation_status=0,
        )
        return NewRecord(encode(position), IMO.encode(), timestamp_ms=_ms(when))

    weather = Environment(
        vessel_imo_number=IMO,
        device=Device(device_id="bridge", boot_id=1, sequence=1, device_date_time=T0),
        wind_speed=8.0,
    )
    world.append(
        {
            world.log(box): [*hot, *silent, NewRecord(b"{broken", box.encode(), timestamp_ms=_ms(T0))],
            world.log(other_box): quiet,
            world.bookings: [
                booking(f"B-{world.tag}", world.customer, box, T0, None, consignee=world.recipient),
                booking(f"C-{world.tag}", world.customer, other_box, T0, None, **treated),
            ],
            world.alerts: [alert(box, world.tag, T0 + 5 * MINUTE)],
            world.custody: [grant(world.log(box), 1, world.tag, T0)],
            world.events: [
                docked(f"in-{world.tag}", "ARRI", at["here"], imo=IMO),
                moved("GTIN", at["here"]),
                moved("LOAD", at["here"] + 60 * MINUTE),
                docked(f"out-{world.tag}", "DEPA", at["away"], imo=IMO),
                docked(f"again-{world.tag}", "ARRI", at["back"], imo=IMO),
                docked(f"next-{world.tag}", "ARRI", at["back"] + 600 * MINUTE, imo=IMO, port="SGSIN", classifier="EST"),
            ],
            f"ships.{IMO}.location": [sailing(n) for n in range(8, 16)],
            f"ships.{IMO}.digest": [NewRecord(encode_digest(digest), IMO.encode(), timestamp_ms=_ms(T0))],
            f"ships.{IMO}.environment": [NewRecord(encode(weather), IMO.encode(), timestamp_ms=_ms(T0))],
        }
    )


def _ms(at: dt.datetime) -> int:
    return int(at.timestamp() * 1000)


def named(found: Verification, name: str) -> tuple[Difference, ...]:
    """Return the differences reported for a table; fail unless it is reported as wrong."""
    (check,) = [each for each in found.tables if name in each.table.split(" + ")]
    assert check.same is False, check.notes
    return tuple(each for each in check.differences if each.table == name)


def is_told(told: Sequence[Difference], key: Mapping[str, Any]) -> bool:
    """Return whether a row with this key is reported as missing or extra."""
    odd = [each.key for each in told if each.what in ("missing", "extra")]
    return any(all(found.get(k) in (v, str(v)) for k, v in key.items()) for found in odd)


def key_of(name: str, row: Mapping[str, Any]) -> dict[str, Any]:
    return {each: row[each] for each in ALL[name].key}


@pytest.mark.parametrize(("name", "column"), COLUMNS, ids=[f"{name}.{column}" for name, column in COLUMNS])
def test_a_value_changed_by_hand_is_found(tables: Proven, name: str, column: str) -> None:
    """``verify`` names the table, the row and the column of one changed value."""
    row = tables.forge(name, column)
    told, key = named(tables.verify(name), tables.table(name)), key_of(name, row)
    if column in key:
        assert is_told(told, key), told
        return
    (changed,) = [each for each in told if column in each.columns]
    assert changed.what == "changed"
    assert {k: v for k, v in changed.key.items() if k in key} == {k: v for k, v in key.items() if k in changed.key}
    assert changed.found[column] != changed.expected[column]


def test_a_value_that_stands_in_another_field_of_a_box_is_found(tables: Proven) -> None:
    """A digest's temperature of the supply air is given as that of the return air."""

    def swapped(boxes: Any, _: pa.DataType) -> Any:
        supply = boxes[0]["supply_temperature"]
        return [{**boxes[0], "supply_temperature": boxes[0]["return_temperature"], "return_temperature": supply}]

    tables.forge("digests", "boxes", change=swapped)
    (changed,) = named(tables.verify("digests"), "digests")
    assert changed.columns == ("boxes",)


@pytest.mark.parametrize("names", LEVELS, ids=lambda names: names[0])
def test_every_column_of_every_table_that_was_changed_is_named(tables: Proven, names: tuple[str, ...]) -> None:
    """``verify`` names every changed column of one row and, where there is another row, the change of its key."""
    plain = {name: [each for each in ALL[name].plain_schema.names if each not in ALL[name].key] for name in names}
    keys: dict[str, dict[str, Any]] = {}
    for name in names:
        tables.forge(name, *plain[name])
        if DeltaTable(tables.paths.table(tables.table(name))).to_pyarrow_table().num_rows > 1:
            keys[name] = key_of(name, tables.forge(name, ALL[name].key[-1], row=-1))
    found = tables.verify(*names)
    for name in names:
        told = named(found, tables.table(name))
        changed = {column for each in told if each.what == "changed" for column in each.columns}
        assert changed >= set(plain[name]), name
        assert name not in keys or is_told(told, keys[name]), (name, told)


def test_only_tables_that_were_changed_are_accused(tables: Proven) -> None:
    forged = {"readings": "supply_temperature", "custody_entries": "payload", "sites": "un_location_code"}
    for name, column in forged.items():
        tables.forge(name, column)
    accused = [each.table for each in tables.verify().tables if each.same is False]
    assert sorted(accused) == ["custody_entries", "readings + readings_rejected", "sites"]


def test_a_derived_table_alone_is_not_accused_either(tables: Proven) -> None:
    """A derived table checked alone is not reported as wrong when its input was changed; a note names the input."""
    tables.forge("readings", "supply_temperature", wanted=lambda row: row["supply_temperature"] == 11.0)
    for check in tables.verify("conditions", "excursion_parts").tables:
        assert check.same is None
        assert "readings" in check.notes[0]


def test_checkpoints_have_the_inputs_that_jobs_name(proven: Proven) -> None:
    """The order matters: Spark assigns the positions of a checkpoint in the order of the query's inputs."""
    names = table_ids(proven.paths, TABLES)
    for job in JOBS.values():
        checkpoint = read_checkpoint(proven.paths, job.name)
        assert checkpoint is not None
        sources = [each and names.get(each.get("reservoirId", "")) for each in checkpoint.ahead]
        if job.inputs:
            assert [name for name in sources if name] == [n for n, s in zip(job.inputs, sources, strict=True) if s]
        else:
            assert sources == [None]


def test_derived_tables_are_not_mended_towards_a_forged_value(tables: Proven) -> None:
    """Derived tables are not recomputed from a forged value."""
    tables.forge("readings", "supply_temperature", wanted=lambda row: row["supply_temperature"] == 11.0)
    with pytest.raises(ConfigurationError, match=r"readings.* 1 row") as refused:
        tables.backfill("conditions")
    assert "--table readings" in str(refused.value.hint)
    todo = tables.backfill()
    assert [(each.entry.name, each.wrong) for each in todo.logs if each.wrong] == [("readings + readings_rejected", 1)]
    assert not todo.unproven
    backfill.apply_backfill(todo, tables.lake, tables.world.topology())
    assert tables.verify("readings", "conditions", "excursions", "mkt", "quality").ok


def test_a_backfill_of_some_days_tells_of_forged_values_of_others(tables: Proven) -> None:
    """A backfill of some days reports forged values of other days."""
    tables.forge("readings", "supply_temperature", wanted=lambda row: row["supply_temperature"] == 11.0)
    later = T0 + 12 * 60 * MINUTE
    tables.forge("conditions", "readings", wanted=lambda row: row["window_end"] > later)
    todo = tables.backfill("readings", "conditions", since=later)
    assert [each.table for each in todo.derived if each.rows] == ["conditions"]
    assert todo.unproven == {"readings + readings_rejected": 1}
