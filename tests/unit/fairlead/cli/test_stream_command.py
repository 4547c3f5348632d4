"""``fairlead stream``: what people and programs are shown, and what each ending says to a shell."""

from __future__ import annotations

import json
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fairlead.cli import app as cli
from fairlead.cli.commands import stream
from fairlead.errors import ExitCode
from fairlead.streams import delete
from fairlead.streams.delete import DeleteTopics, DeletionRun
from fairlead.streams.inventory import (
    Inventory,
    SiteStreams,
    StoredLog,
    StreamGroup,
    StreamPositions,
    UnreachedSite,
)

TOPOLOGY = """
name: pair
sites:
  west: {kind: datacentre, retention: {default: 3d}}
  far: {kind: datacentre}
streams:
  orders: {title: Orders, permissions: {consume: "u:analyst"}}
links:
  - {from: west, to: far, streams: {orders: all}}
users:
  analyst: {at: [west]}
"""
ORDERS = StoredLog("orders.west", b"\1" * 16, {0: 2}, {0: 1502}, 64_000)
OLD = StoredLog("old.[x]", b"\2" * 16, {0: 0}, {0: 7}, 900)


@pytest.fixture
def west(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """West has logs of orders and of old; far does not answer."""
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path / "home"))
    file = tmp_path / "pair.yaml"
    file.write_text(TOPOLOGY, encoding="utf-8")
    monkeypatch.setenv("FAIRLEAD_TOPOLOGY", str(file))

    async def take(_: Any, sites: Collection[str], *, only: str | None = None) -> Inventory:
        logs = {"orders": (ORDERS,), "old": (OLD,)}
        some = {name: each for name, each in logs.items() if only in (None, name)}
        found = tuple(SiteStreams(site, some) for site in sites if site == "west")
        return Inventory(found, tuple(UnreachedSite(site, "no answer") for site in sites if site == "far"))

    async def positions(*_: Any) -> StreamPositions:
        return StreamPositions((StreamGroup("west", "g1", 1, 12, active=False),))

    monkeypatch.setattr(stream, "take_inventory", take)
    monkeypatch.setattr(delete, "take_inventory", take)
    monkeypatch.setattr(stream, "plan_deletion", partial(delete.plan_deletion, settle=0.0))
    monkeypatch.setattr(stream, "read_positions", positions)


def run(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = ExitCode.OK) -> tuple[list[str], str]:
    """Return what was printed: lines with single blanks, and what went to standard error."""
    assert cli.run(["stream", *arguments]) == code
    said = capsys.readouterr()
    return [" ".join(line.split()) for line in said.out.splitlines()], said.err


@pytest.mark.usefixtures("west")
def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    out, err = run(capsys, "list")
    assert out[1:] == [
        "orders site normal 1 1,500 64 kB 1 3d to forever",
        "ends site bulk 0 0 0 B 0 1d",
        "old - not in the topology 1 7 900 B 1 -",
    ]
    assert "far was not reached: no answer" in err
    assert cli.run(["stream", "list", "--json"]) == ExitCode.OK
    body = json.loads(capsys.readouterr().out)
    assert [each["stream"] for each in body["streams"]] == ["orders", "ends", "old"]
    assert body["unreached"] == [{"site": "far", "why": "no answer", "hint": ""}]
    out, _ = run(capsys, "list", "--site", "far", code=ExitCode.UNAVAILABLE)
    assert out[1] == "orders site normal - - - 0 3d to forever"


@pytest.mark.usefixtures("west")
def test_one_stream(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = run(capsys, "show", "orders")
    assert out[0] == "orders Orders"
    for line in (
        "insert point site, priority normal",
        "west 1 1,500 64 kB 3d",
        "far - - - forever",
        "west->far all normal",
        "consume u:analyst",
        "analyst READ orders.* west streams.orders.permissions.consume: 'u:analyst'",
        "g1 west 1 12 none",
    ):
        assert line in out
    out, _ = run(capsys, "show", "old")
    assert "not in the topology: fairlead stream delete old deletes its topics" in out
    _, err = run(capsys, "show", "ordres", code=ExitCode.CONFIG)
    assert "did you mean 'orders'" in err


@pytest.mark.usefixtures("west")
def test_usage(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = run(capsys, "usage", "--biggest", "1")
    assert "all 2 1,507 65 kB" in out and "orders.west west 1,500 64 kB" in out
    assert not [line for line in out if "old.[x]" in line]
    out, _ = run(capsys, "usage", "old")
    assert "old.[x] west 7 900 B" in out


@pytest.mark.usefixtures("west")
def test_deletion_is_shown_then_done(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    out, _ = run(capsys, "delete", "old", "--dry-run", code=ExitCode.UNAVAILABLE)
    assert out[0] == "1. west: delete 1 topic with 7 records, 900 bytes of old"
    assert "note: far was not reached, what it has stays: no answer" in out
    carried: list[str] = []

    async def carry_out(step: DeleteTopics, context: DeletionRun) -> None:
        carried.extend(each.log for each in step.logs)
        context.done.append("done")

    monkeypatch.setattr(DeleteTopics, "carry_out", carry_out)
    run(capsys, "delete", "old", "--site", "west", "--yes")
    assert carried == ["old.[x]"]
    _, err = run(capsys, "delete", "orders", "--yes", code=ExitCode.REFUSED)
    assert "topology pair has stream orders" in err


@pytest.mark.usefixtures("west")
@pytest.mark.parametrize("name", ["", " ", "Old", "old.x", "o" * 41])
def test_a_name_that_no_stream_can_have_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = run(capsys, "delete", name, "--site", "west", "--yes", code=ExitCode.CONFIG)
    assert out == [] and f"{name!r} cannot be a stream's name" in " ".join(err.split())
