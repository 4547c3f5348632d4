"""Customers' own tables are maintained like shore's: shown, queried, compacted, vacuumed, their types checked."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from fairlead.cli.app import run
from fairlead.errors import UnknownNameError
from fairlead.kafka.endpoint import KafkaEndpoint
from shore.delta.evolution import check_types
from shore.delta.table_errors import check_tables
from shore.errors import SchemaError
from shore.feeds.readers import kept_tables
from shore.maintenance import plan_compaction, plan_vacuum
from shore.paths import TablePaths
from shore.tables import TABLES
from shore.tables.feeds import CUSTOMER_FEED
from tests.support.delta_rs import append_once, create
from tests.support.tables import age
from topologies.loader.load import load
from topologies.model import Customer, Topology

DUCKS = "customers/ducks"
NOWHERE = KafkaEndpoint("alpha", (("127.0.0.1", 1),))


@pytest.fixture
def topology() -> Topology:
    found = load("minimal")
    customers = {"ducks": Customer(feed_at="tokyo", table=True), "yellow": Customer(feed_at="tokyo")}
    return found.model_copy(update={"customers": customers})


@pytest.fixture
def paths(tmp_path: Path) -> TablePaths:
    found = TablePaths.of(tmp_path)
    create(CUSTOMER_FEED, found.customer("ducks"))
    fill(found, 10)
    return found


def fill(paths: TablePaths, commits: int) -> None:
    for n in range(commits):
        row = {"feed_offset": n, "kind": "reading", "equipment_reference": "BIGU0000016", "value": "{}"}
        content = pa.Table.from_pylist([row], schema=CUSTOMER_FEED.plain_schema)
        append_once(paths.table(DUCKS), content, app="test", version=n)


def test_a_name_finds_the_folder_of_the_customer(paths: TablePaths, topology: Topology) -> None:
    assert paths.table(DUCKS) == paths.customer("ducks")
    assert set(kept_tables(topology)) == {*TABLES, DUCKS}  # yellow has no table of its own


def test_plans_know_them(paths: TablePaths, topology: Topology) -> None:
    kept = kept_tables(topology)
    (step,) = plan_compaction(paths, tables=kept)
    assert (step.table, step.files, step.why) == (DUCKS, 10, "make few files of 10 small ones")
    DeltaTable(paths.customer("ducks")).optimize.compact()
    age(paths, DUCKS, 8)
    (plan,) = plan_vacuum(paths, [DUCKS], tables=kept, now=dt.datetime.now(dt.UTC))
    assert (plan.files, plan.why) == (10, "")
    with pytest.raises(UnknownNameError):
        plan_compaction(paths, ["customers/yellow"], tables=kept)


def test_files_that_cannot_be_filtered_are_found(paths: TablePaths, topology: Topology) -> None:
    fill_twice = pa.Table.from_pylist([{"feed_offset": 90 + n} for n in range(2)], schema=CUSTOMER_FEED.plain_schema)
    append_once(paths.customer("ducks"), fill_twice, app="test", version=90)
    DeltaTable(paths.customer("ducks")).delete("feed_offset = 91")
    (step,) = plan_compaction(paths, [DUCKS], tables=kept_tables(topology))
    assert (step.views, step.key) == (1, "feed_offset")


def test_a_column_of_another_type_is_refused(tmp_path: Path, topology: Topology) -> None:
    paths = TablePaths.of(tmp_path)
    DeltaTable.create(paths.customer("ducks"), schema=pa.schema([("feed_offset", pa.string())]))
    with pytest.raises(SchemaError, match="column feed_offset of table customers/ducks") as error:
        check_types(paths, kept_tables(topology))
    assert f"remove {paths.customer('ducks')}: the next run fills it again" in error.value.hint


def test_it_is_verified_by_its_own_name(topology: Topology) -> None:
    check_tables([DUCKS], kept_tables(topology))
    with pytest.raises(UnknownNameError):
        check_tables(["customers/yellow"], kept_tables(topology))


def test_commands_know_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[4] / "topologies" / "minimal.yaml").read_text(encoding="utf-8")
    (tmp_path / "t.yaml").write_text(text.replace("    feed_at: tokyo\n", "    feed_at: tokyo\n    table: true\n"))
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    monkeypatch.setenv("FAIRLEAD_TOPOLOGY", str(tmp_path / "t.yaml"))
    assert run(["tables", DUCKS]) == 4
    assert "table customers/ducks is not there yet" in capsys.readouterr().err
    assert run(["sql", 'select * from "customers/ducks"']) == 4
    assert "there are no tables" in " ".join(capsys.readouterr().err.split())
    paths = TablePaths.of(tmp_path / "minimal")
    create(CUSTOMER_FEED, paths.customer("ducks"))
    fill(paths, 9)
    assert run(["tables", "--json"]) == 0
    (info,) = json.loads(capsys.readouterr().out)
    assert (info["name"], info["rows"], info["key"]) == (DUCKS, 9, ["feed_offset"])
    assert run(["tables"]) == 0
    assert f'in SQL their names have double quotes: "{DUCKS}"' in " ".join(capsys.readouterr().out.split())
    assert run(["tables", DUCKS]) == 0
    assert "key feed_offset" in " ".join(capsys.readouterr().out.split())
    assert run(["sql", 'select max(feed_offset) as last from "customers/ducks"', "--csv"]) == 0
    assert capsys.readouterr().out.split() == ["last", "8"]
    assert run(["sql", "select * from duck"]) == 3
    assert DUCKS in capsys.readouterr().err
    assert run(["shore", "compact", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tables"][0]["small"] == 9
