"""Makes ``fairlead/completion/commands.json``: every command with its options, for completion in the shell.

    .venv/bin/python -m tools.completion

Run it when a command or an option has come, gone or changed its help; a test says so.
"""

from __future__ import annotations

import enum
import inspect
import json
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from typer.models import OptionInfo
from typer.utils import get_params_from_function

from fairlead.cli import COMMANDS
from fairlead.completion.light import FILE
from handbook.functions import commands_of, option_names, takes
from shore.jobs.runner import JOBS
from shore.joins import VIEWS
from shore.tables import TABLES
from topologies.model import DEFAULT_STREAMS

# What a parameter of a name takes, wherever it takes text.
KINDS = {
    "topology": "topology",
    "of": "topology",
    "scenario": "scenario",
    **dict.fromkeys(("site", "sites", "at", "to", "held_by", "a", "b", "source", "target"), "site"),
    "customer": "customer",
    **dict.fromkeys(("user", "readmit"), "user"),
    **dict.fromkeys(("job", "jobs"), "job"),
    **dict.fromkeys(("table", "tables"), "table"),
    "stream": "stream",
    "link": "link",
}
# Those whose name says nothing by itself.
SPECIAL = {("tables", "name"): "table", ("report port", "code"): "port"}


def made() -> str:
    """The text of the file."""
    commands = {name: _entry(name) for name in COMMANDS}
    known = {"job": list(JOBS), "table": sorted([*TABLES, *VIEWS]), "stream": list(DEFAULT_STREAMS)}
    return json.dumps({"commands": commands, "values": known}, indent=1, ensure_ascii=False) + "\n"


def _entry(name: str) -> dict[str, Any]:
    entry = COMMANDS[name]
    found = getattr(import_module(entry.module), entry.attribute)
    if not isinstance(found, typer.Typer):
        return _command(name, found)
    before = found.registered_callback
    own = _command(name, before.callback) if before is not None and before.callback else {"params": []}
    commands = {called: _command(f"{name} {called}", function) for called, function in commands_of(found)}
    return {**own, "help": entry.help, "commands": commands}


def _command(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    text = " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())
    return {"help": text, "params": list(_parameters(name, function))}


def _parameters(command: str, function: Callable[..., Any]) -> Iterator[dict[str, Any]]:
    for each in get_params_from_function(function).values():
        said, (kind, many) = each.default, takes(each.annotation)
        if each.annotation is typer.Context or said.hidden:
            continue
        about = {"name": each.name, "flags": [], "help": said.help or "", **_valued(kind), "many": many}
        if isinstance(said, OptionInfo):
            about["flags"] = list(option_names(each.name, said, kind))
        if about["kind"] == "text":
            about["kind"] = SPECIAL.get((command, each.name), KINDS.get(each.name, "text"))
        yield about


def _valued(kind: Any) -> dict[str, Any]:
    """What a value of a type is: a flag, a file, one of some choices, or text."""
    if kind is bool:
        return {"kind": "flag"}
    if inspect.isclass(kind) and issubclass(kind, enum.Enum):
        return {"kind": "choice", "choices": [str(each.value) for each in kind]}
    return {"kind": "file" if inspect.isclass(kind) and issubclass(kind, Path) else "text"}


def main() -> int:
    FILE.write_text(made(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
