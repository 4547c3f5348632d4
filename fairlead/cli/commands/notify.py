"""``fairlead notify``: send notifications of alerts, try a route, show how far each is."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from fairlead.cli.commands.context import (
    JsonOption,
    MetricsHostOption,
    MetricsPortOption,
    TopologyOption,
    metrics_page,
    site_option,
)
from fairlead.cli.console import console, emit, errors
from fairlead.errors import ConfigurationError, ExitCode
from fairlead.scrape import ADDRESS, MetricsServer, serve
from fairlead.waiting import stopped_by_signals
from notify.routes import example
from notify.service import NotifyService, make_sender, notify_of, positions, route_of
from topologies.context import DEFAULT_TOPOLOGY, Context, open_topology, running_kafka
from topologies.model import Route, Webhook, check_sites

app = typer.Typer(
    help="Send alerts by e-mail, webhooks and chat; try a route; show how far each is.",
    epilog="Example: fairlead notify list",
    no_args_is_help=True,
)


@app.command()
def run(
    at: Annotated[str | None, site_option("The site of notify in the topology.")] = None,
    routes: Annotated[
        list[str] | None, typer.Option("--route", help="Only this route; may be repeated. Default: all.")
    ] = None,
    metrics_port: MetricsPortOption = None,
    metrics_host: MetricsHostOption = ADDRESS,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
) -> None:
    """Send notifications of alerts, until Ctrl-C.

    Each route goes on where it was. Stop, kill or start it at any time, but run each route once only.

    Example: fairlead notify run --site los-angeles --metrics-port 9407
    """
    context = open_topology(topology)
    _check_site(context, at)
    context.resolver.kafka(notify_of(context.topology).at, "notify")  # report wrong settings at once
    service = NotifyService(context.topology, context.resolver, routes or ())
    asyncio.run(_run(service, metrics_host, metrics_port))


@app.command()
def test(
    route: Annotated[str, typer.Argument(metavar="ROUTE", help="A route of the topology.")],
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """Send one example by a route, also in its quiet hours, and say what came back.

    It is about no real container and says that it is a test. Ends with 1 when it is not delivered.

    Example: fairlead notify test port-office
    """
    context = open_topology(topology)
    chosen = route_of(context.topology, route)
    message = example(route, chosen, context.topology, dt.datetime.now(dt.UTC))
    outcome = asyncio.run(make_sender(context.topology, context.resolver, route).send(message))
    body = {"route": route, "notification": message.id, "delivered": outcome.delivered, "answer": outcome.said}

    def show() -> None:
        word = "[green]delivered[/]" if outcome.delivered else "[bold red]not delivered[/]"
        console.print(f"{word} by {escape(route)} ({_by(chosen)}): {escape(outcome.said)}", soft_wrap=True)

    emit(body, as_json=as_json, render=show)
    if not outcome.delivered:
        raise typer.Exit(ExitCode.FAILED)


@app.command("list")
def list_(topology: TopologyOption = DEFAULT_TOPOLOGY, as_json: JsonOption = False) -> None:
    """List the routes with their positions, lag, last delivery and refusals.

    Example: fairlead notify list
    """
    context = open_topology(topology)
    at = notify_of(context.topology).at
    kafka = running_kafka(context)(at)
    found = asyncio.run(positions(context.topology, kafka))
    rows: list[dict[str, Any]] = []
    for name, (logs, lag) in found.items():
        delivered = [each.progress.delivered for each in logs.values() if each.progress.delivered]
        answers = [each.progress.answer for each in logs.values() if each.progress.answer]
        rows.append(
            {
                "route": name,
                "to": _by(route_of(context.topology, name)),
                "begun": bool(logs),
                "positions": {tp.topic: each.next for tp, each in sorted(logs.items())},
                "lag": lag if logs else None,
                "held": any(each.progress.held is not None for each in logs.values()),
                "last_delivery": max(delivered).isoformat(timespec="seconds") if delivered else None,
                "refused": sum(each.progress.refused for each in logs.values()),
                "answer": answers[-1] if answers else "",
            }
        )
    emit({"at": at, "routes": rows}, as_json=as_json, render=lambda: _show(at, rows))


def _check_site(context: Context, at: str | None) -> None:
    """Raise ConfigurationError unless notifications are sent beside this site; None: wherever they are."""
    wanted = notify_of(context.topology).at
    if at is not None and check_sites(context.topology, [at]) != (wanted,):
        raise ConfigurationError(
            f"notifications of topology {context.topology.name} are sent at {wanted}, not at {at}",
            hint=f"--site {wanted}, or notify: {{at: {at}}} in the topology",
            site=at,
        )


async def _run(service: NotifyService, metrics_host: str, metrics_port: int | None) -> None:
    def start(port: int, host: str) -> MetricsServer:
        from notify.prometheus import notify_metrics  # imports an HTTP server, which few need

        return serve(notify_metrics, [service], port, host)

    stop = stopped_by_signals()
    async with metrics_page(start, metrics_port, metrics_host):
        errors.print(f"sending notifications: {escape(', '.join(each.name for each in service.routes))}")
        await service.run(stop)
    errors.print("stopped")


def _by(route: Route) -> str:
    """Return how a route sends, without an address, which may have a token."""
    return "webhook" if isinstance(route.to, Webhook) else route.to.partition("://")[0].strip("{}")


def _show(at: str, rows: list[dict[str, Any]]) -> None:
    table = Table("route", "to", "lag", "last delivery (UTC)", "refused", "last refusal", box=None)
    for row in rows:
        lag = f"{row['lag']}" + (", some wait for the end of quiet hours" if row["held"] else "")
        table.add_row(
            escape(row["route"]),
            escape(row["to"]),
            lag if row["begun"] else "never run",
            (row["last_delivery"] or "-")[:16].replace("T", " "),
            str(row["refused"]),
            escape(row["answer"]),
        )
    console.print(f"{len(rows)} routes, positions at {escape(at)}")
    console.print(table)
