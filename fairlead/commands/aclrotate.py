"""``fairlead acl rotate``: give a user another password, at each site where it has one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from fairlead.commands.aclshared import SitesOption, named, progress
from fairlead.commands.context import DEFAULT_TOPOLOGY, Context, JsonOption, TopologyOption, open_topology
from fairlead.console import console, emit, errors
from fairlead.errors import UnknownNameError

if TYPE_CHECKING:  # what starts sites is loaded where it is needed
    from acl.rotation import Rotated


def rotate(
    user: Annotated[str, typer.Argument(help="A customer, a user, or a service such as bridge; also admin, device.")],
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    site: SitesOption = None,
    now: Annotated[
        bool,
        typer.Option(
            "--now",
            help="The password has leaked: also withdraw the user's rules until every session that is open has ended.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Give a user another password. What is connected goes on; new logins need the new one, which is never printed.

    Fairlead's services go on without an interruption. Cut off at any point, the same command finishes.

    Example: fairlead acl rotate ducks --site los-angeles
    """
    from acl import rotation
    from fairlead.local.sites import LocalSites

    context = open_topology(topology)
    sites = _chosen(context, rotation.sites_of(context.topology, user), user, site)

    local = LocalSites(context.folder)
    results = rotation.rotate(context.topology, context.directory, local, user, sites, progress(quiet=as_json), now=now)
    _show(results, as_json=as_json)
    if now:
        _readmit(context, [result for result in results if result.withdrawn is not None], as_json=as_json)
    rotation.check_complete(results)


def _chosen(context: Context, all_of_it: tuple[str, ...], user: str, sites: list[str] | None) -> tuple[str, ...]:
    chosen = named(context, sites)
    if sites and (strange := [name for name in chosen if name not in all_of_it]):
        raise UnknownNameError(f"site where {user} has a password, named", strange[0], all_of_it)
    return tuple(name for name in chosen if name in all_of_it)


def _show(results: Sequence[Rotated], *, as_json: bool) -> None:
    def render() -> None:
        for result in results:
            end = f"not changed: {result.error.what}" if result.error else f"changed; it is in {result.password_in}"
            console.print(f"{result.site}: {escape(end)}", soft_wrap=True)
            if result.by_hand and not result.error:
                console.print(f"{result.site}: by hand: {escape(result.by_hand)}", soft_wrap=True)

    body = [
        {
            "site": result.site,
            "user": result.user,
            "password_in": result.password_in or None,
            "by_hand": result.by_hand or None,
            "rules_withdrawn": len(result.withdrawn.rules) if result.withdrawn else 0,
            "seconds_until_sessions_end": result.withdrawn.seconds if result.withdrawn else None,
            "error": result.error.what if result.error else None,
        }
        for result in results
    ]
    emit(body, as_json=as_json, render=render)


def _readmit(context: Context, results: Sequence[Rotated], *, as_json: bool) -> None:
    """Wait until the old sessions have ended, site by site, and give the rules back."""
    from acl import rotation

    for result in sorted(results, key=_left):
        withdrawn = result.withdrawn
        if withdrawn is None or result.error is not None:
            continue  # not changed: the rules stay away, so that the old password gives nothing
        if withdrawn.left is None:
            errors.print(
                f"{result.site}: its brokers never end a session (connections.max.reauth.ms is 0). Restart them one by "
                f"one, then fairlead acl apply --site {result.site} --readmit {result.user} gives the rules back.",
                soft_wrap=True,
            )
            continue
        if not as_json:
            errors.print(
                f"{result.site}: the last old session ends in {withdrawn.left:.0f} s at the latest; then {result.user} "
                f"has its rules again. Ctrl-C leaves that to fairlead acl apply: after that time, or at once with "
                f"--readmit {result.user} when all brokers were restarted, which ends all sessions.",
                soft_wrap=True,
            )
        time.sleep(withdrawn.left)  # no broker tells when they have ended
        rotation.readmit(context.topology, context.directory, result)
        if not as_json:
            errors.print(f"{result.site}: {result.user} has its rules again")


def _left(result: Rotated) -> float:
    left = result.withdrawn.left if result.withdrawn else None
    return float("inf") if left is None else left
