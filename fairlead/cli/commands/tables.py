"""``fairlead tables`` and ``fairlead sql``: show the Delta tables and query them, without starting a JVM."""

from __future__ import annotations

import csv
import datetime as dt
import decimal
import json
import math
from collections.abc import Collection, Iterable, Sequence
from typing import Annotated, Any, Final

import msgspec
import pyarrow as pa
import typer
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from fairlead.cli.commands.context import JsonOption, TopologyOption
from fairlead.cli.console import SafeConsole, console, emit, output, printable, show_error, size
from fairlead.errors import UnavailableError, UnknownNameError
from shore import read
from shore.delta.table_errors import missing_table_error, no_tables_error
from shore.feeds.readers import kept_tables
from shore.joins import VIEWS, View
from shore.paths import CUSTOMERS, TablePaths
from shore.read import ColumnInfo, TableInfo
from shore.report.wording import count
from shore.storage import open_paths
from shore.tables import Table as Declared
from topologies.context import DEFAULT_TOPOLOGY, Context, open_topology

MOST_ROWS: Final = 200  # rows in a table; --json and --csv give all
_MOST_RECORDS: Final = 20  # rows as lines of column and value
_UNBOUND: Final = 100_000  # terminal columns


def show_list(
    found: Sequence[TableInfo], paths: TablePaths, known: Collection[str], damaged: Collection[str] = ()
) -> None:
    """Print all tables with their content, the views, the known tables that do not exist yet, and the location."""
    table = Table("table", box=None, header_style="bold", pad_edge=False)
    for heading in ("rows", "files", "size"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("what")
    for info in found:
        what = escape(info.description.partition(". ")[0])
        table.add_row(info.name, f"{info.rows:,}", f"{info.files:,}", size(info.bytes), what)
    console.print(table)
    views = Table("view", "what", box=None, header_style="bold", pad_edge=False)
    for view in VIEWS.values():
        views.add_row(view.name, escape(view.title))
    console.print()
    console.print(views)
    if absent := [name for name in known if name not in {info.name for info in found}.union(damaged)]:
        console.print(f"\nnot there yet: {', '.join(absent)}", style="dim")
    console.print(f"\nthey are in {escape(paths.tables)}, each in a folder of its name", style="dim", soft_wrap=True)
    if own := next((name for name in known if name.startswith(CUSTOMERS)), None):
        where = f"{paths.base}/{CUSTOMERS}<customer>/feed"
        console.print(
            f'customers\' own are in {escape(where)}; in SQL their names have double quotes: "{escape(own)}"',
            style="dim",
            soft_wrap=True,
        )
    console.print("fairlead tables NAME: columns, key, what happens to late data; --json: all of it", style="dim")


def show_table(info: TableInfo, declared: Declared) -> None:
    """Print one table: its promises, its content, and its columns, with those of the key marked."""
    console.print(f"[bold]{info.name}[/]: {escape(declared.title)}")
    lines = [
        ("one row", declared.grain),
        ("key", ", ".join(declared.key)),
        ("late data", declared.late),
        ("layout", declared.layout),
        ("retention", declared.retention),
        (
            "now",
            f"{count(info.rows, 'row')} in {count(info.files, 'file')}, {size(info.bytes)}; version {info.version}",
        ),
        ("where", info.location),
    ]
    facts = Table.grid(padding=(0, 2))
    facts.add_column(no_wrap=True)
    facts.add_column(overflow="fold")
    for name, text in lines:
        facts.add_row(Text(name, style="dim"), Text(text))
    console.print(facts)
    _columns(info.columns, declared.key)


def show_view(view: View, columns: Sequence[ColumnInfo]) -> None:
    """Print one view, the tables that it reads, and its columns."""
    console.print(f"[bold]{view.name}[/]: {escape(view.title)}")
    console.print(f"a view on {', '.join(view.inputs)}; 'fairlead sql' and Spark (shore.joins) know it", style="dim")
    _columns(columns, ())


def _columns(columns: Sequence[ColumnInfo], key: Collection[str]) -> None:
    table = Table("column", "type", "meaning [unit]", box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_row(Text(column.name, style="bold" if column.name in key else ""), column.type, Text(column.comment))
    console.print()
    console.print(table)


def show_rows(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows side by side where they fit, else each row as lines of column and value."""
    table = Table(*(escape(name) for name in names), box=None, header_style="bold", pad_edge=False)
    for row in rows[:MOST_ROWS]:
        table.add_row(*(Text(printable(text(value))) for value in row))
    natural = Measurement.get(console, console.options.update(max_width=_UNBOUND), table).maximum
    if not console.is_terminal:
        SafeConsole(width=max(natural, 1)).print(table)
        shown = MOST_ROWS
    elif natural <= console.width or len(names) == 1:
        console.print(table)
        shown = MOST_ROWS
    else:
        _records(names, rows[:_MOST_RECORDS])
        shown = _MOST_RECORDS
    more = f", the first {shown} shown; --csv and --json give all" if len(rows) > shown else ""
    console.print(f"{count(len(rows), 'row')}{more}", style="dim")


def _records(names: Iterable[str], rows: Iterable[Sequence[Any]]) -> None:
    for number, row in enumerate(rows, start=1):
        lines = Table.grid(padding=(0, 2))
        lines.add_column(no_wrap=True)
        lines.add_column(overflow="fold")
        for name, value in zip(names, row, strict=True):
            lines.add_row(Text(name, style="bold"), Text(printable(text(value))))
        console.print(f"row {number}", style="dim")
        console.print(lines)


def plain(value: Any) -> Any:
    """Convert a value for JSON.

    Bytes become text (payloads are JSON), times RFC 3339, intervals words (``2 days, 1:30:00``), sums of integers
    (DuckDB's hugeint) integers. NaN and infinity, which JSON lacks, become null.
    """
    match value:
        case bytes():
            return value.decode("utf-8", "replace")
        case dt.datetime():
            return value.isoformat().replace("+00:00", "Z")
        case dt.date() | dt.time():
            return value.isoformat()
        case pa.MonthDayNano():
            days = [count(each, name) for each, name in ((value.months, "month"), (value.days, "day")) if each]
            clock = dt.timedelta(microseconds=abs(value.nanoseconds) // 1000)
            return ", ".join((*days, f"{'-' if value.nanoseconds < 0 else ''}{clock}"))
        case decimal.Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case float():
            return value if math.isfinite(value) else None
        case list() | tuple():
            return [plain(each) for each in value]
        case dict():
            return {name: plain(each) for name, each in value.items()}
        case _:
            return value


def text(value: Any, *, rounded: bool = True) -> str:
    """Format a value: for people with six significant digits, for CSV (not ``rounded``) with all; null is empty."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}" if rounded else repr(value)
    as_plain = plain(value)
    return as_plain if isinstance(as_plain, str) else json.dumps(as_plain, default=str)


def tables(
    name: Annotated[
        str | None, typer.Argument(help="A table or view to show: columns, units, key, late data.", show_default=False)
    ] = None,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """List the Delta tables, or show one table's columns with their units.

    Example: fairlead tables conditions
    """
    context = open_topology(topology)
    paths, kept = open_paths(context.topology.shore, context.folder), kept_tables(context.topology)
    if name is not None and name in VIEWS:
        view, columns = VIEWS[name], read.view_columns(name)
        body = msgspec.to_builtins(view) | {"columns": msgspec.to_builtins(columns)}
        emit(body, as_json=as_json, render=lambda: show_view(view, columns))
        return
    if name is not None and name not in kept:
        raise UnknownNameError("table", name, [*kept, *VIEWS])
    found: list[read.TableInfo] = []
    damaged: list[UnavailableError] = []
    for each in [name] if name else kept:
        try:
            found += read.tables(context.folder, [each], storage=_storage(context))
        except UnavailableError as error:
            damaged.append(error)
    if name is not None and damaged:
        raise damaged[0]
    if name is not None and not found:
        raise missing_table_error(name)

    def render() -> None:
        if not found and not damaged:
            error = no_tables_error(paths)
            console.print(escape(f"{context.topology.name}: {error.what}; {error.hint}"), soft_wrap=True)
        elif name is not None:
            show_table(found[0], kept[name])
        else:
            show_list(found, paths, kept, {str(each.fields["table"]) for each in damaged})

    emit([_json(info, kept[info.name]) for info in found], as_json=as_json, render=render)
    for each_damaged in damaged:
        show_error(each_damaged, as_json=as_json)
    if damaged:
        raise typer.Exit(damaged[0].exit_code)


def sql(
    query: Annotated[str, typer.Argument(help="A SELECT in DuckDB's dialect. Times are UTC.")],
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV with a header line.")] = False,
) -> None:
    """Run one SQL query over the tables; works while shore writes.

    Example: fairlead sql "select equipment_reference, quantity, minutes from excursions order by minutes desc"
    """
    if as_csv and as_json:
        raise typer.BadParameter("--csv and --json exclude each other")
    context = open_topology(topology)
    result = read.sql(context.folder, query, storage=_storage(context), known=kept_tables(context.topology))
    names, rows = result.schema.names, [tuple(row.values()) for row in read.rows(result)]
    if as_csv:
        csv.writer(output).writerows([list(map(_cell, row)) for row in (tuple(names), *rows)])
        return
    data = [{name: plain(value) for name, value in zip(names, row, strict=True)} for row in rows] if as_json else None
    emit(data, as_json=as_json, render=lambda: show_rows(names, rows))


def _cell(value: Any) -> str:
    """Format a value with all digits; put ``'`` before a text that a spreadsheet would run as a formula."""
    written = text(value, rounded=False)
    return read.csv_cell(written) if isinstance(value, str | bytes) else written


def _storage(context: Context) -> str | None:
    paths = open_paths(context.topology.shore, context.folder)
    return None if paths.is_local and paths.base == str(context.folder) else paths.base


def _json(info: read.TableInfo, declared: Declared) -> dict[str, Any]:
    """Return the table's stored properties and its promises."""
    promises = {name: getattr(declared, name) for name in ("title", "key", "grain", "late", "layout", "retention")}
    stored: dict[str, Any] = msgspec.to_builtins(info)
    return stored | promises
