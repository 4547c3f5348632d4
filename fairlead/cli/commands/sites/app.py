"""``fairlead site distrust``: shut out a ship whose machine somebody else controls."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.markup import escape

from edge.custody.operator.execute import WAIT
from edge.custody.operator.takeover import TakeoverRequest
from fairlead.cli.commands.context import DryRunOption, JsonOption, TopologyOption, WaitOption, YesOption, site_option
from fairlead.cli.console import Consent, console, emit, lines, site_progress, telling
from fairlead.distrust import DistrustPlan, DistrustResult, carry_out, check_request, plan_distrust
from fairlead.errors import ExitCode
from topologies.context import DEFAULT_TOPOLOGY, open_topology

app = typer.Typer(
    help="Shut out a ship that is no longer trusted.",
    epilog="Example: fairlead site distrust duck-star --reason stolen --dry-run",
    no_args_is_help=True,
)


@app.callback()
def _group() -> None:
    """Typer makes a group of an application with one command only if it has this."""


@app.command()
def distrust(
    ship: Annotated[str, typer.Argument(help="The ship's site.", metavar="SHIP")],
    reason: Annotated[str, typer.Option("--reason", help="Why; kept in the ledgers and with the links' orders.")],
    at: Annotated[
        str | None, site_option("The site that seizes. Default: for each log, the site ashore with the longest copy.")
    ] = None,
    wait: WaitOption = WAIT,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Shut out a ship: close its links, change its passwords, seize the logs that it holds.

    The other sites fetch nothing more from it, its old passwords are useless ashore, and a site ashore continues each
    log that it holds. Readings that the ship still writes are not part of these logs; when you trust the ship again,
    'link resume' copies them as strays. After an interruption, repeat the command. Ends with 1 when a step failed.

    Example: fairlead site distrust duck-star --reason 'stolen in Sydney' --yes
    """
    consent = Consent(yes=yes, dry_run=dry_run, as_json=as_json)
    context = open_topology(topology)
    request = TakeoverRequest(ship, at, getpass.getuser(), reason)
    check_request(context.topology, request)
    plan = asyncio.run(plan_distrust(context, request))
    result = DistrustResult()
    applied = consent.given(lines(plan.lines()))
    if applied:
        with telling(quiet=as_json) as tell:
            result = carry_out(context, plan, request, wait=wait, tell=tell, on_progress=site_progress(quiet=as_json))
    emit(
        {
            "ship": ship,
            "plan": plan.lines(),
            "applied": applied,
            "done": result.done,
            "failed": result.failed,
            "notes": result.notes,
        },
        as_json=as_json,
        render=lambda: _render(plan, result, consent, applied=applied),
    )
    if result.failed or plan.takeover.left:
        raise typer.Exit(ExitCode.FAILED)


def _render(plan: DistrustPlan, result: DistrustResult, consent: Consent, *, applied: bool) -> None:
    if not applied:
        consent.unchanged(lines(plan.lines()))
        return
    _print("[green]done[/]", result.done)
    _print("[yellow]note:[/]", result.notes)
    _print("[bold red]not done:[/]", result.failed)
    if result.failed:
        console.print("The same command does what is left.")


def _print(mark: str, texts: Sequence[str]) -> None:
    for text in texts:
        console.print(f"{mark} {escape(text)}", soft_wrap=True)
