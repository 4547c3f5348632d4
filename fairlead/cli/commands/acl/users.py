"""``fairlead acl rotate`` and ``offboard``: change a user's password, or remove what a departed user left."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from acl.kafka import admin_stores
from fairlead.cli.commands.context import DryRunOption, JsonOption, SitesOption, TopologyOption, YesOption
from fairlead.cli.console import Consent, console, emit, errors, site_progress
from fairlead.errors import UnknownNameError
from topologies.context import DEFAULT_TOPOLOGY, Context, open_topology
from topologies.loader.load import load
from topologies.model import check_sites

if TYPE_CHECKING:
    from acl.rotate import Rotated
    from acl.users import Leftover


def rotate(
    user: Annotated[str, typer.Argument(help="A customer, a user, or a service such as bridge; also admin, device.")],
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    site: SitesOption = None,
    now: Annotated[
        bool,
        typer.Option(
            "--now",
            help="The password has leaked: also revoke the user's ACLs until its open sessions have ended.",
        ),
    ] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Give a user a new password.

    Open connections continue; new logins need the new password, which is never printed. Fairlead's services are not
    interrupted. If interrupted, the same command finishes the change.

    Example: fairlead acl rotate ducks --site los-angeles --yes
    """
    consent = Consent(yes=yes, dry_run=dry_run, as_json=as_json)
    from acl import rotate as rotation
    from fairlead.local.sites import LocalSites

    context = open_topology(topology)
    sites = _chosen(context, rotation.sites_of(context.topology, user), user, site)
    if now:
        rotation.check_may_revoke(user)
    plan = [f"{name}: give {user} another password; sessions that are open go on" for name in sites]
    if now:
        plan = [f"{name}: revoke {user}'s ACLs, give it another password, and wait for its sessions" for name in sites]
    if not consent.agreed(plan):
        return
    local = LocalSites(context.folder)
    results = rotation.rotate(
        context.topology, context.resolver, local, user, sites, site_progress(quiet=as_json), now=now
    )
    _show_rotated(results, as_json=as_json)
    if now:
        results = _readmit(context, results, as_json=as_json)
    rotation.check_complete(results)


def _chosen(context: Context, all_of_it: tuple[str, ...], user: str, sites: list[str] | None) -> tuple[str, ...]:
    chosen = check_sites(context.topology, sites or None)
    if sites and (strange := [name for name in chosen if name not in all_of_it]):
        raise UnknownNameError(f"site where {user} has a password, named", strange[0], all_of_it)
    return tuple(name for name in chosen if name in all_of_it)


def _show_rotated(results: Sequence[Rotated], *, as_json: bool) -> None:
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
            "rules_withdrawn": result.revoked.count if result.revoked else 0,
            "seconds_until_sessions_end": result.revoked.seconds if result.revoked else None,
            "error": result.error.what if result.error else None,
        }
        for result in results
    ]
    emit(body, as_json=as_json, render=render)


def _readmit(context: Context, results: Sequence[Rotated], *, as_json: bool) -> tuple[Rotated, ...]:
    """Wait until the old sessions have ended, site by site, and restore the ACLs; return the results with errors."""
    from acl import rotate as rotation

    done = {result.site: result for result in results}
    for result in sorted(results, key=_left):
        revoked = result.revoked
        if revoked is None or result.error is not None:
            continue  # password not changed: the ACLs stay revoked, so that the old password is of no use
        if revoked.left is None:
            errors.print(
                f"{result.site}: its brokers never end a session (connections.max.reauth.ms is 0, perhaps at one of "
                "their listeners only). Restart them one by "
                f"one, then fairlead acl apply --site {result.site} --readmit {result.user} restores the ACLs.",
                soft_wrap=True,
            )
            continue
        if not as_json:
            errors.print(
                f"{result.site}: the last old session ends within {revoked.left:.0f} s; then the ACLs of "
                f"{result.user} are restored. After Ctrl-C, fairlead acl apply restores them: after that time, "
                f"or at once with --readmit {result.user} when all brokers were restarted, which ends all sessions.",
                soft_wrap=True,
            )
        time.sleep(revoked.left)  # brokers do not report when old sessions have ended
        after = rotation.readmit(lambda: load(context.source), admin_stores(context.resolver), result)
        done[result.site] = after
        if not as_json:
            end = f"are not restored: {escape(after.error.what)}" if after.error else "are restored"
            errors.print(f"{result.site}: the ACLs of {result.user} {end}", soft_wrap=True)
    return tuple(done.values())


def _left(result: Rotated) -> float:
    left = result.revoked.left if result.revoked else None
    return float("inf") if left is None else left


def offboard(
    user: Annotated[str, typer.Argument(help="A customer or user that is no longer in the topology.")],
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    site: SitesOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Remove what a departed user left: ACLs, quotas and password at each site, tokens of its share.

    The records of its feed stay. Tokens are those of the board on this machine.

    Example: fairlead acl offboard ducks --yes
    """
    consent = Consent(yes=yes, dry_run=dry_run, as_json=as_json)
    from acl import users as offboarding
    from board.sharing.tokens import Tokens
    from fairlead.local.sites import LocalSites

    context = open_topology(topology)
    offboarding.check_leaves(context.topology, user)
    found = offboarding.look(context.resolver, user, check_sites(context.topology, site or None))
    shares = Tokens(context.folder)
    ends = shares.known(user)
    results = found
    if applied := consent.given(lambda on: _show_leftovers(user, found, ends, on)):
        shares.revoke(user)
        local, tell = LocalSites(context.folder), site_progress(quiet=as_json)
        results = offboarding.take_off(context.topology, context.resolver, local, user, found, tell)

    def render() -> None:
        if applied:
            _show_leftovers(user, found, ends, console)
        else:
            consent.unchanged(lambda on: _show_leftovers(user, found, ends, on))

    emit(
        {
            "applied": applied,
            "user": user,
            "sites": [_leftover_body(one) for one in found],
            "share_tokens": [each.isoformat() for each in ends],
        },
        as_json=as_json,
        render=render,
    )
    offboarding.check_complete(results)


def _show_leftovers(user: str, found: Sequence[Leftover], ends: Sequence[dt.datetime], on: Console) -> None:
    table = Table("site", "rules", "quotas", "can log in", "")
    for one in found:
        quotas = "?" if one.unread else str(len(one.quotas))
        numbers = (str(len(one.rules)), quotas, "yes" if one.login else "no")
        table.add_row(one.site, *(("", "", "") if one.error else numbers), escape(one.error.what) if one.error else "")
    on.print(table)
    for one in found:
        if one.unread:
            on.print(f"{one.site}: quotas not looked at: {escape(one.unread)}", soft_wrap=True)
    if ends:
        on.print(
            f"Tokens of its share (Delta Sharing): {len(ends)}, the last good until {ends[-1]:%Y-%m-%d %H:%M} UTC."
        )
    if ends or not all(one.is_empty for one in found):
        on.print(f"This is what {escape(user)} has; the records of feeds.{escape(user)} stay in any case.")


def _leftover_body(one: Leftover) -> dict[str, object]:
    return {
        "site": one.site,
        "rules": [str(rule) for rule in one.rules],
        "quotas": None if one.unread else {quota.key: quota.old for quota in one.quotas},
        "can_log_in": one.login,
        "error": one.error.what if one.error else None,
    }
