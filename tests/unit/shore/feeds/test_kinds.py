"""A customer that gets another kind of feed: what was of the old one is taken back, what is of the new one is given."""

from __future__ import annotations

import datetime as dt
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from fairlead.kafka.endpoint import KafkaEndpoint
from shore.feeds.readers import FeedReader
from shore.feeds.records import delivered
from shore.feeds.welcome import newcomers, note
from shore.jobs import feeds
from shore.jobs.checkpoint import write_checkpoint
from shore.jobs.entitlement import all_touched, entitled
from shore.paths import TablePaths
from shore.tables import TABLES
from shore.tables.reference import OWNERS, SITES
from tests.support.feeds import followed, value_of
from tests.unit.shore.feeds.histories import BOXES, T0, Change, Happened, World

SHOP = "shop"
READERS = {
    reader.kind: reader
    for reader in (
        FeedReader(SHOP),
        FeedReader(SHOP, "coarse"),
        FeedReader(SHOP, "movements", "SGSIN"),
        FeedReader(SHOP, "movements", "JPTYO"),
    )
}
EVERYTHING = [{"equipment_reference": box, "log": None, "first_offset": None} for box in (*BOXES, None)]


def world(*readers: FeedReader) -> World:
    """A booking of the shop, as customer and recipient; readings, an alert and a grant; a ship and the box in two
    ports."""
    found = World(
        readers=readers,
        feeds={SHOP: []},
        names={
            "sites": SITES.plain_schema.empty_table(),
            "owners": OWNERS.plain_schema.empty_table(),
        },
    )
    found.changed(Change("B1", BOXES[0], SHOP, "CONFIRMED", 0, None, SHOP))
    for table, hour in (("readings", 0), ("readings", 1), ("readings", 2), ("alerts", 1), ("custody_entries", 1)):
        found.happened(Happened(table, BOXES[0], hour))
    for identity, port, code in (("a", "JPTYO", "LOAD"), ("b", "SGSIN", "DISC"), ("c", "SGSIN", "ARRI")):
        row: dict[str, Any] = {"log": "events.tokyo", "log_offset": len(found.tables["events"]), "event_id": identity}
        row |= {"event_date_time": T0 + dt.timedelta(hours=1), "un_location_code": port, "vessel_imo_number": "9074729"}
        row |= {"transport_event_type_code": code} if code == "ARRI" else {"equipment_event_type_code": code}
        row |= {} if code == "ARRI" else {"equipment_reference": BOXES[0]}
        found.tables["events"].append(row)
    found.touched[:] = EVERYTHING
    return found


def stands(of: World) -> list[tuple[str, str]]:
    """What a consumer has in the end: origins, and what is said without the number of the revision."""
    found = []
    for record in followed(of.feeds[SHOP]):
        value = value_of(record)
        value.pop("revision", None)
        found.append((str(dict(record.headers)["origin"]), repr(value or record.value)))
    return sorted(found)


def changed_to(of: World, reader: FeedReader) -> None:
    of.readers = (reader,)
    of.touched[:] = EVERYTHING
    of.deliver(None, limit=100)


@pytest.mark.parametrize(("first", "second"), [*combinations(READERS, 2)])
def test_what_stands_is_what_the_new_kind_is_and_of_the_old_one_again(first: str, second: str) -> None:
    alone = {}
    for kind in (first, second):
        fresh = world(READERS[kind])
        fresh.deliver(None, limit=100)
        alone[kind] = stands(fresh)
    assert alone[first] and alone[second]
    shop = world(READERS[first])
    shop.deliver(None, limit=100)
    for kind in (second, first):
        changed_to(shop, READERS[kind])
        assert stands(shop) == alone[kind]
        assert not shop.due(1)
    given = len(shop.feeds[SHOP])
    changed_to(shop, READERS[first])
    assert len(shop.feeds[SHOP]) == given


def test_movements_are_found_in_the_tables(tmp_path: Path) -> None:
    paths, shop = TablePaths.of(tmp_path), world(READERS["movements:SGSIN"])
    shop.deliver(None, limit=100)
    for name, table in TABLES.items():
        table.create(paths.table(name))
    for name in ("events", "booking_changes"):
        rows = pa.Table.from_pylist(shop.tables[name], schema=TABLES[name].plain_schema)
        write_deltalake(paths.table(name), rows, mode="append")
    write_deltalake(paths.table("feeds"), delivered(SHOP, shop.feeds[SHOP]), mode="append")
    found = entitled(paths, [READERS["detailed"]], all_touched(paths), limit=10).to_pylist()
    assert [(row["log"], row["retracts"] is not None) for row in found] == [
        ("movements/b", True),
        ("movements/c", True),
    ]


def test_the_job_looks_at_everything_where_batches_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[list[str]] = []
    monkeypatch.setattr(feeds, "deliver", lambda *given: looked.append([reader.customer for reader in given[-1]]))
    paths, nowhere = TablePaths.of(tmp_path), KafkaEndpoint("alpha", (("127.0.0.1", 1),))
    for name in ("feeds", "booking_changes"):
        TABLES[name].create(paths.table(name))
    detailed, coarse, ducks = READERS["detailed"], READERS["coarse"], FeedReader("ducks")
    feeds.welcome(paths, nowhere, [detailed])  # the first batches will
    feeds.welcome(paths, nowhere, [coarse, ducks])  # they would not take back what was detailed
    assert looked == [[SHOP]]
    write_checkpoint(paths, "feeds", {}, "{}")
    (Path(paths.checkpoint("feeds")) / "offsets" / "0").write_text("v1")
    feeds.welcome(paths, nowhere, [coarse, ducks, FeedReader("late")])
    feeds.welcome(paths, nowhere, [coarse, ducks, FeedReader("late")])
    assert looked == [[SHOP], ["late"]]


def test_each_change_is_noticed_once_and_so_is_the_way_back(tmp_path: Path) -> None:
    paths = TablePaths.of(tmp_path)
    TABLES["feeds"].create(paths.table("feeds"))
    known: list[bool] = []
    for kind in ("detailed", "coarse", "detailed", "movements:SGSIN", "movements:JPTYO", "movements:SGSIN"):
        readers = [READERS[kind], FeedReader("ducks")]
        (new, *others) = newcomers(paths, readers)
        assert new.reader.kind == kind
        known.append(new.known)
        for each in (new, *others):
            note(paths, each.reader)
        assert newcomers(paths, readers) == []
    assert known == [False, True, True, True, True, True]
