"""The size of a fleet as tables for the terminal."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from simulators.scale.sizing import Size
from topologies.values import format_rate

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def as_tables(size: Size) -> Group:
    """Return links, sites, costs of a record and notes as tables. Figures that are extrapolated from the modelled boxes
    are marked ``~``."""
    mark = "~" if size.factor > 1 else ""
    head = Text(
        f"{size.containers:,} containers, scenario {size.scenario} on {size.topology}, seed {size.seed}: "
        f"{size.days:.1f} days, a reading every {size.reading_interval_minutes:g} minutes, "
        f"{mark}{sum(size.records.values()):,.0f} records "
        f"({', '.join(f'{count:,.0f} {kind}' for kind, count in size.records.items())})"
    )
    links = _table("Links", "link", "carried by", "records/day", "bytes/day", "fullest day", "of its rate")
    for link in size.links:
        if link.records_per_day == 0:
            continue
        share = "" if link.share_of_rate is None else f"{link.share_of_rate:.2%} of {format_rate(link.rate or 0)}"
        amounts = [
            f"{mark}{link.records_per_day:,.0f}",
            mark + human(link.bytes_per_day),
            mark + human(link.bytes_peak_day),
        ]
        links.add_row(link.name, link.carrier, *amounts, share)
    sites = _table(
        "Sites",
        "site",
        "published/day",
        "stored/day",
        "storage/day",
        "fullest day",
        "kept",
        "logs",
        "bridge",
        "replicator",
    )
    for site in size.sites:
        sites.add_row(
            site.name,
            f"{mark}{site.published_per_day:,.0f}",
            f"{mark}{site.stored_records_per_day:,.0f}",
            mark + human(site.stored_bytes_per_day),
            mark + human(site.stored_bytes_peak_day),
            mark + human(site.kept_bytes),
            f"{mark}{site.logs:,.0f}",
            f"{site.bridge_cores:.2%} of a core",
            f"{site.replicator_cores:.2%} of a core",
        )
    costs = _table("What it is worked out from", "", "value", "known from", "where", numbers=(1,))
    for cost in size.costs:
        costs.add_row(cost.name, f"{cost.value:g} {cost.unit}".strip(), cost.origin, cost.where)
    notes = [
        Text(f"{mark or '-'} {note}" if mark and note.startswith("extrapolated") else f"- {note}")
        for note in size.notes
    ]
    return Group(head, links, sites, costs, *notes)


def human(count: float) -> str:
    """Return bytes in decimal units: ``1.2 MB``."""
    for unit in _UNITS:
        if count < 1000 or unit == _UNITS[-1]:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError("the last unit takes all")


def _table(title: str, *columns: str, numbers: tuple[int, ...] | None = None) -> Table:
    table = Table(title=title, title_justify="left")
    for place, column in enumerate(columns):
        right = place >= 2 - (title == "Sites") if numbers is None else place in numbers
        table.add_column(column, justify="right" if right else "left", no_wrap=place == 0)
    return table
