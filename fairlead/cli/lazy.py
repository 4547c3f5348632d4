"""A group of commands whose modules are imported only when they are used: one needs Spark, another only an address.

Its ``--help`` comes from the one-line helps that the group is told; a test holds them to what the commands say.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple, cast

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group


class Entry(NamedTuple):
    """A command before it is imported: where its function or typer application is, the first line of its help, and the
    panel of the group's help that lists it."""

    module: str
    attribute: str
    help: str
    panel: str


def load(name: str, entry: Entry) -> Any:
    """Import a command's function or a group's application, and return what typer makes of it."""
    found = getattr(import_module(entry.module), entry.attribute)
    holder = typer.Typer(add_completion=False, rich_markup_mode="rich")
    if isinstance(found, typer.Typer):
        holder.add_typer(found, name=name)
    else:
        holder.command(name)(found)
    holder.callback()(_nothing)  # with one command alone there would be no group to take it from
    return get_group(holder).commands[name]


def lazy_group(entries: Mapping[str, Entry]) -> type[TyperGroup]:
    """The class of a group with these commands, in this order; for ``typer.Typer(cls=...)``."""

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
    """Nothing happens before a command."""
