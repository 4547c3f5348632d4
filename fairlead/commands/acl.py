"""``fairlead acl``: what the access rules of each site are, should be, and why."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from acl import apply as applying
from acl import show
from acl.compile import all_left_out
from acl.explain import Answer
from acl.explain import explain as explain_access
from acl.rules import Operation
from acl.users import create_missing
from fairlead.commands.context import DEFAULT_TOPOLOGY, Context, JsonOption, TopologyOption, open_topology
from fairlead.console import console, emit, errors
from fairlead.errors import ConfigurationError, ExitCode, UnknownNameError

app = typer.Typer(
    help="Who may do what with which topic: plan, apply, explain, and find what someone else changed.",
    no_args_is_help=True,
)
SitesOption = Annotated[
    list[str] | None, typer.Option("--site", "-s", help="Only this site; may be repeated. Default: all.")
]
_STYLES = {"add": "green", "remove": "red", "alone": "dim", "error": "yellow", "plain": ""}


@app.command()
def plan(topology: TopologyOption = DEFAULT_TOPOLOGY, site: SitesOption = None, as_json: JsonOption = False) -> None:
    """Show what each site would change, and change nothing.

    Example: fairlead acl plan --site tokyo
    """
    context = open_topology(topology)
    made = applying.plan_topology(context.topology, applying.admin_stores(context.directory), site or None)

    def render() -> None:
        _lines(show.tell(made))
        for note in dict.fromkeys(
            note for name in _named(context, site) for note in all_left_out(context.topology, name)
        ):
            console.print(f"[yellow]no rule for[/] {note.user} {note.permission} {note.stream}: {escape(note.why)}")
        console.print(show.totals(made))

    emit(made.to_builtins(), as_json=as_json, render=render)
    if made.unread:
        raise typer.Exit(ExitCode.UNAVAILABLE)


@app.command()
def apply(
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    site: SitesOption = None,
    create_users: Annotated[
        bool,
        typer.Option(
            "--create-users",
            help="First make missing SCRAM users at sites outside this machine; "
            "passwords come from FAIRLEAD_SECRET_<SITE>_<USER>.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Make the rules of each site what the topology says. Doing it twice changes nothing the second time.

    Rules of users that Fairlead does not know are left alone. A site that is away is reported, the others are done.

    Example: fairlead acl apply
    """
    context = open_topology(topology)
    made: dict[str, tuple[str, ...]] = {}
    if create_users:
        outside = [name for name in _named(context, site) if context.topology.sites[name].kafka is not None]
        if not outside:
            raise ConfigurationError(
                "no site of this topology is outside this machine",
                hint="leave --create-users out: fairlead up makes users",
            )
        made = {name: create_missing(context.topology, context.directory, name) for name in outside}

    def progress(name: str, text: str) -> None:
        errors.print(f"{name}: {escape(text)}")

    results = applying.apply_sites(
        context.topology, applying.admin_stores(context.directory), site or None, None if as_json else progress
    )

    def render() -> None:
        table = Table("site", "added", "removed", "kept", "left alone", "")
        for result in results:
            numbers = (result.added, result.removed, result.kept, result.left_alone)
            table.add_row(result.site, *map(str, numbers), escape(result.error.what) if result.error else "done")
        console.print(table)
        for name, users in made.items():
            console.print(f"{name}: users made: {', '.join(users) or 'none'}")

    body = [
        {
            **{name: getattr(result, name) for name in ("site", "added", "removed", "kept", "left_alone")},
            "users_created": made.get(result.site, ()),
            "error": result.error.what if result.error else None,
        }
        for result in results
    ]
    emit(body, as_json=as_json, render=render)
    applying.check_complete(results)


@app.command()
def drift(topology: TopologyOption = DEFAULT_TOPOLOGY, site: SitesOption = None, as_json: JsonOption = False) -> None:
    """Find rules that are missing or that someone else made. Ends with 1 when there are any, 4 when a site is away.

    Example: fairlead acl drift --json
    """
    context = open_topology(topology)
    found = applying.plan_topology(context.topology, applying.admin_stores(context.directory), site or None)
    emit(
        {"drift": not found.is_empty, **found.to_builtins()},
        as_json=as_json,
        render=lambda: _lines(show.tell_drift(found)),
    )
    if not found.is_empty:
        raise typer.Exit(ExitCode.FAILED)
    if found.unread:
        raise typer.Exit(ExitCode.UNAVAILABLE)


@app.command()
def explain(
    user: Annotated[str, typer.Argument(help="A customer, a user, or a service such as bridge.")],
    topic: Annotated[str, typer.Argument(help="A topic, for example feeds.ducks.")],
    operation: Annotated[str | None, typer.Argument(help="READ, WRITE, CREATE, … Default: READ and WRITE.")] = None,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    site: Annotated[str | None, typer.Option("--site", "-s", help="Only this site.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Say at which sites a user may do something with a topic, and why; or why not.

    This is what the topology says; fairlead acl drift tells whether the clusters agree.

    Example: fairlead acl explain ducks feeds.ducks READ
    """
    context = open_topology(topology)
    answers = explain_access(context.topology, user, topic, _operation(operation), site)

    def render() -> None:
        shown: dict[tuple[tuple[str, ...], tuple[str, ...], str, bool], list[str]] = {}
        for answer in answers:
            generic = tuple(text.replace(f"site {answer.site}", "this site") for text in answer.because)
            shown.setdefault((answer.rules, generic, answer.operation, answer.allowed), []).append(answer.site)
        for (rules, because, what, allowed), sites in shown.items():
            verdict = "[green]may[/]" if allowed else "[red]may not[/]"
            console.print(f"{user} {verdict} {what} {topic} at {', '.join(sites)}")
            for text in because:
                console.print(f"    because {escape(text)}")
            for rule in rules:
                console.print(f"    by rule {escape(rule)}")

    emit([_builtins(answer) for answer in answers], as_json=as_json, render=render)


def _builtins(answer: Answer) -> dict[str, object]:
    body: dict[str, object] = msgspec.to_builtins(answer)
    return body


def _operation(text: str | None) -> Operation | None:
    if text is None:
        return None
    try:
        return Operation(text.upper())
    except ValueError:
        raise UnknownNameError("operation", text, Operation) from None


def _named(context: Context, sites: list[str] | None) -> tuple[str, ...]:
    for site in sites or ():
        if site not in context.topology.sites:
            raise UnknownNameError("site", site, context.topology.sites)
    return tuple(site for site in context.topology.sites if not sites or site in sites)


def _lines(lines: Iterable[show.Line]) -> None:
    for text, style in lines:
        console.print(escape(text), style=_STYLES[style], soft_wrap=True)
