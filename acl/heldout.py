"""Users whose rules are withdrawn because their password leaked, told by a site's audit log. Pure.

``acl rotate --now`` takes a user's rules away and gives them back when no session from before can be left
(``acl.cutoff``). Until then nobody else may give them back: what the thief has open would read again.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from typing import Final

from acl.entries import Entry, UserChange
from acl.plan import SitePlan
from fairlead.errors import RefusedError

LEAKED: Final = {"because": "leaked"}
UNTIL: Final = "until"
HeldOut = Mapping[str, dt.datetime | None]
"""By user, until when; None where nobody knows: sessions never end there, or the rotation was cut off."""


class UserHeldOut(RefusedError):
    """A saved plan gives rules to a user who is held out; nothing of it was done at this site."""


def held_out(entries: Iterable[Entry], now: dt.datetime) -> dict[str, dt.datetime | None]:
    """Who is held out at a site, by all of its audit log."""
    found: dict[str, dt.datetime | None] = {}
    for entry in entries:
        if not isinstance(entry, UserChange):
            continue
        if entry.action == "rotate" and entry.detail.get("because") == LEAKED["because"]:
            until = entry.detail.get(UNTIL)
            found[entry.user] = dt.datetime.fromisoformat(until) if until else None
        elif entry.action in ("readmit", "delete"):
            found.pop(entry.user, None)
    return {user: until for user, until in found.items() if until is None or until > now}


def without(plan: SitePlan, users: Container[str]) -> SitePlan:
    """The plan without the rules that it would give to these users."""
    return replace(plan, add=tuple(rule for rule in plan.add if rule.user not in users))


def tell(user: str, until: dt.datetime | None) -> str:
    """Why a user has no rules, in one line."""
    when = f"until {until:%H:%M:%S} UTC" if until else "until its brokers are restarted"
    return f"{user} is held out {when}, since its password leaked"


def refuse(site: str, users: HeldOut) -> UserHeldOut:
    """A saved plan is done as it is or not at all."""
    return UserHeldOut(
        f"the plan gives rules at site {site} to who is held out there: "
        + "; ".join(tell(user, until) for user, until in sorted(users.items())),
        hint=hint(users),
        site=site,
        users=sorted(users),
    )


def hint(users: Iterable[str]) -> str:
    """What to do sooner."""
    options = " ".join(f"--readmit {user}" for user in sorted(users))
    return (
        "wait until fairlead acl rotate --now has ended, or run it again where it was cut off; when all brokers of the "
        f"site were restarted since, no old session is left: fairlead acl apply {options}"
    )
