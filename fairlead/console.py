"""How commands print: one console for answers, one for progress and errors, and JSON where a program reads.

Answers go to standard output, everything else to standard error, so that ``--json`` output can be piped. Colours are
off when standard output is no terminal (rich sees to that) or ``NO_COLOR`` is set.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape

from fairlead.errors import FairleadError

console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)


def asked(show: Callable[[], None]) -> bool:
    """Whether a person at the terminal wants what ``show`` tells done; without a terminal nobody is asked."""
    if not (errors.is_terminal and sys.stdin.isatty()):
        return False
    show()
    return typer.confirm("Do it?", err=True)


def emit(data: Any, *, as_json: bool, render: Callable[[], None]) -> None:
    """Print an answer: ``data`` as JSON for a program, or ``render()`` for a person."""
    if as_json:
        sys.stdout.write(json.dumps(data, indent=2, default=str) + "\n")
    else:
        render()


def show_error(error: FairleadError, *, as_json: bool = False) -> None:
    """Print an error on standard error: what happened and why, then what to do."""
    if as_json:
        body = {"error": type(error).__name__, "what": error.what, "hint": error.hint, "retriable": error.retriable}
        errors.print_json(json.dumps({**body, "fields": error.fields}, default=str))
        return
    errors.print(f"[bold red]error:[/] {escape(error.what)}", soft_wrap=True)
    if error.hint:
        errors.print(f"  [bold]what to do:[/] {escape(error.hint)}", soft_wrap=True)
