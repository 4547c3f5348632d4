"""What docs/access.md prints are commands that there are, with arguments that they take."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from fairlead.cli import app
from tests.support.operators_day import PAGE, commands_of, parts_of_the_day

TEXT = PAGE.read_text(encoding="utf-8")


def parse(words: list[str]) -> None:
    """Parse a command line without doing anything; what it does not understand is an error."""
    command: Any = get_command(app)
    name, rest, context = words[0], words[1:], None
    while isinstance(command, TyperGroup):
        context = command.make_context(name, rest, parent=context, ignore_unknown_options=True)
        found, command, rest = command.resolve_command(context, rest)
        name = str(found)
    command.make_context(name, rest, parent=context)


@pytest.mark.parametrize("line", commands_of(TEXT))
def test_a_printed_command_is_one(line: str) -> None:
    parse(shlex.split(line))


def test_what_is_no_command_would_be_noticed() -> None:
    for wrong in ("fairlead acl rotatte x", "fairlead acl plan --oot x", "fairlead acl rotate", "fairlead nothing"):
        with pytest.raises(Exception, match=r"(?i)no such|missing"):
            parse(shlex.split(wrong))


def test_the_day_has_its_five_parts() -> None:
    """Played by ``tests/integration/shore/test_operators_day.py``."""
    day = parts_of_the_day(TEXT)
    assert len(day) == 5 and all(part.commands for part in day.values())
