"""Refusing a change that takes too much away: most often it is a mistake in the topology, not an intention. Pure."""

from __future__ import annotations

from acl.plan import SitePlan
from fairlead.errors import ConfigurationError, RefusedError

FEW = 10
"""So many rules may be removed whatever their share is."""

SHARE = 0.3
"""Of a site's rules, what may be removed without being asked for."""


class TooManyRemovals(RefusedError):
    """A plan removes more of a site's rules than is allowed; nothing of it was done at this site."""


def check_removals(plan: SitePlan, before: int, share: float = SHARE, removals: int | None = None) -> None:
    """Refuse a plan that removes more than ``FEW`` rules and more than a share of those that are Fairlead's.

    Args:
        before: How many of the site's rules are Fairlead's before the change.
        removals: How many the whole plan removes, where ``plan`` is only what is left of it.

    Raises:
        TooManyRemovals: with the numbers.
    """
    count = len(plan.remove) if removals is None else removals
    if plan.remove and count > FEW and count > share * before:
        raise TooManyRemovals(
            f"the plan removes {count} of the {before} rules of site {plan.site} ({count / before:.0%}), "
            f"more than the {share:.0%} that is allowed; nothing was changed there",
            hint="see fairlead acl plan; if it is meant: fairlead acl apply --allow-removals, or --max-removals SHARE",
            site=plan.site,
            removals=count,
            rules=before,
        )


def parse_share(text: str) -> float:
    """``30%`` or ``0.3`` as a share.

    Raises:
        ConfigurationError: it is neither.
    """
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0.0 <= share <= 1.0:
        raise ConfigurationError(f"{text!r} is no share of rules", hint="from 0% to 100%, or 0.0 to 1.0")
    return share
