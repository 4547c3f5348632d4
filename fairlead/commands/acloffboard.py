"""``fairlead acl offboard``: take a customer or user that has left the topology off the clusters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from fairlead.commands.aclshared import SitesOption, named, progress
from fairlead.commands.context import DEFAULT_TOPOLOGY, JsonOption, TopologyOption, open_topology
from fairlead.console import console, emit

if TYPE_CHECKING:  # what starts sites is loaded where it is needed
    from acl.offboarding import Leftover


def offboard(
    user: Annotated[str, typer.Argument(help="A customer or user that the topology does not name any more.")],
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    site: SitesOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Take it away; without this it is only shown.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Take away what a user has left behind at each site: rules, quotas and its password. Its feed's records stay.

    Example: fairlead acl offboard ducks --yes
    """
    from acl import offboarding
    from fairlead.local.sites import LocalSites

    context = open_topology(topology)
    offboarding.check_leaves(context.topology, user)
    found = offboarding.look(context.directory, user, named(context, site))
    results = found
    if yes:
        local, tell = LocalSites(context.folder), progress(quiet=as_json)
        results = offboarding.take_off(context.topology, context.directory, local, user, found, tell)
    emit(
        {"applied": yes, "user": user, "sites": [_builtins(one) for one in found]},
        as_json=as_json,
        render=lambda: _show(user, found, yes=yes),
    )
    offboarding.check_complete(results)


def _show(user: str, found: Sequence[Leftover], *, yes: bool) -> None:
    table = Table("site", "rules", "quotas", "can log in", "")
    for one in found:
        numbers = (str(len(one.rules)), str(len(one.quotas)), "yes" if one.login else "no")
        table.add_row(one.site, *(("", "", "") if one.error else numbers), escape(one.error.what) if one.error else "")
    console.print(table)
    if not yes and not all(one.is_empty for one in found):
        console.print(f"nothing was changed; --yes takes this away. The records of feeds.{user} stay in any case.")


def _builtins(one: Leftover) -> dict[str, object]:
    return {
        "site": one.site,
        "rules": [str(rule) for rule in one.rules],
        "quotas": {quota.key: quota.old for quota in one.quotas},
        "can_log_in": one.login,
        "error": one.error.what if one.error else None,
    }
