"""``fairlead bridge``: run the way in of one or more sites until told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
import uvloop
from filelock import FileLock, Timeout
from rich.live import Live
from rich.logging import RichHandler
from rich.text import Text

from edge.aisfeed import AisSource, parse_source
from edge.bridge import Bridge
from edge.detection.thresholds import Thresholds, load_thresholds
from edge.strayage import LIMIT
from fairlead.commands.bridgereplay import replay
from fairlead.commands.context import DEFAULT_TOPOLOGY, Context, TopologyOption, open_topology
from fairlead.commands.metricspage import MetricsHostOption, MetricsPortOption, metrics_page
from fairlead.console import errors
from fairlead.errors import ConfigurationError, RefusedError, UnknownNameError
from fairlead.local.layout import LocalSite
from fairlead.local.mosquitto import bridge_session
from fairlead.scrape import ADDRESS, MetricsServer
from topologies.model import SiteKind, Topology

app = typer.Typer()

_REFRESH = 0.5
_Show = Callable[[Sequence[Mapping[str, Any]]], None]


@app.callback(invoke_without_command=True)
def bridge(
    command: typer.Context,
    at: Annotated[list[str] | None, typer.Option("--at", help="Site to work at; may be given more than once.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All sites of the topology that have a way in.")] = False,
    stray_alert: Annotated[
        float, typer.Option(help="Hours that a reading may wait for custody before an alert is raised.", min=0.0)
    ] = LIMIT / 3600,
    thresholds: Annotated[
        Path | None,
        typer.Option(
            help="YAML file with thresholds of the detection on board, laid over the defaults (docs/edge.md).",
            metavar="FILE",
        ),
    ] = None,
    ais: Annotated[
        str | None,
        typer.Option(
            help="Take a ship's own position from AIS sentences: tcp://HOST:PORT, or udp://:PORT to listen.",
            metavar="SOURCE",
        ),
    ] = None,
    intakes: Annotated[
        int, typer.Option(help="Processes for each site that take readings in; 0: the bridge does.", metavar="N")
    ] = 0,
    metrics_port: MetricsPortOption = None,
    metrics_host: MetricsHostOption = ADDRESS,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
) -> None:
    """Bring messages from a site's MQTT broker into its logs; acknowledge each when Kafka has it.

    Runs until Ctrl-C or SIGTERM, then finishes what it has taken. Stopped in any other way it loses nothing either: the
    MQTT broker keeps what is not acknowledged.

    Example: fairlead bridge --at tokyo --at duck-star
    """
    if command.invoked_subcommand is not None:
        return
    context = open_topology(topology)
    sites = _chosen(context.topology, at or [], every=every)
    limits = load_thresholds(thresholds) if thresholds is not None else None
    source = _ais_source(context.topology, sites, ais) if ais is not None else None
    _log_to_terminal()
    with contextlib.ExitStack() as stack:
        for site in sites:
            stack.enter_context(_only_one(context, site))
        uvloop.run(
            run_bridges(
                [
                    make_bridge(
                        context, site, stray_limit=stray_alert * 3600, thresholds=limits, ais=source, intakes=intakes
                    )
                    for site in sites
                ],
                metrics_port,
                metrics_host,
            )
        )


app.command()(replay)


def make_bridge(
    context: Context,
    site: str,
    *,
    stray_limit: float = LIMIT,
    thresholds: Thresholds | None = None,
    ais: AisSource | None = None,
    intakes: int = 0,
) -> Bridge:
    """A site's bridge as the topology says, with its metrics in the state folder."""
    context.directory.kafka(site, "bridge"), context.directory.mqtt(site, "bridge")  # what is wrong is said at once
    return Bridge(
        context.topology,
        site,
        partial(context.directory.kafka, site, "bridge"),
        partial(context.directory.mqtt, site, "bridge"),
        snapshot=context.folder / "run" / f"bridge.{site}.json",
        client_id=session_of(context, site),
        stray_limit=stray_limit,
        thresholds=thresholds,
        ais=ais,
        intakes=intakes,
    )


def session_of(context: Context, site: str) -> str | None:
    """The client id of a site's bridge at its MQTT broker: a secret of a local broker, else what the operator
    gave; None for the usual one."""
    if context.topology.sites[site].mqtt is not None:
        return context.directory.mqtt_session(site)
    return bridge_session(LocalSite(context.folder, site).mosquitto_folder)


async def run_bridges(bridges: Sequence[Bridge], metrics_port: int | None = None, metrics_host: str = ADDRESS) -> None:
    """Run bridges until SIGINT or SIGTERM; when one fails, stop the others and raise what it raised."""

    def start(port: int, host: str) -> MetricsServer:
        from edge.exported import start_metrics  # brings an HTTP server along, which few bridges need

        return start_metrics(bridges, port, host)

    async with metrics_page(start, metrics_port, metrics_host):
        await _run(bridges)


async def _run(bridges: Sequence[Bridge]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    tasks = [asyncio.create_task(bridge.run(stop), name=f"bridge {bridge.site}") for bridge in bridges]
    with _status_line() as show:
        waiting = set(tasks)
        while waiting:
            done, waiting = await asyncio.wait(waiting, timeout=_REFRESH, return_when=asyncio.FIRST_COMPLETED)
            if done:
                stop.set()
            show([bridge.snapshot() for bridge in bridges])
    for task in tasks:
        task.result()


def _chosen(topology: Topology, at: Sequence[str], *, every: bool) -> list[str]:
    able = [name for name, site in topology.sites.items() if site.kind is not SiteKind.CUSTOMER]
    if every == bool(at):
        raise ConfigurationError(
            "either --at SITE or --all must be given", hint=f"sites with a way in: {', '.join(sorted(able))}"
        )
    for site in at:
        if site not in able:
            raise UnknownNameError("site with a way in", site, able)
    return able if every else list(dict.fromkeys(at))


def _ais_source(topology: Topology, sites: Sequence[str], text: str) -> AisSource:
    """The source of one ship's reports; with several sites nobody could tell whose they are."""
    source = parse_source(text)
    if len(sites) != 1 or topology.sites[sites[0]].kind is not SiteKind.SHIP:
        ships = [name for name, site in topology.sites.items() if site.kind is SiteKind.SHIP]
        raise ConfigurationError(
            "--ais is for one ship, and --at must name it alone",
            hint=f"ships of this topology: {', '.join(sorted(ships)) or '(none)'}",
        )
    return source


@contextlib.contextmanager
def _only_one(context: Context, site: str) -> Iterator[None]:
    """Two bridges of one site would take the MQTT session from each other for ever."""
    path = context.folder / "run" / f"bridge.{site}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise RefusedError(
            f"a bridge for {site} is running already", hint="stop it first; one bridge per site is enough", site=site
        ) from None
    try:
        yield
    finally:
        lock.release()


def _log_to_terminal() -> None:
    handler: logging.Handler = (
        RichHandler(console=errors, show_path=False, markup=False, log_time_format="%H:%M:%S")
        if errors.is_terminal
        else logging.StreamHandler()
    )
    logging.basicConfig(
        level=logging.INFO,
        handlers=[handler],
        format="%(message)s" if errors.is_terminal else "%(asctime)s %(levelname)s %(message)s",
    )


@contextlib.contextmanager
def _status_line() -> Iterator[_Show]:
    """One line that stays in place on a terminal; nothing where there is none."""
    if not errors.is_terminal:
        yield lambda snapshots: None
        return
    with Live(console=errors, auto_refresh=False, transient=True) as live:

        def show(snapshots: Sequence[Mapping[str, Any]]) -> None:
            live.update(Text("   ".join(_line(snapshot) for snapshot in snapshots), overflow="ellipsis"), refresh=True)

        yield show


def _line(snapshot: Mapping[str, Any]) -> str:
    state = "up" if snapshot["mqtt_connected"] else "waiting"
    parts = [f"{snapshot['site']} {state}", f"{snapshot['appended']:,} in"]
    for name, label in (("strays_waiting", "strays"), ("dead_letters", "dead letters"), ("alerts", "alerts")):
        if snapshot[name]:
            parts.append(f"{snapshot[name]:,} {label}")
    return ", ".join(parts)
