"""What the makers of plans have in common. Pure."""

from __future__ import annotations

from typing import NoReturn

from fairlead.errors import RefusedError
from replication.orders import Order, OrderKind
from replication.resolve.facts import Facts, Source
from replication.resolve.steps import Step

Made = tuple[tuple[Step, ...], tuple[str, ...]]
"""Steps, and what a person should know before."""


def reachable(facts: Facts) -> list[Source]:
    """The sources that can be asked and have the topic.

    Raises:
        RefusedError: there is none.
    """
    found = [each for each in facts.sources if each.has is not None]
    if not found:
        why = "; ".join(f"{each.site}: {each.why}" for each in facts.sources) or "no link carries it"
        refuse(facts, f"no source can be asked ({why})", hint="run this again when one is back")
    return found


def end_of(facts: Facts) -> int:
    """Where the log ends at this site.

    Raises:
        RefusedError: it is not there.
    """
    here = facts.here.get(facts.partition)
    if here is None:
        refuse(facts, "it does not exist at this site", hint="--retry")
    return here.stop


def order_for(
    facts: Facts,
    kind: OrderKind,
    *,
    log: str,
    link: str | None = None,
    reason: str = "fairlead link resolve",
    start: int | None = None,
    stop: int | None = None,
) -> Order:
    """An order with the time and the user of the facts."""
    return Order(kind=kind, at=facts.now, by=facts.by, reason=reason, link=link, log=log, start=start, stop=stop)


def refuse(facts: Facts, why: str, *, hint: str) -> NoReturn:
    """Raise ``RefusedError`` about this log."""
    raise RefusedError(f"{facts.log} at {facts.site}: {why}", hint=hint, log=facts.log, site=facts.site)
