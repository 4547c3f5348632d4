"""Commands that can only be completed: typer's, made of ``commands.json`` and without the modules that do the work."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import typer

from fairlead.completion import values
from fairlead.lazy import Entry, as_command, load

FILE = Path(__file__).with_name("commands.json")
IN_TOPOLOGY = ("site", "customer", "user", "stream", "link", "port")


def command(name: str, entry: Entry) -> Any:
    """A command or group of ``commands.json``; the real one where that does not have it."""
    about = _read()["commands"].get(name)
    if about is None:
        return load(name, entry)
    if "commands" not in about:
        return as_command(name, _function(about))
    group = typer.Typer(help=about["help"], invoke_without_command=bool(about["params"]))
    group.callback()(_function(about))
    for each, said in about["commands"].items():
        group.command(each)(_function(said))
    return as_command(name, group)


def offers(kind: str, topology: str | None = None) -> list[str]:
    """All names of a kind that may be offered."""
    if kind == "topology":
        return values.topologies()
    if kind == "scenario":
        return values.scenarios()
    known: list[str] = _read()["values"].get(kind, [])
    here = values.in_topology(kind, topology) if kind in IN_TOPOLOGY else []
    return list(dict.fromkeys([*known, *here]))


def _function(about: Mapping[str, Any]) -> Callable[..., None]:
    """A function with the signature that typer needs to see; it is never called."""

    def nothing(**_: Any) -> None:
        raise AssertionError("this command can only be completed")

    parameters = [_parameter(each) for each in about["params"]]
    nothing.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    nothing.__annotations__ = {each.name: each.annotation for each in parameters}
    nothing.__doc__ = about["help"]
    return nothing


def _parameter(about: Mapping[str, Any]) -> inspect.Parameter:
    kind: str = about["kind"]
    one: Any = {"flag": bool, "file": Path}.get(kind, str)
    settings: dict[str, Any] = {"help": about["help"]}
    if kind not in ("flag", "file", "text"):
        settings["autocompletion"] = _completer(kind, about.get("choices"))
    if about["flags"]:
        default = typer.Option(False if kind == "flag" else None, *about["flags"], **settings)
    else:
        default = typer.Argument(None, **settings)
    annotation = one if kind == "flag" else list[one] | None if about["many"] else one | None
    return inspect.Parameter(about["name"], inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _completer(kind: str, choices: list[str] | None) -> Callable[..., list[str]]:
    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        # A topology that stands after the cursor is not known yet; then it is the usual one.
        chosen = ctx.params.get("topology")
        found = choices if choices is not None else offers(kind, chosen if isinstance(chosen, str) else None)
        return [each for each in found if each.startswith(incomplete)]

    return complete


@cache
def _read() -> dict[str, Any]:
    try:
        read: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    except FileNotFoundError:  # while it is made for the first time
        return {"commands": {}, "values": {}}
    return read
