"""How commands print: one console for results, one for progress and errors, and JSON for programs.

Results go to standard output, everything else to standard error, so that ``--json`` output can be piped. Colours are
off when standard output is not a terminal (rich checks that) or ``NO_COLOR`` is set.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from fairlead.errors import FairleadError, UnconfirmedError
from fairlead.plan import LineStyle, PlanLine

_CONTROL: Final = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"  # escape sequences begin with one of these
    r"|\r(?!\n)"
    r"|[\u200e\u200f\u2028-\u202e\u2066-\u2069]"  # change the direction of text, or begin a line
)


def printable(text: str) -> str:
    """Replace every character that can control a terminal; keep tabs and line ends."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


class SafeConsole(Console):
    """A console that replaces control characters, because commands print records, names and errors of others.

    Colours come from rich as styles, not as text, so they stay. Each text is written once, also at a Ctrl-C.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(highlight=False, **settings)

    def print(self, *objects: Any, **settings: Any) -> None:
        """Print as rich does. If Ctrl-C comes while the text is written, it is not written again with the next one."""
        try:
            super().print(*objects, **settings)
        except KeyboardInterrupt:
            with self.capture():  # empties the buffer, in which rich leaves the text
                pass
            raise

    def render_str(self, text: str, **settings: Any) -> Text:
        """Make rich's ``Text`` of a string, without control characters."""
        return super().render_str(printable(text), **settings)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Render anything as rich does, without control characters in its text."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


class Output:
    """Standard output for finished text such as JSON and CSV: exact for a program, safe on a terminal."""

    def write(self, text: str) -> None:
        """Print text; replace control characters if standard output is a terminal."""
        sys.stdout.write(printable(text) if sys.stdout.isatty() else text)

    def flush(self) -> None:
        """Flush standard output."""
        sys.stdout.flush()


console = SafeConsole()
errors = SafeConsole(stderr=True)
output = Output()


class Consent:
    """Decides whether a command may carry out its plan. Commands that change a cluster, files or custody must use it.

    Create it first in the command, before anything is read or connected to. ``--dry-run`` only shows the plan;
    ``--yes`` carries it out. Without either, a person at a terminal sees the plan and must confirm it. ``--dry-run``
    wins over ``--yes``.

    Raises:
        UnconfirmedError: neither option was given and nobody can be asked: no terminal, or ``--json``.
    """

    def __init__(self, *, yes: bool, dry_run: bool, as_json: bool = False) -> None:
        self.dry_run = dry_run
        self._yes = yes
        self._as_json = as_json
        if yes or dry_run:
            return
        terminal = errors.is_terminal and sys.stdin.isatty()
        if as_json or not terminal:
            why = "nobody is asked with --json" if terminal else "there is no terminal to ask at"
            raise UnconfirmedError(
                f"this command changes something, and {why}; nothing was changed",
                hint="--yes does it without asking; --dry-run shows what it would do",
            )

    def given(self, show: Callable[[Console], None]) -> bool:
        """Return whether to carry out the plan that ``show`` prints. Call it once, for a plan that has steps."""
        if self.dry_run or self._yes:
            return not self.dry_run
        show(errors)
        try:
            return typer.confirm("Do it?", err=True)
        except typer.Abort:  # Ctrl-C instead of an answer
            errors.print()
            raise KeyboardInterrupt from None

    def agreed(self, plan: Sequence[str]) -> bool:
        """Return whether to carry out a plan given as sentences; print it as the command's result if not."""
        if self.given(lines(plan)):
            return True
        body = {"applied": False, "plan": plan}
        emit(body, as_json=self._as_json, render=lambda: self.unchanged(lines(plan)))
        return False

    def unchanged(self, show: Callable[[Console], None]) -> None:
        """Print that the plan was not carried out; with ``--dry-run`` print the plan first."""
        if not self.dry_run:
            console.print("Nothing was changed.")
            return
        show(console)
        console.print("Nothing was changed. To do it, run the same command without --dry-run.")


def lines(plan: Sequence[str]) -> Callable[[Console], None]:
    """Return a function that prints a plan given as sentences; for ``Consent``."""

    def show(on: Console) -> None:
        for line in plan:
            on.print(escape(line), soft_wrap=True)

    return show


_STYLES: Final[Mapping[LineStyle, str]] = {
    LineStyle.STEP: "bold",
    LineStyle.DETAIL: "",
    LineStyle.NOTE: "yellow",
    LineStyle.PLAIN: "",
    LineStyle.ADD: "green",
    LineStyle.REMOVE: "red",
    LineStyle.UNTOUCHED: "dim",
    LineStyle.ERROR: "yellow",
}


def print_plan(plan: Iterable[PlanLine], on: Console) -> None:
    """Print the lines of a plan in their colours."""
    for text, style in plan:
        on.print(escape(text), style=_STYLES[style], soft_wrap=True)


def print_notes(notes: Iterable[str]) -> None:
    """Print the notes of a plan that was carried out."""
    for note in notes:
        console.print(f"[yellow]note:[/] {escape(note)}", soft_wrap=True)


@contextmanager
def telling(*, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows text on one changing line of the terminal; without a terminal it prints nothing."""
    if quiet or not errors.is_terminal:
        yield lambda what: None
        return
    with errors.status("") as status:
        yield lambda what: status.update(escape(what))


def site_progress(*, quiet: bool) -> Callable[[str, str], None]:
    """Return a function that prints progress at a site, one line each; it prints nothing when ``quiet``."""

    def tell(site: str, text: str) -> None:
        if not quiet:
            errors.print(f"{site}: {escape(text)}", soft_wrap=True)

    return tell


def uncut(table: Table, *whole: str) -> Table:
    """Return the table, made so that a narrow terminal cuts no cell off.

    Args:
        whole: Headings of columns with what people copy. The other columns give way to them, the widest first.
    """
    for column in table.columns:
        column.no_wrap = column.no_wrap or column.header in whole
        column.overflow = "ellipsis" if column.no_wrap else "fold"
    return table


def number(count: int | None) -> str:
    """Format a number for people: 1,234; ``-`` for an unknown one."""
    return "-" if count is None else f"{count:,}"


def size(count: int | None) -> str:
    """Format bytes for people: 812 B, 23 kB, 1.4 MB, 2.7 GB; ``-`` for an unknown number."""
    if count is None:
        return "-"
    value, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:,.0f} {unit}" if unit in ("B", "kB") else f"{value:,.1f} {unit}"


def utc_text(time: dt.datetime) -> str:
    """Format a time for a program: ISO 8601 in UTC, with ``Z``."""
    return time.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")


def emit(data: Any, *, as_json: bool, render: Callable[[], None]) -> None:
    """Print a result: ``data`` as JSON for a program, or ``render()`` for a person."""
    if as_json:
        output.write(json.dumps(data, indent=2, default=str) + "\n")
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
