"""``fairlead doctor``: whether this machine is fit for a topology, before anything is started."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import typer
from rich.markup import escape
from rich.table import Table

from fairlead.commands.context import DEFAULT_TOPOLOGY, JsonOption, TopologyOption
from fairlead.console import console, emit
from fairlead.doctor.examine import examine, needs
from fairlead.doctor.model import Finding, Needs, Verdict, as_data, worst
from fairlead.errors import ExitCode
from fairlead.home import topology_folder
from topologies.load import load

_COLOURS: Final = {
    Verdict.OK: "green",
    Verdict.NOTE: "dim",
    Verdict.WARNING: "yellow",
    Verdict.FAILED: "bold red",
}


def doctor(
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    logs: Annotated[
        int | None,
        typer.Option(
            "--logs",
            min=1,
            help="How many logs each broker is to hold: boxes and ships. Default: as now, at least 1,000.",
        ),
    ] = None,
    download: Annotated[bool, typer.Option("--download", help="Fetch jars that are missing, now.")] = False,
    json: JsonOption = False,
) -> None:
    """Examine this machine: programs, ports, limits, clock, disk; say what is needed, why, and what to do.

    Exits with 1 when something that is needed fails; warnings are no failure. Starts no sites and changes nothing.

    Example: fairlead doctor --topology big-blue --logs 20000
    """
    found = load(topology)
    folder = topology_folder(found.name)
    foreign = [name for name, site in found.sites.items() if site.kafka is not None]
    here = [name for name in found.sites if name not in foreign]
    needed = needs(found.name, folder, here, logs)
    findings = list(examine(needed, folder, foreign=foreign, download=download))
    emit(as_data(needed, findings), as_json=json, render=lambda: _show(needed, findings))
    if worst(findings) is Verdict.FAILED:
        raise typer.Exit(ExitCode.FAILED)


def _show(needed: Needs, findings: Sequence[Finding]) -> None:
    sites, brokers = len(needed.sites), needed.brokers
    console.print(f"For [bold]{needed.topology}[/]: {sites} sites, {brokers} brokers of {needed.logs:,} logs here\n")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("", "Examined", "Found", "Needed"):
        table.add_column(column, overflow="fold")
    for each in findings:
        verdict = f"[{_COLOURS[each.verdict]}]{each.verdict}[/]"
        table.add_row(verdict, f"[bold]{each.name}[/]", escape(each.found), escape(each.needed))
    console.print(table)
    for each in findings:
        if each.verdict in (Verdict.WARNING, Verdict.FAILED):
            console.print(f"\n[{_COLOURS[each.verdict]}]{each.verdict}: {each.name}[/]  {escape(each.why)}")
            if each.todo:
                console.print(f"  [bold]what to do:[/] {escape(each.todo)}", soft_wrap=True)
