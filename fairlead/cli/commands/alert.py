"""``fairlead alert``: list, acknowledge, end alerts, show their thresholds, draft the report of lost containers."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from edge.alerts.loss_report import LostContainerReport, ReportType, text
from edge.alerts.operator import (
    WAIT,
    answer_body,
    chosen,
    make_report,
    newest_states,
    order_for,
    place_order,
    read_alerts,
)
from edge.alerts.thresholds import default_thresholds, durations, load_thresholds
from fairlead.cli.commands.context import (
    DryRunOption,
    JsonOption,
    SiteOption,
    TopologyOption,
    WaitOption,
    YesOption,
    site_option,
)
from fairlead.cli.commands.custody.app import ask_first
from fairlead.cli.console import Consent, console, emit, lines, output, uncut, utc_text
from fairlead.errors import FairleadError, OptionError
from fairlead.kafka.client.cluster import Cluster
from fairlead.records.alert import ALERT_ORDERS, Alert, AlertOrder, alert_key
from shore.report.wording import count
from topologies.context import DEFAULT_TOPOLOGY, Context, open_topology, running_kafka
from topologies.users import ADMIN
from topologies.values import format_duration

T = TypeVar("T")

app = typer.Typer(
    help="List alerts, acknowledge or end one, show their thresholds, draft the report of lost containers.",
    epilog="Without --site the site of shore is asked, or headquarters, or any that answers.\n\n"
    "Example: fairlead alert list",
    no_args_is_help=True,
)

AlertArgument = Annotated[
    str, typer.Argument(metavar="ALERT", help="An alert's id, or a container with one open alert: number or log.")
]
RaisedAtOption = Annotated[str, site_option("The site that raised it.")]
_TYPES: dict[str, ReportType] = {"preliminary": "PRELIMINARY", "follow-up": "FOLLOW_UP", "final": "FINAL"}
_COLOURS = {"CRITICAL": "bold red", "ALARM": "red", "WARNING": "yellow"}


@app.command("list")
def list_(
    at: SiteOption = None,
    every: Annotated[bool, typer.Option("--all", help="Also list alerts that are over.")] = False,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """List open alerts, as one site knows them.

    Example: fairlead alert list --site duck-star
    """
    context = open_topology(topology)
    site, alerts = asyncio.run(_at(context, at, read_alerts))
    newest, opened = newest_states(alerts), newest_states(reversed(alerts))  # of each, the last and the first state
    shown = [alert for alert in newest.values() if every or alert.state != "CLEARED"]
    body = {
        "at": site,
        "alerts": [
            {**msgspec.to_builtins(alert), "openedDateTime": utc_text(opened[alert_key(alert)].event_date_time)}
            for alert in shown
        ],
    }
    emit(body, as_json=as_json, render=lambda: _show_list(site, shown, opened))


@app.command()
def report(
    alert_id: Annotated[str, typer.Argument(metavar="ID", help="An overboard alert, or the number of a container.")],
    at: SiteOption = None,
    report_type: Annotated[
        str, typer.Option("--type", help="preliminary, follow-up or final.", metavar="TYPE")
    ] = "preliminary",
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """Draft the report of lost containers that SOLAS V/31 and V/32 require.

    It covers all losses of that ship around that time, as the logs have them now. Nothing is sent: the master
    completes it.

    Example: fairlead alert report BIGU1000005 --site duck-star
    """
    if report_type not in _TYPES:
        raise OptionError(f"there is no report of type {report_type!r}", hint=f"--type: {', '.join(_TYPES)}")
    context = open_topology(topology)

    async def make(cluster: Cluster) -> LostContainerReport:
        return await make_report(cluster, context.topology, alert_id, _TYPES[report_type])

    _, made = asyncio.run(_at(context, at, make))
    if as_json:
        output.write(msgspec.json.format(msgspec.json.encode(made), indent=2).decode() + "\n")
    else:
        output.write(text(made))


@app.command()
def ack(
    alert: AlertArgument,
    at: RaisedAtOption,
    reason: Annotated[str, typer.Option("--reason", help="What is done about it; kept with the alert.")] = "",
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    wait: WaitOption = WAIT,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """Acknowledge an alert: somebody is dealing with it. It stays open until its condition ends.

    The site's bridge notes who has acknowledged it, and all sites show that. Ends with 5 when the alert is over or
    acknowledged already, and with 4 when the bridge does not answer in time; it notes it later.

    Example: fairlead alert ack BIGU1000005 --site singapore --reason 'a man is on his way with a plug' --yes
    """
    consent = Consent(yes=yes, dry_run=dry_run, as_json=as_json)
    _order(open_topology(topology), alert, at, reason, consent, wait, as_json=as_json, acknowledge=True)


@app.command()
def clear(
    alert: AlertArgument,
    at: RaisedAtOption,
    reason: Annotated[str, typer.Option("--reason", help="Why; kept with the alert.")],
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    wait: WaitOption = WAIT,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """End an alert by hand: a mistake, or one that no reading ends (a container overboard).

    The site's bridge carries the order out. The same condition does not raise the alert again; a new one does. Ends
    with 5 when the alert cannot be cleared, and with 4 when the bridge does not answer in time; it clears it later.

    Example: fairlead alert clear BIGU1000005 --site duck-star --reason 'seen on deck; the sensor is wet' --yes
    """
    consent = Consent(yes=yes, dry_run=dry_run, as_json=as_json)
    _order(open_topology(topology), alert, at, reason, consent, wait, as_json=as_json, acknowledge=False)


@app.command()
def rules(
    thresholds: Annotated[
        Path | None, typer.Option(help="A file as for fairlead bridge --thresholds.", metavar="FILE")
    ] = None,
    commodity: Annotated[str | None, typer.Option(help="Show the thresholds for this commodity.")] = None,
    stream: Annotated[str | None, typer.Option(help="Show those for containers of this stream.")] = None,
    customer: Annotated[str | None, typer.Option(help="Show those for containers booked by this customer.")] = None,
    ashore: Annotated[bool, typer.Option("--ashore", help="Show those of a yard, not of a ship.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the thresholds of alerts, and where each comes from.

    Example: fairlead alert rules --commodity frozen-fish
    """
    known = load_thresholds(thresholds) if thresholds is not None else default_thresholds()
    known.require(commodity, stream=stream, customer=customer)
    groups = known.table(commodity, stream=stream, customer=customer, ashore=ashore)
    asked = {"commodity": commodity, "stream": stream, "customer": customer, "ashore": ashore}
    body = {**asked, "known": known.known["commodities"], "groups": groups}
    emit(body, as_json=as_json, render=lambda: _show_rules(groups))


async def _at(context: Context, at: str | None, question: Callable[[Cluster], Awaitable[T]]) -> tuple[str, T]:
    """Ask a site; return its name and its answer.

    Raises:
        FairleadError: no site answers, or the answer of the first that does is an error.
    """

    kafka = running_kafka(context)

    async def ask(site: str) -> tuple[str, T | FairleadError]:
        cluster = await Cluster.open(kafka(site), client_id="fairlead-alert")
        try:
            return site, await question(cluster)
        except FairleadError as error:
            if error.retriable:
                raise
            return site, error  # an answer: the copy of the next site may be older
        finally:
            await cluster.close()

    site, answer = await ask_first(context.topology, at, ask)
    if isinstance(answer, FairleadError):
        raise answer
    return site, answer


def _order(
    context: Context,
    alert: str,
    at: str,
    reason: str,
    consent: Consent,
    wait: float,
    *,
    as_json: bool,
    acknowledge: bool,
) -> None:
    """Acknowledge or clear an alert, if the user agrees, and show the outcome."""

    async def do(cluster: Cluster) -> tuple[Alert, AlertOrder, Alert | None]:
        found = chosen(await read_alerts(cluster), alert, at, acknowledge=acknowledge)
        order = order_for(found, reason, dt.datetime.now(dt.UTC), acknowledge=acknowledge)
        if not consent.given(lines(_order_plan(found, order))):
            return found, order, None
        return found, order, await place_order(cluster, context.resolver.kafka(at, ADMIN), order, wait)

    _, (found, order, answer) = asyncio.run(_at(context, at, do))
    body = answer_body(found, order, answer)
    emit(body, as_json=as_json, render=lambda: _show_answer(found, order, str(body["outcome"]), consent))


def _show_list(site: str, alerts: Iterable[Alert], opened: dict[tuple[str, str], Alert]) -> None:
    headings = ("severity", "kind", "container", "since (UTC)", "state", "raised at", "what")
    table = Table(*headings, box=None, padding=(0, 1, 0, 0))
    rows = sorted(alerts, key=lambda alert: opened[alert_key(alert)].event_date_time, reverse=True)
    for alert in rows:
        what = [each.detail or each.name for each in alert.evidence]
        if alert.acknowledged_by:
            what.insert(0, f"acknowledged by {alert.acknowledged_by}")
        table.add_row(
            f"[{_COLOURS[alert.severity]}]{alert.severity}[/]",
            escape(alert.kind),
            alert.equipment_reference or "(all)",
            f"{opened[alert_key(alert)].event_date_time:%Y-%m-%d %H:%M}",
            alert.state,
            escape(alert.raised_at),
            escape("; ".join(what)),
        )
    console.print(f"{count(len(rows), 'alert')} (logs at {site})")
    if rows:
        console.print(uncut(table, "container", "since (UTC)", "raised at"))
    open_alerts = [alert for alert in rows if alert.state != "CLEARED"]
    several = Counter((alert.raised_at, alert.equipment_reference) for alert in open_alerts)
    for alert in open_alerts:
        if several[alert.raised_at, alert.equipment_reference] > 1:
            box = alert.equipment_reference or "all containers"
            console.print(escape(f"id of {alert.kind} of {box} at {alert.raised_at}: {alert.alert_id}"), soft_wrap=True)


def _order_plan(alert: Alert, order: AlertOrder) -> list[str]:
    where = f"{ALERT_ORDERS} at {alert.raised_at}"
    if order.acknowledges:
        return [f"append to {where}: acknowledge {_name(alert)}" + (f": {order.reason}" if order.reason else "")]
    return [f"append to {where}: clear {_name(alert)}, because: {order.reason}"]


def _name(alert: Alert) -> str:
    return f"{alert.kind} of {alert.equipment_reference or 'all containers'} ({alert.alert_id})"


def _show_answer(alert: Alert, order: AlertOrder, outcome: str, consent: Consent) -> None:
    what = escape(_name(alert))
    if outcome in ("cleared", "acknowledged"):
        console.print(f"[green]{outcome}[/]: {what}", soft_wrap=True)
    elif outcome == "over":
        console.print(f"{what} was over before the order was carried out", soft_wrap=True)
    else:
        consent.unchanged(lines(_order_plan(alert, order)))


def _show_rules(groups: dict[str, dict[str, Any]]) -> None:
    for group, values in groups.items():
        console.print(f"[bold]{group}[/]  [dim]{escape(values['source'])}[/]", soft_wrap=True)
        for name, value in values.items():
            if name != "source" and value is not None:
                console.print(f"  {name:<18} {_value(group, name, value)}", soft_wrap=True, highlight=False)


_UNITS: Final = {  # by group, else by name
    "setpoint": " °C",
    "temperature": " °C",
    **dict.fromkeys(("humidity", "o2", "co2"), " %"),
    "free_fall": " s",
    "impact": " g",
    "tilt": "°",
    **dict.fromkeys(("away", "update_moved"), " m"),
}


def _value(group: str, name: str, value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {weight:g}" for key, weight in value.items())
    if name in durations():
        return format_duration(dt.timedelta(milliseconds=value))
    return f"{value:g}{_UNITS.get(group) or _UNITS.get(name, '')}"
