"""A feed is compared whole when its customer is new to a running job or gets another kind of feed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.records import encode
from shore.delta.commit import create_table, replace_rows
from shore.delta.lake import Lake
from shore.feeds.kinds import FeedKinds
from shore.feeds.look import keys_of
from shore.feeds.readers import FeedReader
from shore.jobs.feeds import Feeds, fill_changed_feeds, ledgers
from shore.paths import TablePaths
from shore.sink.exactly_once import FeedSink
from shore.tables.feeds import FEEDS
from shore.tables.operations import CUSTODY_ENTRIES
from shore.tables.reference import OWNERS, SITES
from tests.support.honest_ledgers import grant

pytestmark = [pytest.mark.integration, pytest.mark.spark]

KINDS = {
    reader.kind: reader
    for reader in (
        FeedReader("shop"),
        FeedReader("shop", "coarse"),
        FeedReader("shop", "movements", "SGSIN"),
        FeedReader("shop", "movements", "JPTYO"),
    )
}
DUCKS, LATE = FeedReader("ducks"), FeedReader("late")


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Lake:
    found = Lake(spark, TablePaths.of(tmp_path))
    for table in (FEEDS, SITES, OWNERS, CUSTODY_ENTRIES):
        create_table(spark, table, found.paths.table(table.name))
    return found


def test_each_change_is_noticed_once_and_so_is_the_way_back(lake: Lake) -> None:
    known = []
    for kind in ("detailed", "coarse", "detailed", "movements:SGSIN", "movements:JPTYO", "movements:SGSIN"):
        kinds = FeedKinds.read(lake.paths, [KINDS[kind], DUCKS])
        new, *_ = kinds.newcomers()
        assert new.reader.kind == kind
        known.append(new.known)
        kinds.note(lake.spark, None)
        assert FeedKinds.read(lake.paths, [KINDS[kind], DUCKS]).newcomers() == []
    assert known == [False, True, True, True, True, True]


@pytest.fixture
def start(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Return a function that starts the job for some readers. It returns the customers that are compared whole."""
    looked: list[str] = []

    def deliver_everything(feeds: Feeds, at: Any, readers: Sequence[FeedReader]) -> int:
        looked.extend(reader.customer for reader in readers)
        return 0

    monkeypatch.setattr(Feeds, "deliver_everything", deliver_everything)

    def started(*readers: FeedReader, begun: bool = True) -> list[str]:
        looked.clear()
        sink = FeedSink(lake.paths, KafkaEndpoint("alpha", (("127.0.0.1", 1),)), {}, 0, frozenset())
        fill_changed_feeds(lake, Feeds(readers, sink, ledgers(lake)), begun=begun)
        return list(looked)

    return started


def test_the_job_looks_at_everything_where_batches_do_not(start: Callable[..., list[str]]) -> None:
    assert start(KINDS["detailed"], begun=False) == []  # the first batches deliver everything
    assert start(KINDS["coarse"], DUCKS, begun=False) == ["shop"]  # but they would not retract detailed records
    assert start(KINDS["coarse"], DUCKS, LATE) == ["late"]
    assert start(KINDS["coarse"], DUCKS, LATE) == []


def test_a_customer_that_left_and_comes_back_is_compared_whole(start: Callable[..., list[str]]) -> None:
    """Batches passed without it: it lacks what they had, and has what was cancelled meanwhile."""
    shop = KINDS["detailed"]
    assert start(shop, DUCKS) == ["shop", "ducks"]
    assert start(DUCKS) == []
    assert start(shop, DUCKS) == ["shop"]
    assert start(shop, DUCKS) == []
    assert start(DUCKS) == start(DUCKS) == []
    assert start(KINDS["coarse"], DUCKS, begun=False) == ["shop"]  # what it has of another kind is retracted


@pytest.mark.long
@pytest.mark.parametrize("kind", ["movements:SGSIN", "coarse"])
def test_a_feed_that_names_ports_ships_or_lines_is_compared_whole_when_they_change(
    lake: Lake, start: Callable[..., list[str]], kind: str
) -> None:
    """They are in its records, and no batch has their changes. A coarse feed names only ports."""
    port = KINDS[kind]
    names_all = ["shop"] if kind != "coarse" else []
    singapore = {"site": "singapore", "kind": "port", "title": "Singapore"}
    star = {"site": "star", "kind": "ship", "title": "MV Duck Star", "vessel_imo_number": "9074729"}
    yellow = {"owner_code": "YELU", "stream": "yellow", "line": "Yellow"}

    def changed(*sites: dict[str, str], owners: Sequence[dict[str, str]] = (yellow,)) -> list[str]:
        for table, rows in ((SITES, sites), (OWNERS, owners)):
            fresh = pa.Table.from_pylist(list(rows), schema=table.plain_schema)
            replace_rows(lake, table, lake.spark.createDataFrame(fresh))
        return start(port, DUCKS)

    assert changed(singapore, star) == ["shop", "ducks"]
    assert changed(singapore, star) == []
    located = singapore | {"un_location_code": "SGSIN"}
    assert changed(located, star) == ["shop"]
    renamed = star | {"title": "MV Duck Moon"}
    assert changed(located, renamed) == names_all
    assert changed(located | {"title": "Port of Singapore"}, renamed) == []  # no record has the title of a port
    red = yellow | {"owner_code": "REDU", "line": "Red"}
    assert changed(located, renamed, owners=[yellow, red]) == names_all
    assert changed(located, renamed, owners=[yellow, red]) == []
    location = lake.paths.table(FEEDS.name)
    older = f"alter table delta.`{location}` set tblproperties ('fairlead.feed.shop' = '{port.kind}')"
    lake.spark.sql(older)  # a version that did not note them may have left old values in the feed
    assert start(port, DUCKS) == ["shop"]
    assert start(port, DUCKS) == []


@pytest.mark.long
def test_feeds_of_a_container_are_compared_when_the_topology_changes_which_entries_are_believed(
    lake: Lake, start: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No batch has that change: the feeds would keep grants that count no more, and lack those that count now."""
    looked: set[str] = set()
    monkeypatch.setattr(Feeds, "deliver", lambda _, __, batch: looked.update(key.box for key in keys_of(batch)))
    box, other = "BIGU1000005", "YELU1000002"
    entries = [grant("tokyo", f"containers.{box}", 1, "tokyo"), grant("tokyo", f"yellow.{other}", 1, "tokyo")]
    rows = [
        {"log": "custody.tokyo", "log_offset": at, "payload": encode(entry), "entry_type": "grant"}
        | {"entry_log": entry.log, "event_date_time": entry.event_date_time}
        for at, entry in enumerate(entries)
    ]
    replace_rows(
        lake, CUSTODY_ENTRIES, lake.spark.createDataFrame(pa.Table.from_pylist(rows, CUSTODY_ENTRIES.plain_schema))
    )

    def changed(streams: dict[str, str], **kinds: str) -> set[str]:
        sites = [{"site": site, "kind": kind} for site, kind in kinds.items()]
        owners = [{"owner_code": code, "stream": stream} for code, stream in streams.items()]
        for table, found in ((SITES, sites), (OWNERS, owners)):
            fresh = pa.Table.from_pylist(found, schema=table.plain_schema)
            replace_rows(lake, table, lake.spark.createDataFrame(fresh))
        looked.clear()
        assert start(DUCKS) == []
        return set(looked)

    start(DUCKS)
    streams = {"BIGU": "containers", "YELU": "yellow"}
    assert changed(streams, tokyo="port") == set()
    assert changed(streams | {"REDU": "red"}, tokyo="port", star="ship") == set()  # believes the same entries
    assert changed({"BIGU": "containers", "YELU": "containers"}, tokyo="port") == {other}
    assert changed(streams, tokyo="port") == {other}
    assert changed(streams, tokyo="ship") == {box, other}
    assert changed(streams, tokyo="ship") == set()
