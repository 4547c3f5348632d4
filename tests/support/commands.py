"""List all commands of ``fairlead``, for tests of their options."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fairlead.cli import app as cli
from fairlead.cli.lazy import load


def commands() -> Iterator[tuple[str, Any]]:
    """Return every command and group that typer built, by its full name (``link list``)."""
    for name, entry in cli.COMMANDS.items():
        found = load(name, entry)
        yield name, found
        yield from ((f"{name} {verb}", command) for verb, command in getattr(found, "commands", {}).items())


def options(command: Any) -> dict[str, Any]:
    """Return the options of a command by each of their spellings."""
    return {text: each for each in command.params for text in (*each.opts, *each.secondary_opts) if text[0] == "-"}
