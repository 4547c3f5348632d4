"""What a replicator's status report must show before an order counts as carried out."""

from __future__ import annotations

import datetime as dt
import json
import os
from pathlib import Path
from typing import Any

import pytest

from fairlead.home import FRESH
from replication.operations.links.access import Status, has_acted, read_status, status_file
from replication.operations.links.report import groups_of
from replication.overrides import Override, OverrideKind
from topologies.model import Link

AT = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
RELEASED = {"verb": "promote", "since": AT.isoformat(), "by": "ann", "end": 5}


def order(kind: OverrideKind, **scope: Any) -> Override:
    return Override(kind, AT, "ann", **scope)


def report(*, state: str = "mirroring", orders: int = 7, **more: Any) -> Status:
    links = [{"name": "a->b", "state": state}]
    return Status("b", True, {"at": AT.isoformat(), "links": links, "logs": {}, "orders": orders, **more})


@pytest.mark.parametrize(
    ("given", "status", "acted"),
    [
        (order(OverrideKind.PAUSE, link="a->b"), report(), False),
        (order(OverrideKind.PAUSE, link="a->b"), report(state="paused"), True),
        (order(OverrideKind.RESUME, link="a->b"), report(state="paused"), False),
        (order(OverrideKind.RESUME, link="a->b"), report(), True),
        (order(OverrideKind.PAUSE, link="a->b", log="s.x"), report(orders=6), False),
        (order(OverrideKind.PAUSE, link="a->b", log="s.x"), report(orders=7), True),
        (order(OverrideKind.PROMOTE, log="s.x"), report(), False),
        (order(OverrideKind.PROMOTE, log="s.x"), report(released={"s.x": RELEASED}), True),
        (order(OverrideKind.PROMOTE, log="s.x/1"), report(released={"s.x": RELEASED}), False),
        (order(OverrideKind.FAILOVER, log="s.x"), report(state="unavailable"), True),
        (
            order(OverrideKind.FAILOVER, log="s.x"),
            report(released={"s.x": {**RELEASED, "since": "2026-02-01T00:00:00+00:00"}}),
            False,
        ),
        (order(OverrideKind.RESTORE, log="s.x"), report(released={"s.x": RELEASED}), False),
        (order(OverrideKind.RESTORE, log="s.x"), report(), True),
        (order(OverrideKind.RETRY, log="s.x"), report(), True),
    ],
)
def test_what_must_show(given: Override, status: Status, acted: bool) -> None:
    """Each order requires its own evidence in the report."""
    assert has_acted(status, [given], 7) is acted


@pytest.mark.parametrize(
    ("age", "pid", "running"),
    [(0.0, os.getpid(), True), (FRESH.total_seconds() + 1, os.getpid(), False), (0.0, 2**22 + 1, False)],
    ids=["at work", "its report is old", "gone"],
)
def test_a_replicator_runs_while_its_report_is_fresh_and_its_process_there(
    age: float, pid: int, running: bool, tmp_path: Path
) -> None:
    """A replicator counts as running if its report is recent and its process exists."""
    file = status_file(tmp_path, "b")
    assert read_status(tmp_path, "b") is None
    file.parent.mkdir()
    at = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=age)
    file.write_text(json.dumps({"at": at.isoformat(), "pid": pid, "links": [{"name": "a->b"}]}))
    status = read_status(tmp_path, "b")
    assert status is not None and status.running is running
    assert status.link("a->b") == {"name": "a->b"} and status.link("b->a") is None
    file.write_text("{half")
    assert read_status(tmp_path, "b") is None


def test_consumer_groups_of_a_link_are_shown_while_the_replicator_runs() -> None:
    link = Link.model_validate({"from": "a", "to": "b", "streams": {"s": "all"}, "groups": ["g"]})
    shown = {"state": "up", "groups": {"g": {"state": "copied", "behind": 0}}}
    snapshot = {"links": [{"name": "a->b", "state": "mirroring", "groups": shown}]}
    assert groups_of(link, Status("b", True, snapshot)) == shown
    assert groups_of(link, Status("b", False, snapshot)) is None
    assert groups_of(link, None) is None
