"""What the commands of ``fairlead acl`` have in common: which sites are meant, and how lines of a plan are printed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated

import typer
from rich.markup import escape

from acl import show
from fairlead.commands.context import Context
from fairlead.console import console, errors
from fairlead.errors import UnknownNameError

SitesOption = Annotated[
    list[str] | None, typer.Option("--site", "-s", help="Only this site; may be repeated. Default: all.")
]
_STYLES = {"add": "green", "remove": "red", "alone": "dim", "error": "yellow", "plain": ""}


def named(context: Context, sites: list[str] | None) -> tuple[str, ...]:
    """The sites that are meant, in the topology's order.

    Raises:
        UnknownNameError: the topology has no such site.
    """
    for site in sites or ():
        if site not in context.topology.sites:
            raise UnknownNameError("site", site, context.topology.sites)
    return tuple(site for site in context.topology.sites if not sites or site in sites)


def progress(*, quiet: bool) -> Callable[[str, str], None]:
    """What tells, site by site, what is being done; nothing when ``quiet``."""

    def tell(site: str, text: str) -> None:
        if not quiet:
            errors.print(f"{site}: {escape(text)}", soft_wrap=True)

    return tell


def print_lines(lines: Iterable[show.Line]) -> None:
    """Lines of a plan in their colours."""
    for text, style in lines:
        console.print(escape(text), style=_STYLES[style], soft_wrap=True)
