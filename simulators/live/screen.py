"""The live view on a real terminal: looks at the replicators' status files and draws twice a second."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from rich.console import Console
from rich.live import Live

from replication.verbs.status import read_status
from simulators.live.gather import Gathering, links_of
from simulators.live.layout import frame
from simulators.live.state import LinkState, View
from simulators.player import Player
from topologies.model import Topology

INTERVAL = 0.5  # seconds between two pictures
_LOOK_EVERY = 3  # pictures for one look at the status files


@asynccontextmanager
async def shown(
    gathering: Gathering, topology: Topology, folder: Path, console: Console, player: Callable[[], Player | None]
) -> AsyncIterator[None]:
    """The view fills the terminal for as long as the block lasts; what was there before comes back afterwards."""
    with Live(console=console, screen=True, auto_refresh=False, transient=True) as live:
        drawing = asyncio.create_task(_draw(live, gathering, topology, folder, console, player))
        try:
            yield
        finally:
            drawing.cancel()
            await asyncio.gather(drawing, return_exceptions=True)


async def _draw(
    live: Live,
    gathering: Gathering,
    topology: Topology,
    folder: Path,
    console: Console,
    player: Callable[[], Player | None],
) -> None:
    links: list[LinkState] = []
    count = 0
    while True:
        if count % _LOOK_EVERY == 0:
            links = await asyncio.to_thread(_links, topology, folder)
        count += 1
        picture = gathering.view(player(), links)
        # Beside the event loop: a terminal that takes nothing (Ctrl-S, a slow line) must not hold the voyage.
        await asyncio.to_thread(_show, live, console, picture)
        await asyncio.sleep(INTERVAL)


def _show(live: Live, console: Console, picture: View) -> None:
    live.update(frame(picture, *console.size), refresh=True)


def _links(topology: Topology, folder: Path) -> list[LinkState]:
    """As ``fairlead status`` has them."""
    found = [read_status(folder, site) for site in topology.sites]
    return links_of(status.snapshot if status and status.running else None for status in found)
