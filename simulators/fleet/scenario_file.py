"""Read scenarios from YAML, report every mistake with its line, and list the scenarios that ship with Fairlead.

Shipped scenarios are found by name, others by path.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

import pydantic
from rich.markup import escape
from rich.table import Table

from fairlead.errors import ConfigurationError, UnknownNameError, nearest
from simulators.fleet.scenario import FAULTS, Scenario
from topologies.loader.mistakes import KeyPath, show_path
from topologies.loader.positions import ParsedFile, read_yaml
from topologies.loader.shape import fields_at, keys_of

_SHIPPED = "simulators.scenarios"
FIRST = ("duck-voyage", "harbour")
"""The scenarios to prefer if a topology has several and none is named."""


class ScenarioError(ConfigurationError):
    """A scenario file has mistakes; ``fields["mistakes"]`` lists each as ``file:line: path: problem``."""


def shipped() -> list[str]:
    """Return the names of the scenarios that ship with Fairlead."""
    return sorted(entry.name[:-5] for entry in resources.files(_SHIPPED).iterdir() if entry.name.endswith(".yaml"))


def load(path_or_name: str | Path) -> Scenario:
    """Load a scenario by its shipped name (``duck-voyage``) or from a file (anything with a suffix or a folder).

    Raises:
        UnknownNameError: no shipped scenario has this name.
        ScenarioError: the file cannot be read, is not YAML, or has mistakes; the message lists all of them.
    """
    path = Path(path_or_name)
    if not path.suffix and len(path.parts) == 1:
        if str(path) not in shipped():
            raise UnknownNameError("shipped scenario", str(path), shipped())
        name = f"{path}.yaml"
        return parse(resources.files(_SHIPPED).joinpath(name).read_text(encoding="utf-8"), name)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(
            f"scenario file {path} cannot be read: {error}",
            hint=f"give a YAML file in UTF-8, or a shipped scenario: {', '.join(shipped())}",
        ) from error
    return parse(text, str(path))


def parse(text: str, file: str) -> Scenario:
    """Parse a scenario from YAML text; ``file`` is its name in messages.

    Raises:
        ScenarioError: as for ``load``.
    """
    source = read_yaml(text, file)
    found = [": ".join(filter(None, (f"{file}:{each.line}", each.path, each.problem))) for each in source.mistakes]
    if not isinstance(source.data, dict):
        raise _failed(file, found or [f"{file}:1: expected keys such as name, ships and cargo"])
    try:
        scenario = Scenario.model_validate(source.data)
        if not found:
            return scenario
    except pydantic.ValidationError as error:
        found += [_mistake(source, each["loc"], each["type"], each["msg"]) for each in error.errors()]
    raise _failed(file, found)


def _failed(file: str, mistakes: list[str]) -> ScenarioError:
    count = "1 mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
    return ScenarioError(
        f"scenario {file} has {count}:\n  " + "\n  ".join(mistakes),
        hint="correct the lines named above; simulators/scenarios/duck-voyage.yaml is an example",
        mistakes=mistakes,
    )


def _mistake(source: ParsedFile, loc: KeyPath, kind: str, message: str) -> str:
    # pydantic puts the tag of a fault's union between index and field; the file has no such level.
    path = loc[:2] + loc[3:] if loc[:1] == ("faults",) else loc
    problem = message.removeprefix("Value error, ")
    if kind == "extra_forbidden":
        fault = FAULTS.get(str(loc[2])) if path != loc else None
        known = keys_of(fault) if fault else fields_at(Scenario, path[:-1])
        near = nearest(str(path[-1]), known)
        problem = "unknown key" + (f"; did you mean {near!r}?" if near else "")
    return f"{source.file}:{source.origins.of_key(path).line}: {show_path(path) or '(scenario)'}: {problem}"


def described() -> list[dict[str, Any]]:
    """Return, for each shipped scenario, its name, title, topology, size, description and expectations."""
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
