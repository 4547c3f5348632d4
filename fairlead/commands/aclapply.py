"""``fairlead acl apply``: make the rules of each site what the topology says."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from acl import apply as applying
from acl.users import create_missing
from fairlead.commands.aclshared import SitesOption, named
from fairlead.commands.context import DEFAULT_TOPOLOGY, JsonOption, TopologyOption, open_topology
from fairlead.console import console, emit, errors
from fairlead.errors import ConfigurationError


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
        outside = [name for name in named(context, site) if context.topology.sites[name].kafka is not None]
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
