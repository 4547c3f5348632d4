"""``fairlead tables`` and ``fairlead sql``: look at the Delta tables without starting a JVM."""

from __future__ import annotations

import csv
import datetime as dt
import json
import sys
from typing import Annotated, Any

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from fairlead.commands.context import DEFAULT_TOPOLOGY, Context, JsonOption, TopologyOption, open_topology
from fairlead.console import console, emit
from fairlead.errors import UnknownNameError
from shore import read

_MOST_ROWS = 200  # on a terminal; --json and --csv give all


def tables(
    name: Annotated[str | None, typer.Argument(help="Show this table's columns.")] = None,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """List the tables with rows and version, or one table's columns with their units.

    Example: fairlead tables conditions
    """
    context = open_topology(topology)
    found = read.tables(context.folder, storage=_storage(context))
    if name is not None:
        found = [info for info in found if info.name == name]
        if not found:
            known = [info.name for info in read.tables(context.folder, storage=_storage(context))]
            raise UnknownNameError("table", name, known)

    def render() -> None:
        if not found:
            console.print("there are no tables yet: fairlead shore run --once")
        elif name is not None:
            console.print(_columns(found[0]))
        else:
            console.print(_list(found))

    emit(msgspec.to_builtins(found), as_json=as_json, render=render)


def sql(
    query: Annotated[str, typer.Argument(help="A select over the tables, in DuckDB's dialect. Times are UTC.")],
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV with a header line.")] = False,
) -> None:
    """Run one SQL query over the tables; works while shore writes.

    Example: fairlead sql "select equipment_reference, max(minutes_out_of_band) m from conditions group by 1 order by m"
    """
    context = open_topology(topology)
    result = read.sql(context.folder, query, storage=_storage(context))
    names, rows = result.schema.names, [tuple(row.values()) for row in read.rows(result)]
    if as_csv:
        writer = csv.writer(sys.stdout)
        writer.writerow(names)
        writer.writerows([[_text(value) for value in row] for row in rows])
        return
    data = [{name: _plain(value) for name, value in zip(names, row, strict=True)} for row in rows] if as_json else None
    emit(data, as_json=as_json, render=lambda: _print_rows(names, rows))


def _storage(context: Context) -> str | None:
    return context.topology.shore.storage if context.topology.shore else None


def _list(found: list[read.TableInfo]) -> Table:
    table = Table("table", box=None, header_style="bold", pad_edge=False)
    for heading in ("columns", "rows", "files", "size", "version"):
        table.add_column(heading, justify="right")
    table.add_column("what")
    for info in found:
        numbers = (len(info.columns), info.rows, info.files)
        size = f"{info.bytes / 1e6:,.1f} MB"
        table.add_row(
            info.name,
            *(f"{n:,}" for n in numbers),
            size,
            str(info.version),
            escape(info.description.partition(". ")[0]),
        )
    return table


def _columns(info: read.TableInfo) -> Table:
    table = Table("column", "type", "meaning [unit]", box=None, header_style="bold", pad_edge=False)
    for column in info.columns:
        table.add_row(column.name, column.type, escape(column.comment))
    return table


def _print_rows(names: list[str], rows: list[tuple[Any, ...]]) -> None:
    table = Table(*(escape(name) for name in names), box=None, header_style="bold", pad_edge=False)
    for row in rows[:_MOST_ROWS]:
        table.add_row(*(escape(_text(value)) for value in row))
    console.print(table)
    more = f", the first {_MOST_ROWS} shown; --csv and --json give all" if len(rows) > _MOST_ROWS else ""
    console.print(f"{len(rows):,} row{'' if len(rows) == 1 else 's'}{more}", style="dim")


def _plain(value: Any) -> Any:
    """For JSON: bytes are text (payloads are JSON), times RFC 3339."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, dt.datetime):
        return value.isoformat().replace("+00:00", "Z")
    return value


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    plain = _plain(value)
    return plain if isinstance(plain, str) else json.dumps(plain, default=str)
