"""``fairlead bridge``: append readings from MQTT to Kafka for one or more sites; replay their dead letters."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import getpass
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
import uvloop
from filelock import FileLock, Timeout
from rich.console import Console
from rich.live import Live
from rich.logging import RichHandler
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from edge.ais.feed import AisSource, parse_source
from edge.alerts.site_alerts import LIMIT
from edge.alerts.thresholds import Thresholds, load_thresholds
from edge.bridge import Bridge, BridgeSettings
from edge.ingest.replay import ReplayChoice, ReplayPlan, log_of, plan_replay
from edge.ingest.replay import replay as execute
from edge.messages import RejectReason
from fairlead.cli.commands.context import (
    DryRunOption,
    JsonOption,
    MetricsHostOption,
    MetricsPortOption,
    TopologyOption,
    YesOption,
    check_order,
    metrics_page,
    parse_moment,
    site_option,
)
from fairlead.cli.console import Consent, console, emit, errors
from fairlead.errors import ConfigurationError, OptionError, RefusedError, UnknownNameError
from fairlead.home import private_folder
from fairlead.kafka.clusters import Clusters
from fairlead.local.mosquitto import bridge_session
from fairlead.local.registry import LocalSite
from fairlead.scrape import ADDRESS, MetricsServer, serve
from fairlead.waiting import stopped_by_signals
from topologies.context import DEFAULT_TOPOLOGY, Context, open_topology, running_kafka
from topologies.model import SiteKind, Topology
from topologies.users import publisher

app = typer.Typer()

_REFRESH = 0.5
_Show = Callable[[Sequence[Mapping[str, Any]]], None]


@app.callback(invoke_without_command=True)
def bridge(
    command: typer.Context,
    at: Annotated[list[str] | None, site_option("Serve this site; may be repeated.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Serve every site that has an MQTT broker.")] = False,
    stray_alert: Annotated[
        float, typer.Option(help="Raise an alert when a reading waits for custody this many hours.", min=0.0)
    ] = LIMIT / 3600,
    thresholds: Annotated[
        Path | None,
        typer.Option(
            help="YAML file with alert thresholds that override the defaults (docs/alerts.md).",
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
    metrics_port: MetricsPortOption = None,
    metrics_host: MetricsHostOption = ADDRESS,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
) -> None:
    """Append readings from a site's MQTT broker to its logs; acknowledge each when Kafka has it.

    Runs until Ctrl-C or SIGTERM. Nothing is lost if it is killed: the MQTT broker keeps what is not acknowledged.

    Example: fairlead bridge --site tokyo --site duck-star
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
                    make_bridge(context, site, stray_limit=stray_alert * 3600, thresholds=limits, ais=source)
                    for site in sites
                ],
                metrics_port,
                metrics_host,
            )
        )


def make_bridge(
    context: Context,
    site: str,
    *,
    stray_limit: float = LIMIT,
    thresholds: Thresholds | None = None,
    ais: AisSource | None = None,
) -> Bridge:
    """Create a site's bridge as the topology declares it, with its metrics in the state folder."""
    context.resolver.kafka(site, "bridge"), context.resolver.mqtt(site, "bridge")  # report wrong settings at once
    return Bridge(
        context.topology,
        site,
        partial(context.resolver.kafka, site, "bridge"),
        partial(context.resolver.mqtt, site, "bridge"),
        BridgeSettings(
            context.folder / "run" / f"bridge.{site}.json", session_of(context, site), stray_limit, thresholds, ais
        ),
    )


def session_of(context: Context, site: str) -> str | None:
    """Return the client id of a site's bridge at its MQTT broker; None for the default one.

    For a local broker it is a secret in the broker's folder, else the id that the operator configured.
    """
    if context.topology.sites[site].mqtt is not None:
        return context.resolver.mqtt_session(site)
    return bridge_session(LocalSite(context.folder, site).mosquitto_folder)


async def run_bridges(bridges: Sequence[Bridge], metrics_port: int | None = None, metrics_host: str = ADDRESS) -> None:
    """Run bridges until SIGINT or SIGTERM; when one fails, stop the others and raise its error."""

    def start(port: int, host: str) -> MetricsServer:
        from edge.prometheus import bridge_metrics  # imports an HTTP server, which few bridges need

        return serve(bridge_metrics, bridges, port, host)

    async with metrics_page(start, metrics_port, metrics_host):
        await _run(bridges)


async def _run(bridges: Sequence[Bridge]) -> None:
    stop = stopped_by_signals()
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
    able = topology.sites_with_bridge
    if every == bool(at):
        raise OptionError(
            "either --site SITE or --all must be given", hint=f"sites with a bridge: {', '.join(sorted(able))}"
        )
    for site in at:
        _check_site(topology, site)
    return able if every else list(dict.fromkeys(at))


def _check_site(topology: Topology, site: str) -> None:
    if site not in topology.sites_with_bridge:
        raise UnknownNameError("site with a bridge", site, topology.sites_with_bridge)


def _ais_source(topology: Topology, sites: Sequence[str], text: str) -> AisSource:
    """Parse the source of one ship's AIS reports; refuse several sites: the reports could be of any of them."""
    source = parse_source(text)
    if len(sites) != 1 or topology.sites[sites[0]].kind is not SiteKind.SHIP:
        ships = [name for name, site in topology.sites.items() if site.kind is SiteKind.SHIP]
        kind = OptionError if len(sites) != 1 else ConfigurationError
        raise kind(
            "--ais is for one ship, and --site must name it alone",
            hint=f"ships of this topology: {', '.join(sorted(ships)) or '(none)'}",
        )
    return source


@contextlib.contextmanager
def _only_one(context: Context, site: str) -> Iterator[None]:
    """Hold the lock of a site's bridge: two bridges would take the MQTT session from each other for ever."""
    path = context.folder / "run" / f"bridge.{site}.lock"
    private_folder(path.parent)
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
    """Yield a function that shows one line in place on a terminal; without a terminal it prints nothing."""
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


@app.command()
def replay(
    at: Annotated[str, site_option("The site whose dead letters are replayed.")],
    reason: Annotated[
        list[str] | None, typer.Option("--reason", help="Only letters with this reason; may be repeated.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="Only letters received since: 2026-09-01T00:00:00Z, or 24h, 7d ago.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Only letters received before.")] = None,
    device: Annotated[
        list[str] | None, typer.Option("--device", help="Only letters from this device; may be repeated.")
    ] = None,
    log: Annotated[
        list[str] | None,
        typer.Option("--log", help="Only letters about this log or container; may be repeated.", metavar="LOG"),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Also send those that were replayed before.")] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """Send dead letters to the site's bridge again, after their cause is fixed.

    Publishes the same bytes in the same order, each once. The dead letters stay. A message that is refused again
    becomes a new dead letter that names the first.

    Example: fairlead bridge replay --site tokyo --reason unknown-owner --since 7d
    """
    consent = Consent(yes=yes, dry_run=dry_run, as_json=as_json)
    context = open_topology(topology)
    choice = ReplayChoice(
        reasons=_reasons(reason or []),
        since=parse_moment("--since", since),
        until=parse_moment("--until", until),
        devices=frozenset(device or ()),
        logs=frozenset(log or ()),
        again=again,
    )
    check_order(choice.since, choice.until, ("--since", "--until"))
    _check_site(context.topology, at)
    asyncio.run(_replay(context, at, choice, consent, as_json=as_json))


async def _replay(context: Context, site: str, choice: ReplayChoice, consent: Consent, *, as_json: bool) -> None:
    kafka = running_kafka(context)
    async with Clusters(kafka, client_id="fairlead-replay") as clusters:
        cluster = await clusters.at(site)
        plan = await plan_replay(cluster, site, choice)
        done = 0
        if plan.offsets and consent.given(lambda on: show(site, plan, on)):
            mqtt = context.resolver.mqtt(site, publisher(context.topology, site))
            done = await execute(cluster, kafka(site), mqtt, site, plan, getpass.getuser())
    emit(body(site, plan, done), as_json=as_json, render=lambda: _render(site, plan, done, consent))


def body(site: str, plan: ReplayPlan, done: int) -> dict[str, Any]:
    """Return the body that ``--json`` prints."""
    return {
        "site": site,
        "log": log_of(site),
        "end": plan.end,
        "to_replay": len(plan.offsets),
        "replayed": done,
        "replayed_before": plan.before,
        "refused_again": plan.refused_again,
        "cut": plan.cut,
        "reasons": {
            name: {"letters": of.count, "bytes": of.size, "oldest": of.oldest, "newest": of.newest}
            for name, of in sorted(plan.reasons.items())
        },
        "offsets": plan.offsets,
    }


def show(site: str, plan: ReplayPlan, on: Console) -> None:
    """Print the letters to replay, by reason, and the numbers of those left out."""
    if plan.reasons:
        table = Table("reason", "letters", "bytes", "oldest (UTC)", "newest (UTC)", box=None, pad_edge=False)
        table.columns[1].justify = table.columns[2].justify = "right"
        for name, of in sorted(plan.reasons.items()):
            table.add_row(escape(name), f"{of.count:,}", f"{of.size:,}", _when(of.oldest), _when(of.newest))
        on.print(table)
    on.print(
        f"{escape(log_of(site))}: {len(plan.offsets):,} to replay, {plan.before:,} replayed before (--again sends them "
        f"once more), {plan.refused_again:,} refused again, {plan.cut:,} not kept whole",
        soft_wrap=True,
    )


def _render(site: str, plan: ReplayPlan, done: int, consent: Consent) -> None:
    if done:
        console.print(
            f"[green]done[/]: {done:,} messages are with the MQTT broker of {escape(site)}. "
            "What the bridge refuses again is counted as 'refused again' by this command.",
            soft_wrap=True,
        )
        return
    if plan.offsets:
        consent.unchanged(lambda on: show(site, plan, on))
    else:
        show(site, plan, console)


def _when(moment: dt.datetime | None) -> str:
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M:%S") if moment is not None else "-"


def _reasons(names: list[str]) -> frozenset[str]:
    known = [reason.value for reason in RejectReason]
    for name in names:
        if name not in known:
            raise UnknownNameError("reason", name, known)
    return frozenset(names)
