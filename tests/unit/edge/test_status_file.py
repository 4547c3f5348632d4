"""A bridge whose status file cannot be written goes on."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from edge import bridge as under_test
from edge.bridge import Bridge, BridgeSettings
from edge.metrics import write_snapshot
from fairlead.waiting import in_background
from tests.support.kafka.fake_broker import until
from topologies.loader.load import load


async def test_a_bridge_that_starts_has_a_status_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start may take minutes."""
    file, stop = tmp_path / "run" / "bridge.tokyo.json", asyncio.Event()

    async def wait(_endpoint: object, _client_id: str) -> Any:
        await asyncio.Event().wait()

    def nowhere() -> Any:
        raise AssertionError("is not asked")

    monkeypatch.setattr(under_test, "connect", wait)
    bridge = Bridge(load("minimal", env={}), "tokyo", nowhere, nowhere, BridgeSettings(snapshot=file))
    async with in_background(bridge.run(stop)) as running:
        await until(lambda: running.done() or file.exists())
        assert json.loads(file.read_text())["ready"] is False
        stop.set()
        await running


async def test_a_status_file_that_cannot_be_written_stops_no_bridge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """While the disk is full, the bridge goes on and says so once; it writes the file as soon as it can."""
    monkeypatch.setattr(under_test, "_SNAPSHOT_EVERY", 0.001)
    file = tmp_path / "run" / "bridge.tokyo.json"
    tried: list[Path] = []

    def full(path: Path, _snapshot: dict[str, Any]) -> None:
        tried.append(path)
        raise OSError(28, "No space left on device", str(path))

    def nowhere() -> Any:
        raise AssertionError("is not asked")

    bridge = Bridge(load("minimal", env={}), "tokyo", nowhere, nowhere, BridgeSettings(snapshot=file))
    monkeypatch.setattr(under_test, "write_snapshot", full)
    writing = asyncio.create_task(bridge._write_snapshots())  # noqa: SLF001
    try:
        with caplog.at_level(logging.WARNING):
            await until(lambda: writing.done() or len(tried) == 3)
            monkeypatch.setattr(under_test, "write_snapshot", write_snapshot)
            await until(lambda: writing.done() or file.exists())
        assert json.loads(file.read_text())["site"] == "tokyo"
        assert sum("No space left" in each.message for each in caplog.records) == 1
    finally:
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
