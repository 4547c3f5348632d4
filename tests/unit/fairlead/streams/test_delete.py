"""``fairlead stream delete``: only what the topology no longer has, and what nobody writes."""

from __future__ import annotations

import datetime as dt
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from edge.status import bridge_file
from fairlead.errors import RefusedError, UnavailableError
from fairlead.streams.delete import DeleteTopics, build_deletion, check_not_declared, check_workers
from fairlead.streams.inventory import Inventory, SiteStreams, StoredLog, UnreachedSite
from replication.operations.links.access import status_file
from topologies.loader.load import load, read

TOPOLOGY = read(
    """
name: pair
sites:
  west: {kind: datacentre, retention: {orders: 3d}}
  east: {kind: datacentre, kafka: {bootstrap: "broker:9092"}}
streams: {orders: {}}
links:
  - {from: west, to: east, both: true, streams: {orders: all}}
""",
    "pair",
)
OLD = StoredLog("old.a", b"\1" * 16, {0: 2}, {0: 12}, 3000)
AWAY = UnreachedSite("east", "east is away", "fairlead up east")


def at(site: str, *logs: StoredLog) -> SiteStreams:
    return SiteStreams(site, {"old": logs} if logs else {})


def test_what_the_topology_has_is_refused_with_the_places() -> None:
    with pytest.raises(RefusedError, match="west->east, east->west carry it") as caught:
        check_not_declared(TOPOLOGY, "orders")
    assert "streams.orders, links: west->east, east->west, retention of west" in caught.value.hint


@pytest.mark.parametrize("stream", ["alerts", "feeds", "custody", "fairlead"])
def test_what_is_built_in_is_refused(stream: str) -> None:
    with pytest.raises(RefusedError):
        build_deletion(TOPOLOGY, stream, Inventory(), Inventory())


def test_the_plan_has_counts_and_who_was_not_reached() -> None:
    small = StoredLog("old.b", b"\2" * 16, {0: 0}, {0: 1}, 70)
    found = Inventory((at("west", small, OLD),), (AWAY,))
    plan = build_deletion(TOPOLOGY, "old", found, found)
    lines = [line.text for line in plan.lines()]
    assert lines == [
        "1. west: delete 2 topics with 11 records, 3,070 bytes of old",
        "   old.a: 10 records, 3,000 bytes",
        "   old.b: 1 record, 70 bytes",
        "note: east was not reached, what it has stays: east is away",
    ]
    (step,) = plan.steps
    assert isinstance(step, DeleteTopics) and json.dumps(plan.to_builtins())


def test_a_cluster_of_others_gets_a_warning() -> None:
    found = Inventory((at("east", replace(OLD, bytes=None)),))
    plan = build_deletion(TOPOLOGY, "old", found, found)
    assert "make sure that every topic old.* there is yours" in plan.notes[0]
    assert "10 records, unknown bytes" in plan.steps[0].describe()


def test_nothing_to_delete_is_an_empty_plan_and_no_answer_an_error() -> None:
    empty = Inventory((at("west"),), (AWAY,))
    plan = build_deletion(TOPOLOGY, "old", empty, empty)
    assert plan.is_empty and "no site that answers has a topic old.*" in plan.notes
    nobody = Inventory((), (AWAY,))
    with pytest.raises(UnavailableError, match="east is away"):
        build_deletion(TOPOLOGY, "old", nobody, nobody)


@pytest.mark.parametrize(
    ("later", "why"),
    [
        (replace(OLD, ends={0: 13}), "is still written"),
        (replace(OLD, topic_id=b"\3" * 16), "was made again"),
        (replace(OLD, ends={}), "answers only now and then"),
    ],
)
def test_a_log_that_somebody_writes_is_refused(later: StoredLog, why: str) -> None:
    with pytest.raises(RefusedError, match=f"old.a at west {why}"):
        build_deletion(TOPOLOGY, "old", Inventory((at("west", OLD),)), Inventory((at("west", later),)))
    gone = build_deletion(TOPOLOGY, "old", Inventory((at("west", OLD),)), Inventory((at("west"),)))
    assert gone.is_empty


def test_a_log_that_appears_between_the_looks_is_refused() -> None:
    new = StoredLog("old.b", b"\2" * 16, {0: 0}, {0: 0}, 0)
    with pytest.raises(RefusedError, match=r"old\.b at west was made meanwhile"):
        build_deletion(TOPOLOGY, "old", Inventory((at("west", OLD),)), Inventory((at("west", OLD, new),)))


def test_a_site_that_answers_only_at_the_second_look_keeps_what_it_has() -> None:
    first = Inventory((at("west", OLD),), (AWAY,))
    plan = build_deletion(TOPOLOGY, "old", first, Inventory((at("west", OLD), at("east", OLD))))
    assert [step.describe().partition(":")[0] for step in plan.steps] == ["west"]
    assert [away.site for away in plan.unreached] == ["east"]
    assert any("east was not reached, what it has stays" in note for note in plan.notes)
    with pytest.raises(UnavailableError, match="east"):
        build_deletion(TOPOLOGY, "old", Inventory((), (AWAY,)), Inventory((at("east", OLD),)))


@pytest.mark.parametrize("worker", ["bridge", "replicator"])
def test_a_worker_with_an_older_topology_is_in_the_way(tmp_path: Path, worker: str) -> None:
    file, folder = tmp_path / "pair.yaml", tmp_path / "state"
    file.write_text("name: pair\nsites: {west: {kind: datacentre}}\n", encoding="utf-8")
    load(file)
    now = dt.datetime.now(dt.UTC)
    where = {"bridge": bridge_file, "replicator": status_file}[worker](folder, "west")
    where.parent.mkdir(parents=True)

    def running(started: dt.datetime) -> None:
        body = {"pid": os.getpid(), "at": now.isoformat(), "written_at": now.isoformat()}
        written = started.timestamp() if worker == "bridge" else started.isoformat()
        where.write_text(json.dumps({**body, "started": written}), encoding="utf-8")

    running(now - dt.timedelta(hours=1))
    with pytest.raises(RefusedError, match=f"the {worker} of west started before"):
        check_workers(folder, str(file), ["west"])
    running(now + dt.timedelta(seconds=1))
    check_workers(folder, str(file), ["west"])
