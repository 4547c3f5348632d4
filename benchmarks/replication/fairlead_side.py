"""Fairlead's side: one replicator in its own process, as ``fairlead replicate`` runs it, with its status file."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil
import uvloop

from fairlead.local.registry import LocalSiteRegistry
from replication.replicator import Replicator
from topologies.model import Topology

SOURCE: Final = "alpha"
TARGET: Final = "beta"
USER: Final = "admin"


if TYPE_CHECKING:  # the measured process, which is this module, is to load what a replicator loads and no more
    from benchmarks.replication.world import Logs, World


def topology(stream: str) -> Topology:
    """One link, which carries everything of one stream."""
    return Topology.model_validate(
        {
            "name": "bench",
            "sites": {SOURCE: {"kind": "datacentre"}, TARGET: {"kind": "datacentre"}},
            "streams": {stream: {}},
            "links": [{"from": SOURCE, "to": TARGET, "streams": {stream: "all"}}],
        }
    )


def status_file(folder: Path, member: str = "") -> Path:
    return folder / "run" / f"replicator.{TARGET}{member and '.'}{member}.json"


async def replicate(folder: Path, stream: str, group: str | None = None, member: str = "") -> None:
    """The measured process: one replicator until SIGTERM."""
    sites, stop = LocalSiteRegistry(folder), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    replicator = Replicator(
        topology(stream),
        TARGET,
        sites.kafka(TARGET, USER),
        lambda site: sites.kafka(site, USER),
        status_file=status_file(folder, member),
        group=group,
    )
    await replicator.run(stop)


@contextlib.asynccontextmanager
async def fairlead(world: World, logs: Logs, *member: str) -> AsyncIterator[psutil.Process]:
    """The process that copies ``logs``; stopped afterwards. ``member``: its group and its own name."""
    command = (sys.executable, "-m", "benchmarks.replication.fairlead_side")
    # As an installed Fairlead runs: compiled once, which the first of these sees to.
    compiled = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    await (await asyncio.create_subprocess_exec(*command, env=compiled)).wait()
    child = await asyncio.create_subprocess_exec(*command, str(world.sites.folder), logs.stream, *member, env=compiled)
    try:
        yield psutil.Process(child.pid)
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.terminate()
        await child.wait()


if __name__ == "__main__" and len(sys.argv) > 1:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(replicate(Path(sys.argv[1]), *sys.argv[2:]))
