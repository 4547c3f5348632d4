"""Write ``docs/tables/``: every Delta table with its grain, key, late-data rule, layout and columns, from the code.

python -m tools.table_reference
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa

from shore.paths import CUSTOMERS
from shore.tables import TABLES, Table
from shore.tables.catalogue import KEPT_BY
from shore.tables.feeds import CUSTOMER_FEED
from shore.tables.graph import DERIVED
from shore.tables.model import KEPT

FOLDER: Final = Path(__file__).parents[1] / "docs" / "tables"
CUSTOMER: Final = f"{CUSTOMERS}NAME"


class ReferencePage(NamedTuple):
    """One page of the reference, with tables about one subject."""

    title: str
    tables: tuple[str, ...]


PAGES: Final = {
    "readings": ReferencePage("Readings and devices", ("readings", "readings_rejected", "quality")),
    "conditions": ReferencePage(
        "Conditions and excursions",
        ("conditions", "excursions", "excursion_parts", "mkt", "outlook", "cold_treatments"),
    ),
    "alerts": ReferencePage("Alerts", ("alerts", "alerts_ashore", "alerts_now")),
    "containers": ReferencePage("Containers and custody", ("containers_now", "custody", "custody_entries")),
    "ships": ReferencePage(
        "Ships and ports",
        (
            "port_calls",
            "schedules",
            "voyages",
            "geofence_visits",
            "ships_now",
            "dock_movements",
            "events",
            "positions",
            "environment",
            "digests",
            "sites",
            "owners",
            "geofences",
        ),
    ),
    "bookings": ReferencePage(
        "Bookings and feeds", ("shipments", "milestones", "bookings", "booking_changes", "feeds", CUSTOMER)
    ),
}


def pages() -> dict[str, str]:
    """Return every page's Markdown, by the name of its file. Raises ``LookupError`` if a table is on no page."""
    tables = {**TABLES, CUSTOMER: CUSTOMER_FEED}
    if missing := tables.keys() - {name for page in PAGES.values() for name in page.tables}:
        raise LookupError(f"no page of docs/tables has {', '.join(sorted(missing))}")
    found = {f"{name}.md": _page(page, tables) for name, page in PAGES.items()}
    return found | {"graph.md": graph_page()}


def graph_page() -> str:
    """Return the page with the graph of tables, as Mermaid text and as a table."""
    jobs = {table: job for job, names in KEPT_BY.items() for table in names}
    derived = {each.table.name: each.inputs for each in DERIVED}
    lines = [
        "# The graph of tables",
        "",
        "<!-- Made by `python -m tools.table_reference`. Do not edit. -->",
        "",
        "What each table is computed from (`shore/tables/graph.py`). Tables on the left come from the logs. GitHub and",
        "many editors draw the text below.",
        "",
        "```mermaid",
        "flowchart LR",
    ]
    lines += [f"    {source} --> {name}" for name, inputs in derived.items() for source in inputs]
    lines += ["```", "", "| table | job | computed from |", "|---|---|---|"]
    for name in TABLES:
        sources = ", ".join(f"`{source}`" for source in derived.get(name, ()))
        origin = "the topology" if name in ("sites", "owners", "geofences") else "logs"
        lines.append(f"| `{name}` | {jobs.get(name, 'each run')} | {sources or origin} |")
    return "\n".join(lines) + "\n"


def write() -> None:
    """Write all pages."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


def _page(page: ReferencePage, tables: dict[str, Table]) -> str:
    lines = [
        f"# Tables: {page.title.lower()}",
        "",
        "<!-- Made by `python -m tools.table_reference`. Do not edit. -->",
        "",
        "[Tables](../tables.md) says which table answers what, and how to read them. Times are UTC.",
    ]
    for name in page.tables:
        lines += ["", *_section(name, tables[name])]
    return "\n".join(lines) + "\n"


def _section(name: str, table: Table) -> list[str]:
    promises = [
        ("Grain", table.grain),
        ("Key", ", ".join(f"`{column}`" for column in table.key)),
        ("Late data", table.late),
        ("Layout", table.layout),
    ]
    if table.retention != KEPT:
        promises.append(("Retention", table.retention))
    lines = [f"## {name}", "", f"{table.title}.", ""]
    lines += [f"- **{promise}**: {text}" for promise, text in promises]
    lines += ["", "| column | type | meaning | unit |", "|---|---|---|---|"]
    for column in table.columns:
        meaning = column.comment.replace("<", "&lt;").replace("|", "\\|")
        lines.append(f"| `{column.name}` | {_type(column.type)} | {meaning} | {column.unit} |")
    return lines


def _type(arrow: pa.DataType) -> str:
    """Return the type's name in SQL, escaped for Markdown."""
    if pa.types.is_list(arrow):
        return f"array&lt;{_type(arrow.value_type)}>"
    if pa.types.is_struct(arrow):
        return f"struct&lt;{', '.join(f'{field.name}: {_type(field.type)}' for field in arrow)}>"
    names = {"int64": "bigint", "int32": "int", "bool": "boolean"}
    return names.get(str(arrow), "timestamp" if pa.types.is_timestamp(arrow) else str(arrow))


if __name__ == "__main__":
    write()
