"""``fairlead tables`` and ``fairlead sql``: look at the Delta tables without starting a JVM."""

from __future__ import annotations

import csv
import sys
from typing import Annotated, Any

import msgspec
import typer

from fairlead.commands.context import DEFAULT_TOPOLOGY, Context, JsonOption, TopologyOption, open_topology
from fairlead.commands.tableshow import plain, show_list, show_rows, show_table, show_view, text
from fairlead.console import console, emit, show_error
from fairlead.errors import UnavailableError, UnknownNameError
from shore import read
from shore.feeds.tables import kept_tables
from shore.joins import VIEWS
from shore.opened import not_there
from shore.places import Places
from shore.tables import Table


def tables(
    name: Annotated[
        str | None, typer.Argument(help="Show this table's columns, key and promises; or a view.", show_default=False)
    ] = None,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """List the tables with rows and version, or one table's columns with their units.

    Example: fairlead tables conditions
    """
    context = open_topology(topology)
    places, kept = Places.of(context.folder, _storage(context)), kept_tables(context.topology)
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
        raise not_there(name)

    def render() -> None:
        if not found and not damaged:
            console.print("there are no tables yet: fairlead shore run --once")
        elif name is not None:
            show_table(found[0], kept[name])
        else:
            show_list(found, places, kept, {str(each.fields["table"]) for each in damaged})

    emit([_json(info, kept[info.name]) for info in found], as_json=as_json, render=render)
    for each_damaged in damaged:
        show_error(each_damaged, as_json=as_json)
    if damaged:
        raise typer.Exit(damaged[0].exit_code)


def sql(
    query: Annotated[str, typer.Argument(help="A select over the tables, in DuckDB's dialect. Times are UTC.")],
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV with a header line.")] = False,
) -> None:
    """Run one SQL query over the tables; works while shore writes.

    Example: fairlead sql "select equipment_reference, quantity, minutes from excursions order by minutes desc"
    """
    context = open_topology(topology)
    result = read.sql(context.folder, query, storage=_storage(context), known=kept_tables(context.topology))
    names, rows = result.schema.names, [tuple(row.values()) for row in read.rows(result)]
    if as_csv:
        writer = csv.writer(sys.stdout)
        writer.writerow(names)
        writer.writerows([[text(value, rounded=False) for value in row] for row in rows])
        return
    data = [{name: plain(value) for name, value in zip(names, row, strict=True)} for row in rows] if as_json else None
    emit(data, as_json=as_json, render=lambda: show_rows(names, rows))


def _storage(context: Context) -> str | None:
    return context.topology.shore.storage if context.topology.shore else None


def _json(info: read.TableInfo, declared: Table) -> dict[str, Any]:
    """What is stored, and what the table promises."""
    promises = {name: getattr(declared, name) for name in ("title", "key", "grain", "late", "layout", "retention")}
    stored: dict[str, Any] = msgspec.to_builtins(info)
    return stored | promises
