"""``fairlead report``: write pages and files from the tables, without a JVM."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.markup import escape

from fairlead.cli.commands.context import JsonOption, TopologyOption, check_order, parse_moment, writing
from fairlead.cli.console import console, emit, errors
from shore.paths import TablePaths
from shore.storage import open_paths
from topologies.context import DEFAULT_TOPOLOGY, Context, open_topology

app = typer.Typer(
    help="Write a report about one container or one port.",
    epilog="Example: fairlead report port SGSIN",
    no_args_is_help=True,
)


class For(StrEnum):
    """The reader of a port's report."""

    OPERATOR = "operator"
    AUTHORITY = "authority"


@app.command()
def container(
    number: Annotated[str, typer.Argument(help="Container number, ISO 6346.")],
    since: Annotated[str | None, typer.Option("--since", help="First device time, inclusive (UTC).")] = None,
    until: Annotated[str | None, typer.Option("--until", help="Last device time, exclusive (UTC).")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for page and files.", show_default=False)] = None,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """Write a container's history for a claim: a page, and its rows as CSV and Parquet.

    Example: fairlead report container BIGU1000010 --since 2026-03-01 --until 2026-03-08T12:00
    """
    from board.pages.container import container_file
    from shore.report.container import container_report, normalised, open_container
    from shore.report.pack import write_pack
    from shore.report.slices import table_warnings
    from shore.report.wording import count

    number, first, end = normalised(number), parse_moment("--since", since), parse_moment("--until", until)
    check_order(first, end, ("--since", "--until"))
    context = open_topology(topology)
    folder = out or context.folder / "reports" / number
    with errors.status("reading the tables") as status, open_container(_places(context), number, first, end) as found:
        report = container_report(found, number, first, end)
        status.update("drawing")
        doubtful = table_warnings(context.folder, _places(context), report.versions)
        page = container_file(found, report, doubtful)
        status.update("writing the files")
        with writing(folder, "folder"):
            manifest = write_pack(found, report, folder, page)
    page_file = folder / f"{number}.html"

    def render() -> None:
        figures = report.figures
        counts = ((figures.records, "reading"), (len(report.excursions), "excursion"), (len(report.alerts), "alert"))
        console.print(", ".join(count(so_many, what) for so_many, what in counts))
        for name in report.missing:
            console.print(f"table {name} is not there yet: the page says what is missing because of it", style="yellow")
        _tell(doubtful)
        console.print(f"page: {escape(str(page_file))}", soft_wrap=True)
        console.print(f"{count(len(manifest.files) - 1, 'file')} and a manifest beside it", style="dim")

    body = {"folder": str(folder), "page": str(page_file), "manifest": manifest, "doubts": doubtful}
    body |= msgspec.to_builtins(report)
    emit(msgspec.to_builtins(body), as_json=as_json, render=render)


@app.command()
def port(
    code: Annotated[str, typer.Argument(help="UN/LOCODE of the port.")],
    audience: Annotated[
        For, typer.Option("--for", help="Leave out cargo, customers and bookings for an authority.")
    ] = For.OPERATOR,
    out: Annotated[Path | None, typer.Option("--out", help="File for the page.", show_default=False)] = None,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """Write a page about a port: arriving ships and their cargo, the dock, recent movements.

    With --json, prints the report and writes the page only with --out.

    Example: fairlead report port JPTYO
    """
    from board.pages.port import port_file
    from shore.report.port import port_report
    from shore.report.slices import table_warnings

    context = open_topology(topology)
    with errors.status("reading the tables") as status:
        report = port_report(_places(context), code, audience.value)
        doubtful = table_warnings(context.folder, _places(context), report.versions)
        file = out or context.folder / "reports" / f"{report.un_location_code}-{audience.value}.html"
        if out is not None or not as_json:
            status.update("drawing")
            page = port_file(report, doubtful)
            with writing(file, "file"):
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(page, encoding="utf-8")

    def render() -> None:
        when = f" as of {report.as_of:%Y-%m-%d %H:%M} UTC" if report.as_of is not None else ""
        console.print(f"{escape(report.port)} ({report.un_location_code}){when}")
        for ship in report.arriving:
            eta = ship.approach.eta
            expected = f"about {eta:%Y-%m-%d %H:%M}" if eta is not None else "arrival time not known"
            console.print(
                f"  {escape(ship.vessel)}: {expected}; {ship.aboard:,} boxes, {ship.for_port:,} for here, "
                f"{ship.concerning:,} with something wrong"
            )
        if not report.arriving:
            console.print("  no ship is expected")
        console.print(f"  on the dock: {len(report.dock):,}; ships in port: {len(report.in_port)}")
        for name in report.missing:
            console.print(f"table {name} is not there yet: the page says what is missing because of it", style="yellow")
        _tell(doubtful)
        console.print(f"page: {escape(str(file))}", soft_wrap=True)

    emit(msgspec.to_builtins(report) | {"doubts": doubtful}, as_json=as_json, render=render)


def _tell(doubtful: Sequence[str]) -> None:
    for each in doubtful:
        console.print(f"not certain: {escape(each)}", style="yellow", soft_wrap=True)


def _places(context: Context) -> TablePaths:
    return open_paths(context.topology.shore, context.folder)
