"""What a share has: the same as the customer's feed, and never more than its kind may say."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from board.sharing.content import SHARED
from board.sharing.protocol import ApiError, Moment, SharedFile, change_lines, instant
from board.sharing.service import MEMORY, CustomerTable, SharingService
from board.sharing.tokens import Recipient
from board.sharing.versions import History, Version
from fairlead.records.reading import moment_of
from shore.feeds.readers import readers_here
from shore.report.slices import open_slices
from tests.support.sharing import World, values
from tests.support.shore.fleet import BOX, OTHER, STAR, alert, at, change, reading


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def customer_table(world: World, customer: str, table: str) -> CustomerTable:
    (reader,) = (each for each in readers_here(world.topology) if each.customer == customer)
    (found,) = (each for each in SHARED[reader.grain] if each.name == table)
    return CustomerTable(reader, found)


def history(world: World, customer: str, table: str, service: SharingService | None = None) -> History:
    return (service or world.service).history(customer_table(world, customer, table))


def content_of(world: World, customer: str, table: str, version: Version) -> pa.Table:
    shared = customer_table(world, customer, table)
    if not version.digest:
        return shared.table.schema.empty_table()
    who = Recipient(customer, "")
    (file,) = world.service.files(who, shared, version, str)
    return pq.read_table(world.folder / "sharing" / "files" / customer / table / f"{file.digest}.parquet")


def rows(world: World, customer: str, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = content_of(world, customer, table, history(world, customer, table).newest).to_pylist()
    return found


def origins(world: World, customer: str, table: str) -> set[tuple[str, int]]:
    return {(row["log"], row["log_offset"]) for row in rows(world, customer, table)}


def held(world: World, customer: str, prefix: str) -> set[tuple[str, int]]:
    return {(log, offset) for name, log, offset in world.said if name == customer and log.startswith(prefix)}


def test_readings_and_alerts_are_what_the_feed_has(world: World) -> None:
    assert origins(world, "ducks", "readings") == {(f"containers.{BOX}", i) for i in range(19)}
    assert origins(world, "beans", "readings") == {
        *((f"containers.{BOX}", i) for i in range(20, 30)),
        *((f"containers.{OTHER}", i) for i in range(10)),
    }
    for customer, offsets in (("ducks", {0}), ("toyshop", {0}), ("beans", {1, 2}), ("lessor", {0, 1, 2})):
        expected = {("alerts.star", offset) for offset in offsets}
        assert origins(world, customer, "alerts") == expected == held(world, customer, "alerts.")


def test_a_share_takes_no_threads_from_portals(world: World) -> None:
    """Its sums are made by one thread, so that they are the same each time; the portals' queries have all."""
    with open_slices(world.paths, memory=MEMORY) as portal:
        before = portal.row("select current_setting('threads') as n")
        history(world, "ducks", "readings")
        assert portal.row("select current_setting('threads') as n") == before
    with open_slices(world.paths, memory=MEMORY, threads=1) as share:
        assert share.row("select current_setting('threads') as n") == {"n": 1}


def test_no_file_has_a_row_of_anybody_else(world: World) -> None:
    for reader in readers_here(world.topology):
        for table in SHARED[reader.grain]:
            history(world, reader.customer, table.name)
    files = list(world.folder.rglob("sharing/files/*/*/*.parquet"))
    assert len(files) == 12
    own = {"ducks": {BOX}, "toyshop": {BOX}, "beans": {BOX, OTHER}, "lessor": {BOX, OTHER}}
    for file in files:
        customer = file.parent.parent.name
        assert set(pq.read_table(file)["equipment_reference"].to_pylist()) <= own[customer]
        assert file.stat().st_mode & 0o777 == 0o600 and file.parent.stat().st_mode & 0o777 == 0o700


def test_the_columns_of_records_are_those_that_their_json_has(world: World) -> None:
    (row, *_) = rows(world, "ducks", "readings")
    assert {"log", "log_offset", "equipment_reference", "supply_temperature"} <= row.keys()
    assert row.keys().isdisjoint({"payload", "received_date_time", "term", "late", "origin"})


def test_a_recipients_hours_and_milestones_say_what_its_feed_says(world: World) -> None:
    told = {(log, offset): value for (who, log, offset), value in world.said.items() if who == "toyshop"}
    hours = rows(world, "toyshop", "conditions")
    assert len(hours) == sum(log.startswith("hours/") for log, _ in told) == 10
    for row in hours:
        value = told[f"hours/{BOX}", int(row["window_start"].timestamp()) // 3600]
        assert value["readings"] == row["readings"]
        assert value["supplyTemperature"]["max"] == row["supply_temperature_max"]
        assert value["minutesObserved"] == pytest.approx(row["minutes_observed"], abs=1e-3)
    milestones = rows(world, "toyshop", "milestones")
    assert {row["event_id"] for row in milestones} == {
        value["eventID"] for (log, _), value in told.items() if log.startswith("milestones/")
    }
    assert [
        (row["equipment_event_type_code"] or row["transport_event_type_code"], row["vessel_imo_number"])
        for row in milestones
    ] == [("LOAD", STAR), ("DEPA", STAR)]
    assert all("booking" not in name and name != "publisher" for row in milestones for name in row)


def test_an_hour_is_made_of_the_customers_own_readings_alone(world: World) -> None:
    hours = {row["window_start"]: row for row in rows(world, "ducks", "conditions")}
    assert max(hours) == at(9) and (hours[at(9)]["readings"], hours[at(8)]["readings"]) == (1, 2)
    # That reading stands for the 30 minutes that a reading stands for at most: the next is not this customer's.
    assert hours[at(9)]["minutes_observed"] == 30
    later = {
        row["window_start"]: row for row in rows(world, "beans", "conditions") if row["equipment_reference"] == BOX
    }
    assert min(later) == at(10) and later[at(10)]["supply_temperature_min"] == 20.0


def test_an_excursion_is_shared_if_all_that_decides_it_is_in_one_period(world: World) -> None:
    assert [row["start_date_time"] for row in rows(world, "ducks", "excursions")] == [at(1)]
    found = [(row["equipment_reference"], row["start_date_time"]) for row in rows(world, "beans", "excursions")]
    assert found == [(BOX, at(12)), (OTHER, at(1))]


def test_a_version_is_made_when_rows_change_and_not_otherwise(world: World) -> None:
    first = history(world, "ducks", "readings")
    world.add(readings=[reading(50, 3, OTHER, payload=b"{}")])  # of somebody else
    assert history(world, "ducks", "readings").versions == first.versions
    world.add(readings=[reading(50, 3, payload=b"{}")])
    second = history(world, "ducks", "readings")
    assert second.newest.number == first.newest.number + 1 and second.newest.rows == 20
    assert second.at(Moment(version=first.newest.number)) == first.newest
    assert content_of(world, "ducks", "readings", first.newest).num_rows == 19


def test_a_version_is_found_by_each_time_that_is_told_of_it(world: World) -> None:
    """Clients hear of whole milliseconds, and ask for them."""
    world.clock.forward(microseconds=123_456)
    found = history(world, "ducks", "readings")
    made = found.newest.made
    (line,) = change_lines([(SharedFile("", "", 0, 0, made), 1, made)])
    assert found.at(Moment(timestamp=moment_of(json.loads(line)["cdf"]["timestamp"]))) == found.newest
    with pytest.raises(ApiError, match="not kept") as refused:
        found.at(Moment(timestamp=made - dt.timedelta(seconds=1)))
    said = instant("timestamp", refused.value.message.rpartition(" ")[2])
    assert found.at(Moment(timestamp=said)) == found.since(said) == found.newest


def test_what_is_taken_back_is_in_no_version(world: World) -> None:
    first = history(world, "ducks", "readings")
    old = world.folder / "sharing" / "files" / "ducks" / "readings" / f"{first.newest.digest}.parquet"
    assert old.is_file()
    world.add(booking_changes=[change(3, 5, valid_to=at(4), consignee="toyshop")])
    second = history(world, "ducks", "readings")
    assert [each.rows for each in second.versions] == [8] and second.newest.number == first.newest.number + 1
    assert not old.exists()
    with pytest.raises(ApiError, match="not kept"):
        second.at(Moment(version=first.newest.number))
    world.add(booking_changes=[change(4, 6, valid_to=at(9.5), consignee="toyshop")])
    assert origins(world, "ducks", "readings") == held(world, "ducks", "containers.") != set()
    assert history(world, "ducks", "readings").newest.rows == 19


def test_a_cancelled_booking_takes_everything(world: World) -> None:
    for table in ("readings", "conditions", "excursions", "alerts"):
        assert rows(world, "ducks", table)
    cancelled = change(3, 5, status="CANCELLED", valid_to=at(9.5), consignee="toyshop")
    world.add(booking_changes=[cancelled])
    for customer in ("ducks", "toyshop"):
        for each in SHARED[world.topology.customers[customer].feed]:
            assert rows(world, customer, each.name) == []
    assert list(world.folder.glob("sharing/files/ducks/*/*.parquet")) == []
    assert origins(world, "lessor", "alerts") == {("alerts.star", i) for i in range(3)}


def test_another_kind_of_feed_has_other_tables_and_nothing_of_before(world: World) -> None:
    assert rows(world, "ducks", "readings")
    before = history(world, "ducks", "conditions")
    customers = world.topology.customers | {"ducks": world.topology.customers["toyshop"]}
    world.topology = world.topology.model_copy(update={"customers": customers})
    again = SharingService(
        world.topology,
        world.folder,
        world.paths,
        world.folder / "sharing" / "files",
        world.clock,
        fresh=dt.timedelta(0),
    )
    assert not (world.folder / "sharing" / "files" / "ducks" / "readings").exists()
    after = history(world, "ducks", "conditions", again)  # the feed still has the old kind's records
    assert [each.rows for each in after.versions] == [0] and after.newest.number == before.newest.number + 1
    world.deliver()
    assert history(world, "ducks", "conditions", again).newest.rows == 10


def test_a_lost_cache_takes_no_version_back(world: World) -> None:
    first = history(world, "ducks", "alerts").newest
    for file in world.folder.glob("sharing/files/ducks/alerts/*"):
        file.unlink()
    world.clock.forward(seconds=5)
    again = history(world, "ducks", "alerts").newest
    assert again.number > first.number and again.digest == first.digest


def test_versions_end_after_a_day(world: World) -> None:
    first = history(world, "ducks", "alerts").newest
    world.clock.forward(hours=25)
    world.add(alerts=[alert(7, 3, alert_id="a7", payload=b"{}")])
    assert [each.number for each in history(world, "ducks", "alerts").versions] == [first.number + 1]
    assert len(list(world.folder.glob("sharing/files/ducks/alerts/*.parquet"))) == 1


def test_tables_that_do_not_exist_yet_have_no_rows(tmp_path: Path) -> None:
    world = World(tmp_path / "there")
    nowhere = tmp_path / "nowhere"
    service = SharingService(world.topology, nowhere, type(world.paths).of(nowhere), nowhere / "files")
    found = history(world, "ducks", "readings", service)
    assert [(each.rows, each.digest) for each in found.versions] == [(0, "")]


def test_values_are_those_of_the_table(world: World) -> None:
    stored = {
        row["log_offset"]: row for row in world.table("readings").to_pylist() if row["log"] == f"containers.{BOX}"
    }
    for row in rows(world, "ducks", "readings"):
        assert values(row).items() <= stored[row["log_offset"]].items()
