"""``fairlead alert``: what detection has found, its thresholds, and the draft report of containers lost at sea."""

from __future__ import annotations

import asyncio
import datetime as dt
import sys
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from edge.detection.lost import LostContainerReport, ReportType, text
from edge.detection.thresholds import default_thresholds, load_thresholds
from fairlead.commands.alertclear import WAIT, chosen, clear_body, give, order_for
from fairlead.commands.alertlogs import make_report, read_alerts
from fairlead.commands.context import DEFAULT_TOPOLOGY, Context, DryRunOption, JsonOption, TopologyOption, open_topology
from fairlead.commands.custodyask import ask_first
from fairlead.console import console, emit, unchanged
from fairlead.errors import ConfigurationError, UnavailableError
from fairlead.records.alert import ALERT_ORDERS, Alert, AlertOrder
from fairlead.wire.cluster import Cluster
from topologies.users import ADMIN

T = TypeVar("T")

app = typer.Typer(
    help="Alerts: what detection has found, its rules, and the draft report of containers lost at sea.",
    epilog="Without --at the site of shore is asked, or headquarters, or any that answers.",
    no_args_is_help=True,
)

AtOption = Annotated[str | None, typer.Option("--at", help="Look at this site.", metavar="SITE")]
_TYPES: dict[str, ReportType] = {"preliminary": "PRELIMINARY", "follow-up": "FOLLOW_UP", "final": "FINAL"}
_COLOURS = {"CRITICAL": "bold red", "ALARM": "red", "WARNING": "yellow"}


@app.command("list")
def list_(
    at: AtOption = None,
    every: Annotated[bool, typer.Option("--all", help="Also those that are over.")] = False,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """List alerts as a site knows them, newest state of each: those that are open, or all.

    Example: fairlead alert list --at duck-star
    """
    context = open_topology(topology)
    site, alerts = asyncio.run(_at(context, at, read_alerts))
    newest: dict[str, Alert] = {}
    opened: dict[str, Alert] = {}
    for alert in alerts:
        opened.setdefault(alert.alert_id, alert)
        newest[alert.alert_id] = alert
    shown = [alert for alert in newest.values() if every or alert.state != "CLEARED"]
    body = {
        "at": site,
        "alerts": [
            {**msgspec.to_builtins(alert), "openedDateTime": _iso(opened[alert.alert_id].event_date_time)}
            for alert in shown
        ],
    }
    emit(body, as_json=as_json, render=lambda: _show_list(site, shown, opened))


@app.command()
def report(
    alert_id: Annotated[str, typer.Argument(metavar="ID", help="An overboard alert, or the number of a container.")],
    at: AtOption = None,
    report_type: Annotated[
        str, typer.Option("--type", help="preliminary, follow-up or final.", metavar="TYPE")
    ] = "preliminary",
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """Draft the report of lost containers that SOLAS V/31 and V/32 ask for: all losses of that ship around that time.

    It is made from the logs each time, so it has what is known by then. Nothing is sent: the master completes it.

    Example: fairlead alert report BIGU1000005 --at duck-star
    """
    if report_type not in _TYPES:
        raise ConfigurationError(f"no report is {report_type!r}", hint=f"--type: {', '.join(_TYPES)}")
    context = open_topology(topology)

    async def make(cluster: Cluster) -> LostContainerReport:
        return await make_report(cluster, context.topology, alert_id, _TYPES[report_type])

    _, made = asyncio.run(_at(context, at, make))
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(made), indent=2).decode() + "\n")
    else:
        sys.stdout.write(text(made))


@app.command()
def clear(
    alert: Annotated[
        str, typer.Argument(metavar="ALERT", help="An alert's id, or a container with one open alert: number or log.")
    ],
    at: Annotated[str, typer.Option("--at", help="The site that raised it.", metavar="SITE")],
    reason: Annotated[str, typer.Option("--reason", help="Why; kept with the alert.")],
    dry_run: DryRunOption = False,
    wait: Annotated[float, typer.Option("--wait", help="Seconds to wait for the bridge to answer.", min=0)] = WAIT,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """End an alert by hand: one that no reading ends (a container overboard), or that was a mistake.

    The order is written at the site and carried out by its bridge, which then says CLEARED, by whom and why. What goes
    on as before raises it no more, also after a restart; what is new does. Ends with 5 when it cannot be cleared, with
    4 when nobody answers in time: the order stands then.

    Example: fairlead alert clear BIGU1000005 --at duck-star --reason 'seen on deck; the sensor is wet'
    """
    context = open_topology(topology)

    async def do(cluster: Cluster) -> tuple[Alert, AlertOrder, Alert | None]:
        found = chosen(await read_alerts(cluster), alert, at)
        order = order_for(found, reason, dt.datetime.now(dt.UTC))
        if dry_run:
            return found, order, None
        return found, order, await give(cluster, context.directory.kafka(at, ADMIN), order, wait)

    _, (found, order, ended) = asyncio.run(_at(context, at, do))
    body = clear_body(found, order, ended)
    emit(body, as_json=as_json, render=lambda: _show_cleared(found, order, str(body["outcome"])))


@app.command()
def rules(
    thresholds: Annotated[
        Path | None, typer.Option(help="A file as for fairlead bridge --thresholds.", metavar="FILE")
    ] = None,
    commodity: Annotated[str | None, typer.Option(help="What counts for this commodity.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the thresholds that detection goes by, and where each comes from.

    Example: fairlead alert rules --commodity frozen-fish
    """
    known = load_thresholds(thresholds) if thresholds is not None else default_thresholds()
    groups = known.table(commodity)
    body = {"commodity": commodity, "known": sorted(known.commodities), "groups": groups}
    emit(body, as_json=as_json, render=lambda: _show_rules(groups))


async def _at(context: Context, at: str | None, question: Callable[[Cluster], Awaitable[T]]) -> tuple[str, T]:
    """Which site answered, and what."""

    async def ask(site: str) -> tuple[str, T]:
        processes = context.local.status()
        if context.topology.sites[site].is_local and not (site in processes and processes[site].kafka_up):
            raise UnavailableError(f"the Kafka of {site} does not run", hint=f"fairlead up {site}", site=site)
        cluster = await Cluster.open(context.directory.kafka(site, ADMIN), client_id="fairlead-alert")
        try:
            return site, await question(cluster)
        finally:
            await cluster.close()

    return await ask_first(context.topology, at, ask)


def _show_list(site: str, alerts: Iterable[Alert], opened: dict[str, Alert]) -> None:
    table = Table("severity", "kind", "container", "since (UTC)", "state", "raised at", "what", box=None)
    rows = sorted(alerts, key=lambda alert: opened[alert.alert_id].event_date_time, reverse=True)
    for alert in rows:
        table.add_row(
            f"[{_COLOURS[alert.severity]}]{alert.severity}[/]",
            escape(alert.kind),
            alert.equipment_reference or "(all)",
            f"{opened[alert.alert_id].event_date_time:%Y-%m-%d %H:%M}",
            alert.state,
            escape(alert.raised_at),
            escape("; ".join(each.detail or each.name for each in alert.evidence)),
        )
    console.print(f"{len(rows)} alerts (logs at {site})")
    if rows:
        console.print(table)


def _show_cleared(alert: Alert, order: AlertOrder, outcome: str) -> None:
    what = escape(f"{alert.kind} of {alert.equipment_reference or 'all containers'} ({alert.alert_id})")
    if outcome == "cleared":
        console.print(f"[green]cleared[/]: {what}", soft_wrap=True)
    elif outcome == "over":
        console.print(f"{what} was over before the order was carried out", soft_wrap=True)
    else:
        where = escape(f"{ALERT_ORDERS} at {alert.raised_at}")
        console.print(f"would append to {where}: clear {what}, because: {escape(order.reason)}", soft_wrap=True)
        unchanged(dry_run=True)


def _show_rules(groups: dict[str, dict[str, Any]]) -> None:
    for group, values in groups.items():
        console.print(f"[bold]{group}[/]  [dim]{escape(values['source'])}[/]", soft_wrap=True)
        for name, value in values.items():
            if name != "source" and value is not None:
                console.print(f"  {name:<18} {_value(name, value)}", soft_wrap=True, highlight=False)


def _value(name: str, value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {weight:g}" for key, weight in value.items())
    if isinstance(value, int) and name in _DURATIONS:
        return str(dt.timedelta(milliseconds=value))
    return f"{value:g}"


_DURATIONS = frozenset(
    {
        "dwell",
        "recovery",
        "after_defrost",
        "ahead",
        "at_least",
        "unknown",
        "window",
        "neighbours_window",
        "update_every",
    }
)


def _iso(moment: dt.datetime) -> str:
    return moment.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")
