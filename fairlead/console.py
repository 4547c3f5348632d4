"""How commands print: one console for answers, one for progress and errors, and JSON where a program reads.

Answers go to standard output, everything else to standard error, so that ``--json`` output can be piped. Colours are
off when standard output is no terminal (rich sees to that) or ``NO_COLOR`` is set.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


def confirmed(show: Callable[[], None], *, yes: bool, as_json: bool, dry_run: bool = False) -> bool:
    """Whether a plan is to be carried out: told so by ``--yes``, or by a person who is shown it and asked."""
    return not dry_run and (yes or (not as_json and asked(show)))


def unchanged(*, dry_run: bool = False) -> None:
    """Say that a plan was only shown, and how to have it carried out."""
    again = "without --dry-run" if dry_run else "with --yes"
    console.print(f"Nothing was changed. To do it, run the same command {again}.")


@contextmanager
def telling(*, quiet: bool) -> Iterator[Callable[[str], None]]:
    """While inside, what the given function is told stands on one line of a terminal that changes; else nowhere."""
    if quiet or not errors.is_terminal:
        yield lambda what: None
        return
    with errors.status("") as status:
        yield lambda what: status.update(escape(what))


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
