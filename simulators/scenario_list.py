"""The scenarios that ship with Fairlead, described for whoever chooses one."""

from __future__ import annotations

from typing import Any

from rich.markup import escape
from rich.table import Table

from simulators.scenario_file import load, shipped


def described() -> list[dict[str, Any]]:
    """Each shipped scenario: name, title, topology, containers, ships, description, and what it expects."""
    return [
        {
            "name": name,
            "title": scenario.title,
            "topology": scenario.topology,
            "containers": scenario.containers,
            "ships": len(scenario.ships),
            "description": " ".join(scenario.description.split()),
            "cuts_links": any(trouble.cuts for trouble in scenario.links),
            "expects": [expected.says for expected in scenario.expects],
        }
        for name, scenario in ((name, load(name)) for name in shipped())
    ]


def as_table(scenarios: list[dict[str, Any]]) -> Table:
    table = Table(title="Scenarios", title_justify="left", show_lines=True)
    for column in ("name", "on", "ships", "boxes", "what happens, and what it expects"):
        table.add_column(column, justify="right" if column in ("ships", "boxes") else "left")
    for one in scenarios:
        expects = "\n".join(f"- {each}" for each in one["expects"])
        story = f"[bold]{escape(one['title'])}[/]\n{escape(expects)}"
        table.add_row(one["name"], one["topology"], str(one["ships"]), str(one["containers"]), story)
    return table
