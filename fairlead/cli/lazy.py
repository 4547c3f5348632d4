"""A group of commands whose modules are imported only when they are used, because some import Spark.

Its ``--help`` shows the one-line helps given with the entries; a test compares them with the commands' own.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple, cast

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group


class Entry(NamedTuple):
    """A command that is not imported yet.

    Where its function or typer application is, the first line of its help, and the panel of the group's help that lists
    it.
    """

    module: str
    attribute: str
    help: str
    panel: str


def load(name: str, entry: Entry) -> Any:
    """Import a command's function or a group's application, and return typer's command object for it."""
    found = getattr(import_module(entry.module), entry.attribute)
    holder = typer.Typer(add_completion=False, rich_markup_mode="rich")
    if isinstance(found, typer.Typer):
        holder.add_typer(found, name=name)
    else:
        holder.command(name)(found)
    holder.callback()(_nothing)  # without a callback, typer makes no group for one command
    return get_group(holder).commands[name]


def lazy_group(entries: Mapping[str, Entry]) -> type[TyperGroup]:
    """Make the class of a group with these commands, in this order; for ``typer.Typer(cls=...)``."""

    class LazyGroup(TyperGroup):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            for name, entry in entries.items():
                self.add_command(
                    TyperCommand(name, help=entry.help, rich_help_panel=entry.panel), name
                )  # enough for the list of commands

        def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
            name, command, rest = super().resolve_command(ctx, args)
            if name is not None and name in entries:
                command = load(name, entries[name])
            return name, command, rest

    return cast("type[TyperGroup]", LazyGroup)


def _nothing() -> None:
    """Do nothing: the callback that makes typer build a group."""
