from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from simulators.voyage.waiting import SETTLING_INTERVAL, behind_of, wait_for_status
from tests.unit.simulators.voyage.fakes import FakeClusters
from topologies.loader.load import load

LOG = "containers.BIGU7176368"
MINIMAL = load("minimal", env={})


@pytest.fixture
def sites() -> FakeClusters:
    return FakeClusters("tokyo", "duck-star")


def close(folder: Path, site: str, *links: str) -> None:
    """What the replicator of ``site`` writes when these links are closed."""
    file = folder / "run" / f"replicator.{site}.json"
    file.parent.mkdir(exist_ok=True)
    every = [link.name for link in MINIMAL.links_to(site)]
    states = [{"name": name, "state": "closed" if name in links else "mirroring"} for name in every]
    file.write_text(json.dumps({"links": states}), encoding="utf-8")


async def test_missing_records_are_counted_over_each_open_link(sites: FakeClusters, tmp_path: Path) -> None:
    sites["duck-star"].lengthen("events.duck-star", 5)
    sites["tokyo"].lengthen("events.duck-star", 3)
    sites["duck-star"].lengthen(LOG, 4)
    close(tmp_path, "tokyo")
    assert await behind_of(MINIMAL, sites, tmp_path) == {
        "events.duck-star over duck-star->tokyo": 2,
        "events.duck-star over duck-star->tokyo:berthed": 2,
        f"{LOG} over duck-star->tokyo:berthed": 4,
    }


async def test_a_status_file_may_come_a_moment_after_the_records(tmp_path: Path) -> None:
    file = tmp_path / "run" / "replicator.tokyo.json"
    file.parent.mkdir()

    def write(state: str, lag: int | None) -> None:
        links = [{"name": "duck-star->tokyo", "state": state, "lag": lag}]
        file.write_text(json.dumps({"links": links}), encoding="utf-8")

    write("mirroring", 43)
    waiting = asyncio.create_task(wait_for_status(MINIMAL, tmp_path, patience=60.0))
    await asyncio.wait([waiting], timeout=2 * SETTLING_INTERVAL)
    assert not waiting.done()
    write("mirroring", 0)
    await asyncio.wait_for(waiting, 10)
    for state, lag in (("closed", 43), ("mirroring", None)):
        write(state, lag)
        await asyncio.wait_for(wait_for_status(MINIMAL, tmp_path, patience=60.0), 10)
    write("mirroring", 43)
    await asyncio.wait_for(wait_for_status(MINIMAL, tmp_path, patience=0.0), 10)


async def test_a_closed_link_is_not_waited_for(sites: FakeClusters, tmp_path: Path) -> None:
    sites["duck-star"].lengthen("events.duck-star", 5)
    sites["duck-star"].lengthen(LOG, 4)
    close(tmp_path, "tokyo", "duck-star->tokyo:berthed")
    assert await behind_of(MINIMAL, sites, tmp_path) == {"events.duck-star over duck-star->tokyo": 5}


async def test_a_complete_target_is_not_behind(sites: FakeClusters, tmp_path: Path) -> None:
    for name, end in (("tokyo", 6), ("duck-star", 5)):
        sites[name].lengthen("events.duck-star", end)
    assert await behind_of(MINIMAL, sites, tmp_path) == {}


async def test_aboard_logs_and_unlinked_logs_are_ignored(sites: FakeClusters, tmp_path: Path) -> None:
    sites["tokyo"].lengthen(LOG, 9)  # to the ship only while it is aboard
    sites["tokyo"].lengthen("deadletters.tokyo", 9)  # no link takes dead letters to the ship
    sites["tokyo"].lengthen("__consumer_offsets", 9)
    assert await behind_of(MINIMAL, sites, tmp_path) == {}
