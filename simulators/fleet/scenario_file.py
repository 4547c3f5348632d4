"""Read scenarios from YAML, report every mistake with its line, and list the scenarios that ship with Fairlead.

Shipped scenarios are found by name, others by path.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

import pydantic
import yaml
from rich.markup import escape
from rich.table import Table

from fairlead.errors import ConfigurationError, UnknownNameError, nearest
from simulators.fleet import scenario as models
from simulators.fleet.scenario import Scenario
from simulators.network.weather import LinkTrouble

_SHIPPED = "simulators.scenarios"
FIRST = ("duck-voyage", "harbour")
"""The scenarios to prefer if a topology has several and none is named."""


class ScenarioError(ConfigurationError):
    """A scenario file has mistakes; ``fields["mistakes"]`` lists each as ``file:line: path: problem``."""


def shipped() -> list[str]:
    """Return the names of the scenarios that ship with Fairlead."""
    return sorted(entry.name[:-5] for entry in resources.files(_SHIPPED).iterdir() if entry.name.endswith(".yaml"))


def topology_source(scenario: Scenario) -> str:
    """Return the argument with which ``topologies.loader.load.load`` loads a scenario's topology: its name, or the path
    of a topology that ships with the scenarios."""
    own = resources.files("simulators.topologies").joinpath(f"{scenario.topology}.yaml")
    return str(own) if own.is_file() else scenario.topology


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
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise _failed(file, [f"{file}:{line}: not YAML: {error.problem}"]) from error
    except yaml.YAMLError as error:
        raise _failed(file, [f"{file}: not YAML: {error}"]) from error
    except ValueError as error:  # of an impossible date, for example
        raise _failed(file, [f"{file}: a date or number is wrong: {error}"]) from error
    if root is None or not isinstance(data, dict):
        raise _failed(file, [f"{file}:1: expected keys such as name, ships and cargo"])
    try:
        return Scenario.model_validate(data)
    except pydantic.ValidationError as error:
        found = [_mistake(file, root, data, e["loc"], e["type"], e["msg"]) for e in error.errors()]
    raise _failed(file, found)


def _failed(file: str, mistakes: list[str]) -> ScenarioError:
    count = "1 mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
    return ScenarioError(
        f"scenario {file} has {count}:\n  " + "\n  ".join(mistakes),
        hint="correct the lines named above; simulators/scenarios/duck-voyage.yaml is an example",
        mistakes=mistakes,
    )


def _mistake(file: str, root: yaml.Node, data: Any, loc: tuple[int | str, ...], kind: str, message: str) -> str:
    # pydantic puts the tag of a fault's union between index and field; the file has no such level.
    path = [part for i, part in enumerate(loc) if not (i == 2 and loc[0] == "faults")]
    line = _line(root, path)
    problem = message.removeprefix("Value error, ")
    if kind == "extra_forbidden":
        known = _known_keys(path, data)
        near = nearest(str(path[-1]), known) if known else None
        problem = "unknown key" + (f"; did you mean {near!r}?" if near else "")
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
    return f"{file}:{line}: {where or '(scenario)'}: {problem}"


def _line(root: yaml.Node, path: list[int | str]) -> int:
    """Return the line of the deepest node of the path that the file has."""
    node: yaml.Node = root
    line = node.start_mark.line
    for part in path:
        found: yaml.Node | None = None
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if key.value == str(part):
                    found, line = value, key.start_mark.line
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            found = node.value[part]
            line = found.start_mark.line if found is not None else line
        if found is None:
            break
        node = found
    return line + 1


def _known_keys(path: list[int | str], data: Any) -> list[str]:
    """Return the keys that the model allows where an unknown one was found."""
    by_place: dict[tuple[int, str], type[pydantic.BaseModel]] = {
        (1, ""): models.Scenario,
        (3, "ships"): models.ScenarioShip,
        (5, "ships"): models.ScenarioCall,
        (3, "cargo"): models.Lot,
        (3, "links"): LinkTrouble,
        (3, "closures"): models.Closure,
        (3, "blackouts"): models.Blackout,
        (3, "storms"): models.StormAt,
        (3, "expects"): models.Expectation,
        (2, "devices"): models.Devices,
    }
    model = by_place.get((len(path), str(path[0]) if len(path) > 1 else ""))
    if path[0] == "faults" and len(path) == 3 and isinstance(path[1], int):
        model = models.FAULTS.get(str(data["faults"][path[1]].get("kind")))
    return list(model.model_fields) if model else []


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
