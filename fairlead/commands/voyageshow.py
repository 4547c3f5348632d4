"""What a voyage shows while it sails: a line of progress where somebody watches, lines of their own otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from fairlead.console import errors

if TYPE_CHECKING:
    from simulators.player import Progress as Sailing
    from simulators.voyage import Course


@contextmanager
def telling(*, quiet: bool) -> Iterator[Callable[[str], None]]:
    """What is being done, on one line where somebody watches and on lines of their own otherwise."""
    if quiet:
        yield lambda text: None
    elif errors.is_terminal:
        with errors.status("") as shown:
            yield lambda text: shown.update(escape(text))
    else:
        yield lambda text: errors.print(escape(text))


@contextmanager
def sailing(trip: Course, *, quiet: bool, steerable: bool) -> Iterator[Callable[[Sailing], None]]:
    """Where the voyage is. ``steerable``: say which keys there are."""
    if quiet:
        yield lambda _: None
        return
    if not errors.is_terminal:
        said: list[str] = []

        def say(now: Sailing) -> None:
            if now.phase != "publishing" and now.phase not in said[-1:]:
                said.append(now.phase)
                errors.print(escape(f"{now.sim_time:%d %b %H:%M} {now.published:>7,} published  {now.phase}"))

        yield say
        return
    if steerable:
        errors.print("[dim]space pauses and goes on, q ends[/]")
    columns = (SpinnerColumn(), TextColumn("{task.fields[when]}"), BarColumn(), TextColumn("{task.description}"))
    with Progress(*columns, TimeElapsedColumn(), console=errors) as progress:
        task = progress.add_task("", total=trip.expected_messages(), when="")

        def show(now: Sailing) -> None:
            trouble = "".join(f"; {site}: {why}" for site, why in now.troubles.items())
            text = f"{now.published:,} published, {now.phase}{trouble}"
            progress.update(task, completed=now.published, description=escape(text), when=f"{now.sim_time:%d %b %H:%M}")

        yield show
