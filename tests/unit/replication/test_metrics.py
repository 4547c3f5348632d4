"""The replicator's metrics as a Prometheus server sees them, over real HTTP, read by prometheus-client's own parser."""

from __future__ import annotations

import asyncio
import threading
import urllib.error
import urllib.request
from typing import Any

import pytest

from fairlead.errors import UnavailableError
from fairlead.scrape import serve
from replication.metrics import replication_metrics
from replication.states import LinkState, LogState, MemberState
from tests.support.scraping import Fixed, Found, scrape

SINCE = "2026-03-01T00:00:00.000+00:00"
SINCE_SECONDS = 1772323200.0


def snapshot(site: str = "beta", **changes: Any) -> dict[str, Any]:
    link = {
        "name": "alpha->beta",
        "from": "alpha",
        "to": "beta",
        "when": "always",
        "state": "mirroring",
        "since": SINCE,
        "cause": "",
        "logs": 12,
        "followed": 11,
        "records": 1000,
        "batches": 100,
        "bytes": 50_000,
        "fetched_bytes": 60_000,
        "lag": 7,
        "last_error": "",
        "entries_refused": 3,
    }
    return {
        "site": site,
        "pid": 1,
        "at": SINCE,
        "started": SINCE,
        "target": {"state": "up", "since": SINCE, "cause": ""},
        "links": [link],
        "logs": {"s.a": {"state": "diverged", "cause": "c", "since": SINCE, "link": None, "what_to_do": ""}},
        "memory": {"queued": 5, "limit": 256},
        "last_error": "",
        "entries_refused": 3,
        **changes,
    }


def at(found: Found, name: str, **labels: str) -> float | None:
    return found.get((name, frozenset(labels.items())))


def test_members_of_a_group_are_served() -> None:
    members = {
        "m1": {"name": "host-1:7", "release": "1", "leader": True, "logs": 5},
        "m2": {"name": "host-2:7", "release": "1", "leader": False, "logs": 6},
    }
    group = {"name": "main", "state": "member", "cause": "", "warning": "two groups", "me": "m1", "members": members}
    server = serve(replication_metrics, [Fixed(snapshot(group=group)), Fixed(snapshot("gamma", group=None))], 0)
    try:
        found = scrape(server.port)
    finally:
        server.close()
    where = {"site": "beta", "group": "main"}
    assert at(found, "fairlead_group_members", **where) == 2
    assert at(found, "fairlead_group_warning", **where) == 1
    assert at(found, "fairlead_group_member_logs", member="host-2:7", **where) == 6
    assert {each: at(found, "fairlead_group_state", state=each, **where) for each in MemberState} == {
        each: float(each is MemberState.MEMBER) for each in MemberState
    }
    assert not [name for name, labels in found if name.startswith("fairlead_group") and ("site", "gamma") in labels]


def test_everything_of_a_snapshot_is_served() -> None:
    """Every value of a snapshot is served."""
    server = serve(replication_metrics, [Fixed(snapshot())], 0)
    try:
        found = scrape(server.port)
    finally:
        server.close()
    link = {"link": "alpha->beta"}
    assert at(found, "fairlead_link_records_total", **link) == 1000
    assert at(found, "fairlead_link_batches_total", **link) == 100
    assert at(found, "fairlead_link_bytes_total", **link) == 50_000
    assert at(found, "fairlead_link_fetched_bytes_total", **link) == 60_000
    assert at(found, "fairlead_link_lag_records", **link) == 7
    assert at(found, "fairlead_link_followed_logs", **link) == 11
    assert at(found, "fairlead_target_up", site="beta") == 1
    assert at(found, "fairlead_memory_queued_bytes", site="beta") == 5
    assert at(found, "fairlead_memory_limit_bytes", site="beta") == 256
    assert at(found, "fairlead_replicator_start_time_seconds", site="beta") == SINCE_SECONDS
    assert {state: at(found, "fairlead_link_state", state=state, **link) for state in LinkState} == {
        state: float(state is LinkState.MIRRORING) for state in LinkState
    }
    counts = {state: at(found, "fairlead_logs", site="beta", state=state) for state in LogState}
    assert counts == {state: float(state is LogState.DIVERGED) for state in LogState} | {LogState.MIRRORING: None}
    since = at(found, "fairlead_log_state_since_seconds", site="beta", log="s.a", state="diverged")
    assert since == SINCE_SECONDS


def test_what_is_not_known_is_absent() -> None:
    """An unknown value is left out."""
    shown = snapshot(target={"state": "unavailable", "since": SINCE, "cause": "away"}, logs={}, memory=None)
    shown["links"][0] |= {"state": "unavailable", "lag": None}
    server = serve(replication_metrics, [Fixed(shown)], 0)
    try:
        found = scrape(server.port)
    finally:
        server.close()
    assert at(found, "fairlead_link_lag_records", link="alpha->beta") is None
    assert at(found, "fairlead_target_up", site="beta") == 0
    assert not [name for name, _ in found if name.startswith(("fairlead_log_state", "fairlead_memory"))]


def test_several_replicators_in_one_process_and_a_new_scrape_sees_what_is_new() -> None:
    """Several replicators in one process are served together, and a new scrape shows new values."""
    one, other = Fixed(snapshot("beta")), Fixed(snapshot("gamma", links=[]))
    server = serve(replication_metrics, [one, other], 0)
    try:
        assert at(scrape(server.port), "fairlead_target_up", site="gamma") == 1
        one.shown["links"][0]["records"] = 1001
        found = scrape(server.port)
        assert at(found, "fairlead_link_records_total", link="alpha->beta") == 1001
        assert at(found, "fairlead_logs", site="gamma", state="diverged") == 1
    finally:
        server.close()


async def test_in_an_event_loop_the_snapshot_is_taken_by_it() -> None:
    """In an event loop, the loop takes the snapshot."""
    threads: list[int] = []

    class Noted(Fixed):
        def snapshot(self) -> dict[str, Any]:
            threads.append(threading.get_ident())
            return super().snapshot()

    server = serve(replication_metrics, [Noted(snapshot())], 0)
    try:
        found = await asyncio.to_thread(scrape, server.port)
    finally:
        await asyncio.to_thread(server.close)
    assert at(found, "fairlead_target_up", site="beta") == 1
    assert threads == [threading.get_ident()]


def test_a_port_in_use_is_said_and_a_closed_server_frees_it() -> None:
    """A port in use is an error that says so; a closed server frees its port."""
    server = serve(replication_metrics, [], 0)
    with pytest.raises(UnavailableError, match=str(server.port)):
        serve(replication_metrics, [], server.port)
    server.close()
    with pytest.raises(urllib.error.URLError):
        scrape(server.port)
    serve(replication_metrics, [], server.port).close()


def test_certificates_of_target_and_sources_are_told_once_each() -> None:
    """Certificates of the target and of its sources appear once each."""
    shown = snapshot()
    link = shown["links"][0]
    shown["target"]["certificate_ends"] = 3000.0
    shown["links"] = [
        {**link, "certificate_ends": 2000.0},
        {**link, "name": "alpha->beta:berthed", "certificate_ends": 1000.0},
        {**link, "name": "gamma->beta", "from": "gamma", "certificate_ends": None},
    ]
    (family,) = (
        each for each in replication_metrics([shown]) if each.name == "fairlead_certificate_expiry_time_seconds"
    )
    assert {sample.labels["site"]: sample.value for sample in family.samples} == {"beta": 3000.0, "alpha": 1000.0}
