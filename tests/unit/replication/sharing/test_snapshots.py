"""What members of a group do together, merged from their snapshots."""

from __future__ import annotations

import datetime as dt
import json
import os
import socket
from pathlib import Path
from typing import Any

from replication.operations.links.access import member_status_file, read_status, status_file
from replication.sharing.snapshots import members_elsewhere, merge_snapshots

MEMBERS = {
    "m1": {"name": "host-1:7", "release": "1", "leader": False, "logs": 3},
    "m2": {"name": "host-2:7", "release": "1", "leader": True, "logs": 4},
}


def link(**changes: Any) -> dict[str, Any]:
    counters = {"records": 10, "batches": 2, "bytes": 100, "fetched_bytes": 120, "followed": 3, "logs": 7, "lag": 1}
    return {"name": "a->b", "state": "mirroring", "cause": "", "groups": None, **counters, **changes}


def snapshot(me: str, *, links: list[dict[str, Any]] | None = None, **changes: Any) -> dict[str, Any]:
    return {
        "site": "b",
        "pid": os.getpid(),
        "at": dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds"),
        "started": f"2026-03-01T00:00:0{me[1:]}.000+00:00",
        "target": {"state": "up", "since": "", "cause": ""},
        "links": [link()] if links is None else links,
        "logs": {},
        "mirroring": 3,
        "orders": 7,
        "released": {},
        "memory": {"queued": 1, "limit": 10},
        "last_error": "",
        "entries_refused": 0,
        "retention": {"swept": None, "waits_for": {}},
        "group": {"name": "g", "state": "member", "cause": "", "warning": "", "me": me, "members": MEMBERS},
        **changes,
    }


def test_counters_are_added_and_the_worst_state_is_shown() -> None:
    down = link(state="unavailable", cause="no route", lag=None, records=5)
    merged = merge_snapshots([snapshot("m1"), snapshot("m2", links=[down])])
    (shown,) = merged["links"]
    assert (shown["records"], shown["followed"], shown["logs"]) == (15, 6, 7)
    assert (shown["state"], shown["cause"], shown["lag"]) == ("unavailable", "no route", None)
    assert (merged["mirroring"], merged["memory"]) == (6, {"queued": 2, "limit": 20})


def test_an_order_is_carried_out_when_every_member_has_acted() -> None:
    order = {"verb": "promote", "since": "", "by": "ann", "end": 5}
    merged = merge_snapshots(
        [
            snapshot("m1", orders=9, released={"s.x": order, "s.y": order}, logs={"s.z": {"state": "diverged"}}),
            snapshot("m2", orders=8, released={"s.y": order}, logs={"s.a": {"state": "paused"}}),
        ]
    )
    assert merged["orders"] == 8
    assert merged["released"] == {"s.y": order}
    assert merged["logs"].keys() == {"s.z", "s.a"}


def test_the_leader_shows_the_groups_that_it_copies() -> None:
    elsewhere, copied = link(groups={"state": "elsewhere"}), link(groups={"state": "up"})
    for links in ([elsewhere, copied], [copied, elsewhere]):
        merged = merge_snapshots([snapshot("m1", links=links[:1]), snapshot("m2", links=links[1:])])
        assert merged["links"][0]["groups"] == {"state": "up"}
    assert merged["group"]["me"] == "m2"


def test_what_waits_is_added_by_site() -> None:
    delay = {"logs": 1, "records": 5, "bytes": 50, "example": "s.x", "since": "2026-03-02"}
    swept = [{"swept": "2026-03-03", "waits_for": {"c": delay}}, {"swept": "2026-03-02", "waits_for": {"c": delay}}]
    merged = merge_snapshots([snapshot("m1", retention=swept[0]), snapshot("m2", retention=swept[1])])
    assert merged["retention"]["swept"] == "2026-03-02"
    assert merged["retention"]["waits_for"]["c"] == {**delay, "logs": 2, "records": 10, "bytes": 100}


def test_members_on_other_machines_are_named() -> None:
    one = snapshot("m1")
    assert members_elsewhere(one, [one]) == ["host-2:7"]
    assert members_elsewhere(one, [one, snapshot("m2")]) == []
    assert members_elsewhere({"group": None}, [{"group": None}]) == []


def test_the_members_of_this_machine_are_read_as_one_replicator(tmp_path: Path) -> None:
    file = member_status_file(tmp_path, "b")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(snapshot("m1")), encoding="utf-8")
    other = file.with_name("replicator.b.host-2-1.json")
    other.write_text(json.dumps(snapshot("m2")), encoding="utf-8")
    stopped = snapshot("m3", at="2026-01-01T00:00:00.000+00:00", group=None)
    status_file(tmp_path, "b").write_text(json.dumps(stopped), encoding="utf-8")  # from before there was a group
    status_file(tmp_path, "bb").write_text(json.dumps(snapshot("m2")), encoding="utf-8")  # another site
    status = read_status(tmp_path, "b")
    assert status is not None and status.running
    assert status.snapshot["mirroring"] == 6 and status.elsewhere == []
    other.unlink()
    status = read_status(tmp_path, "b")
    assert status is not None and list(status.elsewhere) == ["host-2:7"]


def test_files_of_members_that_have_ended_are_deleted(tmp_path: Path) -> None:
    file = member_status_file(tmp_path, "b")
    file.parent.mkdir(parents=True, exist_ok=True)
    ended = file.with_name(f"replicator.b.{socket.gethostname()}-{2**30}.json")
    foreign = file.with_name(f"replicator.b.another-host-{2**30}.json")
    for each in (file, ended, foreign):
        each.write_text("{}", encoding="utf-8")
    assert member_status_file(tmp_path, "b") == file
    assert file.exists() and foreign.exists() and not ended.exists()
