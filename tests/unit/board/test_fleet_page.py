"""What the fleet's page says of a site, from what is known about it, and its map."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from starlette.requests import Request

import board.pages.fleet
from board.pages.fleet import _link as link_of
from board.pages.fleet import _site as site_of
from board.pages.fleet import status
from board.service import BoardService
from fairlead.errors import UnavailableError


def known(**facts: Any) -> dict[str, Any]:
    none: dict[str, Any] = {"bridge": None, "replicator": None, "error": None}
    return {"site": "tokyo", "kafka": {"address": "kafka.example:9092"}, **none, **facts}


@pytest.mark.parametrize(
    ("facts", "state", "tone"),
    [
        ({"kafka": {"up": True}}, "up", "good"),
        ({"kafka": {"up": False}}, "down", "bad"),
        ({}, "up", "good"),
        ({"error": "no answer within 15 s"}, "no answer within 15 s", "bad"),
        ({"kafka": {"up": True}, "error": "login refused"}, "login refused", "bad"),
        ({"error": "the password of its user 'admin' is not set", "asked": False}, "not known here", "quiet"),
    ],
)
def test_a_site_is_up_down_or_not_known(service: BoardService, facts: dict[str, Any], state: str, tone: str) -> None:
    found = site_of(service, known(**facts))
    assert (found["state"], found["tone"]) == (state, tone)


def test_services_without_a_status_file_here_are_not_called_stopped(service: BoardService) -> None:
    found = site_of(service, known())
    assert found["bridge_state"] == found["replicator_state"] == ("not known here", "quiet")
    stopped = {"running": False, "written_at": "2026-03-01T12:00:00+00:00"}
    assert site_of(service, known(bridge=stopped))["bridge_state"] == ("stopped", "bad")
    starting = {**stopped, "running": True, "ready": False}
    assert site_of(service, known(bridge=starting))["bridge_state"] == ("starting", "warn")


def test_a_link_from_a_site_that_the_topology_has_no_more_is_told(service: BoardService) -> None:
    """A replicator that was stopped, or goes on from before the change, still tells of it."""
    told = {"name": "sold-ship_tokyo", "from": "sold-ship", "to": "tokyo", "state": "stopped"}
    found = link_of(service, told)
    assert (found["source_title"], found["target_title"]) == ("sold-ship", "Port of Tokyo")


async def test_the_part_that_is_read_again_has_the_map_as_it_is_now(
    service: BoardService, monkeypatch: pytest.MonkeyPatch
) -> None:
    up = True

    async def fleet_status() -> dict[str, Any]:
        nothing: dict[str, Any] = {"links": [], "logs_in_trouble": {}, "overtaken": [], "waiting": []}
        counts = {"kind": "port", "logs": 1, "records": 1, "lag": 0}
        return {"sites": [known(kafka={"up": up}, **nothing, **counts)]}

    async def part() -> str:
        request = Request(
            {"type": "http", "method": "GET", "path": "/fleet/status", "headers": [], "query_string": b""}
        )
        return bytes((await status(service, request)).body).decode()

    def tones(text: str) -> list[str]:
        data = re.search(r'<script type="application/json" id="fleet-map">(.*?)</script>', text)
        assert data is not None
        return [port["tone"] for port in json.loads(data[1])["ports"] if port["code"] == "JPTYO"]

    def no_tables(_: BoardService) -> None:
        raise UnavailableError("the table is away")

    monkeypatch.setattr(service, "fleet_status", fleet_status)
    monkeypatch.setattr(board.pages.fleet, "_ships_in_tables", lambda _board: {})
    assert tones(await part()) == ["good"]
    up = False
    assert tones(await part()) == ["bad"]
    monkeypatch.setattr(board.pages.fleet, "_ships_in_tables", no_tables)
    service.tables_changed()
    without = await part()
    assert "fleet-map" not in without  # the page keeps the map that it has
    assert "down" in without
