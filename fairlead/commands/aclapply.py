"""``fairlead acl apply``: make the rules of each site what the topology says, or what a saved plan says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from acl import apply as applying
from acl.guard import parse_share
from acl.saved import PlanFileError, SavedPlan, load
from acl.stale import State
from acl.users import create_missing
from acl.waiting import until_done
from fairlead.commands.aclshared import SitesOption, named
from fairlead.commands.context import DEFAULT_TOPOLOGY, Context, JsonOption, TopologyOption, open_topology
from fairlead.console import console, emit, errors
from fairlead.errors import ConfigurationError

_STATES = {State.NEW: "done", State.BEGUN: "done, begun before", State.DONE: "done before"}


def apply(
    plan: Annotated[
        Path | None,
        typer.Argument(
            metavar="[PLAN]",
            help="A file of fairlead acl plan --out: exactly this is done, or nothing where it is no longer true.",
        ),
    ] = None,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    site: SitesOption = None,
    max_removals: Annotated[
        str,
        typer.Option(
            "--max-removals",
            help="Refuse to remove more than this share of a site's rules (and more than 10).",
            metavar="SHARE",
        ),
    ] = "30%",
    allow_removals: Annotated[bool, typer.Option("--allow-removals", help="Remove as many as the plan says.")] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Go on until sites that are away have returned and are done. Ctrl-C stops.")
    ] = False,
    timeout: Annotated[
        float | None, typer.Option("--timeout", help="Seconds to wait at most, with --wait. Default: for ever.", min=0)
    ] = None,
    create_users: Annotated[
        bool,
        typer.Option(
            "--create-users",
            help="First make missing SCRAM users at sites outside this machine; "
            "passwords come from FAIRLEAD_SECRET_<SITE>_<USER>.",
        ),
    ] = False,
    readmit: Annotated[
        list[str] | None,
        typer.Option(
            "--readmit",
            metavar="USER",
            help="Give a user who is held out by acl rotate --now its rules: all brokers were restarted since, so that "
            "none of its old sessions is left. May be repeated.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make the rules of each site what the topology says. Doing it twice changes nothing the second time.

    Rules of users that Fairlead does not know are left alone. A site that is away is reported, the others are done.

    Example: fairlead acl apply rules.plan --wait
    """
    if timeout is not None and not wait:
        raise ConfigurationError("--timeout says how long --wait waits", hint="give --wait as well")
    share = 1.0 if allow_removals else parse_share(max_removals)
    context = open_topology(topology)
    sites = named(context, site)
    saved = _load(plan, context, site or ()) if plan else None
    made = _create_users(context, sites) if create_users else {}
    shown: dict[str, str] = {}

    def progress(name: str, text: str) -> None:
        if not as_json and shown.get(name) != text:  # a site that stays away is told of once
            shown[name] = text
            errors.print(f"{name}: {escape(text)}")

    def work(some: Sequence[str]) -> Sequence[applying.SiteResult]:
        return applying.apply_sites(
            context.topology,
            applying.admin_stores(context.directory),
            some,
            progress,
            saved=saved.content if saved else None,
            max_removals=share,
            readmit=readmit or (),
        )

    if saved and not as_json:
        _introduce(saved)
    results = tuple(work(sites))
    if wait:
        told: set[tuple[str, ...]] = set()

        def waiting(away: tuple[str, ...]) -> None:
            if not as_json and away not in told:
                told.add(away)
                errors.print(f"waiting for {', '.join(away)}; Ctrl-C stops, applying again goes on")

        results = until_done(work, results, seconds=timeout, on_waiting=waiting)
    _show(results, made, as_json=as_json)
    applying.check_complete(results)


def _load(file: Path, context: Context, sites: Sequence[str]) -> SavedPlan:
    saved = load(file, context.topology.name)
    known = [*(one.site for one in saved.sites), *(one.site for one in saved.unread)]
    if other := [site for site in sites if site not in known]:
        raise PlanFileError(
            f"plan {file} has nothing for {', '.join(other)}: it was made for {', '.join(known)}",
            hint="leave --site out, or make another plan: fairlead acl plan --out",
        )
    return saved


def _create_users(context: Context, sites: Sequence[str]) -> dict[str, tuple[str, ...]]:
    outside = [name for name in sites if not context.topology.sites[name].is_local]
    if not outside:
        raise ConfigurationError(
            "no site of this topology is outside this machine",
            hint="leave --create-users out: fairlead up makes users",
        )
    return {name: create_missing(context.topology, context.directory, name) for name in outside}


def _introduce(saved: SavedPlan) -> None:
    errors.print(f"plan {saved.plan}, made {saved.made:%Y-%m-%d %H:%M} UTC by {escape(saved.by)}")


def _show(results: Sequence[applying.SiteResult], made: dict[str, tuple[str, ...]], *, as_json: bool) -> None:
    def render() -> None:
        table = Table("site", "added", "removed", "kept", "left alone", "")
        for result in results:
            numbers = (result.added, result.removed, result.kept, result.left_alone)
            end = escape(result.error.what) if result.error else _STATES[result.state]
            end += f", but for {', '.join(result.held_out)} (held out)" if result.held_out else ""
            table.add_row(result.site, *map(str, numbers), end)
        console.print(table)
        for name, users in made.items():
            console.print(f"{name}: users made: {', '.join(users) or 'none'}")

    body = [
        {
            **{name: getattr(result, name) for name in ("site", "added", "removed", "kept", "left_alone")},
            "state": result.state.value,
            "users_created": made.get(result.site, ()),
            "held_out": result.held_out,
            "error": result.error.what if result.error else None,
        }
        for result in results
    ]
    emit(body, as_json=as_json, render=render)
