"""``docs/cli-reference.md``: every command, argument and option, from the functions that typer calls."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from enum import Enum
from importlib import import_module
from typing import Any, Final, NamedTuple

import typer
from typer.models import ArgumentInfo, OptionInfo
from typer.utils import get_params_from_function

from fairlead import cli
from handbook.functions import commands_of, option_names, takes
from handbook.markdown import cell, code, generated_by, plain, table

PAGE: Final = "cli-reference.md"
_ABOUT: Final = (
    "Every command with its arguments and options, as `fairlead COMMAND --help` (`-h`) shows them. What they are for, "
    "exit codes and the environment: [the command line](cli.md)."
)
_NAMES: Final = {"int": "N", "float": "NUMBER", "str": "TEXT", "Path": "PATH"}


class Parameter(NamedTuple):
    """An argument or option. ``names`` as typed; ``value`` is empty for a flag; ``default`` is empty for none."""

    names: tuple[str, ...]
    value: str
    default: str
    required: bool
    repeated: bool
    help: str
    variable: str  # of the environment


class Command(NamedTuple):
    """One command; ``name`` has its group's name in front. ``text`` is its whole help."""

    name: str
    text: str
    arguments: tuple[Parameter, ...]
    options: tuple[Parameter, ...]


def commands() -> Iterator[Command]:
    """All of them, in the order of ``fairlead --help``; a group stands before what is in it."""
    for name, entry in cli.COMMANDS.items():
        found = getattr(import_module(entry.module), entry.attribute)
        if not isinstance(found, typer.Typer):
            yield _command(name, found)
            continue
        callback = found.registered_callback and found.registered_callback.callback
        if callback and get_params_from_function(callback):
            yield _command(name, callback)
        else:
            yield Command(name, entry.help, (), ())
        for own, function in commands_of(found):
            yield _command(f"{name} {own}", function)


def page() -> str:
    """The whole page."""
    parts = [generated_by(__name__), "# Command reference", _ABOUT]
    return "\n\n".join([*parts, *(_section(command) for command in commands())]) + "\n"


def _command(name: str, function: Callable[..., Any]) -> Command:
    arguments: list[Parameter] = []
    options: list[Parameter] = []
    for parameter in get_params_from_function(function).values():
        info = parameter.default
        if not isinstance(info, OptionInfo | ArgumentInfo) or info.hidden:
            continue
        (options if isinstance(info, OptionInfo) else arguments).append(
            _parameter(parameter.name, parameter.annotation, info)
        )
    return Command(name, inspect.cleandoc(function.__doc__ or ""), tuple(arguments), tuple(options))


def _parameter(name: str, annotation: Any, info: OptionInfo | ArgumentInfo) -> Parameter:
    kind, repeated = takes(annotation)
    required = info.default is ...
    default = "" if required or info.default is None or info.show_default is False else _shown(info.default)
    variable = info.envvar if isinstance(info.envvar, str) else ", ".join(info.envvar or ())
    metavar = (info.metavar or "").strip("[].") or _value(kind, info)
    if isinstance(info, ArgumentInfo):
        metavar = metavar if info.metavar else name.upper()
        return Parameter((metavar,), _value(kind, info), default, required, repeated, info.help or "", variable)
    flag = kind is bool
    return Parameter(
        tuple(each for each in option_names(name, info, kind) if each.startswith("-")),
        "" if flag else metavar,
        "" if flag and not info.default else default,
        required,
        repeated,
        info.help or "",
        variable,
    )


def _value(kind: Any, info: OptionInfo | ArgumentInfo) -> str:
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "|".join(str(each.value) for each in kind)
    name = _NAMES.get(getattr(kind, "__name__", ""), "TEXT")
    bounds = "" if info.min is None else f" from {info.min:g}"
    return name + bounds + ("" if info.max is None else f" to {info.max:g}")


def _shown(value: Any) -> str:
    return str(value.value) if isinstance(value, Enum) else str(value)


def _section(command: Command) -> str:
    level = "###" if " " in command.name else "##"
    parts = [f"{level} fairlead {command.name}"]
    runs = bool(command.arguments or command.options)
    if runs:
        parts.append(f"    {_usage(command)}")
    for paragraph in re.split(r"\n{2,}", command.text):
        text = _plain(paragraph)
        if paragraph.startswith("Example:"):
            line = f"    {text.removeprefix('Example: ').strip()}"
            if parts[-1].startswith("For example:"):
                parts[-1] += f"\n{line}"
            else:
                parts.append(f"For example:\n\n{line}")
        else:
            parts.append(plain(text))
    if command.arguments:
        rows = ([code(each.names[0]), _default(each), _help(each)] for each in command.arguments)
        parts.append(table(("argument", "default", "meaning"), rows))
    if command.options:
        rows = (
            [", ".join(map(code, each.names)), code(each.value), _default(each), _help(each)]
            for each in command.options
        )
        parts.append(table(("option", "value", "default", "meaning"), rows))
    return "\n\n".join(parts)


def _usage(command: Command) -> str:
    words = ["fairlead", command.name]
    if command.options:
        words.append("[OPTIONS]")
    for each in command.arguments:
        word = each.names[0] + ("..." if each.repeated else "")
        words.append(word if each.required else f"[{word}]")
    return " ".join(words)


def _default(each: Parameter) -> str:
    return "required" if each.required else code(each.default)


def _help(each: Parameter) -> str:
    text = cell(_plain(each.help))
    if each.repeated and "-" in each.names[0][:1] and "more than once" not in text and "repeated" not in text:
        text += " May be given more than once."
    return text + (f" Environment: `{each.variable}`." if each.variable else "")


def _plain(text: str) -> str:
    """Without rich's markup."""
    return re.sub(r"\[(?:bold|/|dim|italic|/bold)\]", "", text).replace("\\[", "[")
