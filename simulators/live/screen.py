"""The live view in the terminal: ``frame`` lays a ``VoyageView`` out as lines (pure), ``shown`` draws it.

On top: the scenario, the simulated time, the speed. Then the chart, with the boxes of ships and ports beside it. Below:
links, worst first, and alerts, newest first.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.text import Text

from replication.operations.links.access import read_status
from simulators.live.chart import ChartMark, draw, window
from simulators.live.gather import AlertLine, BoxHolder, Gathering, LinkLine, VoyageView, links_of
from simulators.voyage.player import Player
from topologies.model import Topology

SMALLEST = (60, 16)
"""Columns and lines below which chart and links are left out."""
_SEVERITIES = {"CRITICAL": "bold red", "ALARM": "red", "WARNING": "yellow"}
_QUIET = frozenset({"mirroring", "closed"})
_SIDE = 28  # columns of the boxes beside the chart


def frame(view: VoyageView, columns: int, lines: int) -> Text:
    """Return the whole screen, at most ``lines`` lines of ``columns`` characters."""
    head, foot = _head(view), _foot(view)
    room = max(0, lines - len(head) - len(foot))
    if columns < SMALLEST[0] or lines < SMALLEST[1]:
        body = [*_boxes(view.holders, room // 2), *_alerts(view, room)]
    else:
        upper = room * 3 // 5
        side = min(_SIDE, columns // 3)
        body = _beside(_chart(view, columns - side - 1, upper), _boxes(view.holders, upper), columns - side, columns)
        half = columns // 2 - 1
        body += _beside(_links(view.links, half, room - upper), _alerts(view, room - upper), half + 1, columns)
    every = [*head, *_filled(body, room), *foot]
    return Text("\n", no_wrap=True).join(_fitted(line, columns) for line in every[:lines])


def _head(view: VoyageView) -> list[Text]:
    clock = f"{view.clock:%a %d %b %Y %H:%M:%S}" if view.clock else "not under way"
    speed = "as fast as possible" if view.speed is None else f"{view.speed:g} x real time"
    done = (view.clock - view.starts) / (view.ends - view.starts) if view.clock else 0.0
    style = {"publishing": "green", "paused": "bold yellow", "pausing": "yellow"}.get(view.phase, "cyan")
    return [
        Text.assemble((view.title, "bold"), "  ", (f"{clock} UTC", "bold"), f"  {done:4.0%}  {speed}"),
        Text.assemble(
            (view.phase, style),
            f"  {view.published:,} of about {view.expected:,} published, {view.per_second:,.0f} readings/s",
        ),
        *(Text(f"{site}: {why}", "bold red") for site, why in sorted(view.troubles.items())[:2]),
    ]


def _foot(view: VoyageView) -> list[Text]:
    return [Text("space pauses and goes on, q ends, Ctrl-Z stops", "dim")] if view.keys else []


def _chart(view: VoyageView, columns: int, lines: int) -> list[Text]:
    known = [(holder, holder.place) for holder in view.holders if holder.place is not None]
    marks = [
        ChartMark(*place, "▲" if holder.ship else "■", holder.name, "bold cyan" if holder.ship else "green")
        for holder, place in sorted(known, key=lambda each: each[0].ship)
    ]
    if lines < 1:
        return []
    return draw(window((place for _, place in known), columns, lines), columns, lines, marks)


def _boxes(holders: Sequence[BoxHolder], lines: int) -> list[Text]:
    shown = [Text("boxes", "bold")]
    for holder in sorted(holders, key=lambda each: not each.ship):
        symbol, style = ("▲", "bold cyan") if holder.ship else ("■", "green")
        line = Text.assemble((symbol, style), f" {holder.name:<14.14} {holder.boxes:>6,}")
        if holder.lost:
            line.append(f" -{holder.lost}", "bold red")
        shown.append(line)
    return _cut(shown, lines, "holders")


def _links(links: Sequence[LinkLine], columns: int, lines: int) -> list[Text]:
    behind = sum(link.lag or 0 for link in links)
    shown = [Text.assemble(("links", "bold"), f"  {len(links)}, {behind:,} records behind")]
    for link in sorted(links, key=lambda each: (each.state in _QUIET, -(each.lag or 0), each.name)):
        style = "green" if link.state == "mirroring" else "dim" if link.state in _QUIET else "yellow"
        lag = "-" if link.lag is None else f"{link.lag:,}"
        name = Text(link.name)
        name.truncate(min(36, max(8, columns - 20)), overflow="ellipsis", pad=True)
        shown.append(Text.assemble(name, " ", (f"{link.state:<11.11}", style), f"{lag:>7}"))
    return _cut(shown, lines, "links")


def _alerts(view: VoyageView, lines: int) -> list[Text]:
    head = Text.assemble(("alerts", "bold"), "  ")
    if not view.open_alerts:
        head.append("none open", "dim")
    for severity, style in _SEVERITIES.items():
        if count := view.open_alerts.get(severity, 0):
            head.append(f"{count} {severity}  ", style)
    return _cut([head, *map(_alert, view.alerts)], lines, None)


def _alert(alert: AlertLine) -> Text:
    style = "dim" if alert.state == "CLEARED" else _SEVERITIES.get(alert.severity, "")
    ended = " cleared" if alert.state == "CLEARED" else ""
    what = f"{alert.kind:<11.11} {alert.container or 'all':<11} {alert.raised_at}{ended}"
    return Text.assemble(f"{alert.time:%d %b %H:%M} ", (what, style))


def _cut(shown: list[Text], lines: int, what: str | None) -> list[Text]:
    """Return as many lines as fit; the last one counts the others, named by ``what``."""
    if len(shown) <= lines or lines < 2:
        return shown[: max(0, lines)]
    if what is None:
        return shown[:lines]
    return [*shown[: lines - 1], Text(f"and {len(shown) - lines + 1} more {what}", "dim")]


def _beside(left: Sequence[Text], right: Sequence[Text], at: int, columns: int) -> list[Text]:
    out = []
    for n in range(max(len(left), len(right))):
        line = _fitted(left[n] if n < len(left) else Text(), at - 1)
        line.append(" ")
        if n < len(right):
            line.append_text(_fitted(right[n], columns - at))
        out.append(line)
    return out


def _filled(lines: Iterable[Text], count: int) -> list[Text]:
    shown = list(lines)[:count]
    return shown + [Text()] * (count - len(shown))


def _fitted(line: Text, columns: int) -> Text:
    """Return a copy with exactly so many columns."""
    copy = line.copy()
    copy.truncate(columns, overflow="ellipsis", pad=True)
    return copy


INTERVAL = 0.5  # seconds between two pictures
_LOOK_EVERY = 3  # pictures per reading of the status files


@asynccontextmanager
async def shown(
    gathering: Gathering, topology: Topology, folder: Path, console: Console, player: Callable[[], Player | None]
) -> AsyncIterator[None]:
    """Fill the terminal with the view within the block, and restore it afterwards."""
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
    links: list[LinkLine] = []
    count = 0
    while True:
        if count % _LOOK_EVERY == 0:
            links = await asyncio.to_thread(_link_states, topology, folder)
        count += 1
        picture = gathering.view(player(), links)
        # In a thread: a blocked terminal (Ctrl-S, a slow line) must not delay the voyage.
        await asyncio.to_thread(_show, live, console, picture)
        await asyncio.sleep(INTERVAL)


def _show(live: Live, console: Console, picture: VoyageView) -> None:
    live.update(frame(picture, *console.size), refresh=True)


def _link_states(topology: Topology, folder: Path) -> list[LinkLine]:
    """Return the links as ``fairlead status`` shows them."""
    found = [read_status(folder, site) for site in topology.sites]
    return links_of(status.snapshot if status and status.running else None for status in found)
