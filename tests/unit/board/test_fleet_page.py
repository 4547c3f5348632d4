"""What the fleet's page says of a site, from what is known about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from board.pages.fleet import _site as site_of
from board.service import Board
from topologies.context import open_topology


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Board:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    return Board(open_topology("minimal"), "tokyo")


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
def test_a_site_is_up_down_or_not_known(board: Board, facts: dict[str, Any], state: str, tone: str) -> None:
    found = site_of(board, known(**facts))
    assert (found["state"], found["tone"]) == (state, tone)


def test_services_without_a_status_file_here_are_not_called_stopped(board: Board) -> None:
    found = site_of(board, known())
    assert found["bridge_state"] == found["replicator_state"] == ("not known here", "quiet")
    stopped = {"running": False, "written_at": "2026-03-01T12:00:00+00:00"}
    assert site_of(board, known(bridge=stopped))["bridge_state"] == ("stopped", "bad")
