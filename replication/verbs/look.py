"""Gathers the facts that a plan is made of."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from fairlead.errors import FairleadError
from replication.plan import Catalog
from replication.verbs.choose import Scope, carried, check_scope
from replication.verbs.facts import End, Facts
from replication.verbs.ground import Ground
from replication.verbs.plan import Verb
from topologies.model import Link, Topology

ABOUT_LOGS: Final = frozenset({Verb.PROMOTE, Verb.FAILOVER, Verb.REVERSE, Verb.RESTORE})
LEVEL: Final = frozenset({Verb.PROMOTE, Verb.REVERSE})  # both ends must be equal: a record on its way is waited for
PATIENCE: Final = 5.0
PAUSE: Final = 0.1


async def look(
    verb: Verb,
    topology: Topology,
    link: Link,
    scope: Scope,
    ground: Ground,
    *,
    by: str,
    reason: str = "",
    every: bool = False,
    patience: float = PATIENCE,
) -> Facts:
    """Ask both ends of a link, and their replicators' status, as far as the verb needs it.

    Args:
        by: Who gives the order. every: A resume ends every pause of the link, not only that of ``scope``.
        patience: Seconds in which records that are on their way may arrive.

    Raises:
        ConfigurationError: the link cannot have what is meant.
        FairleadError: the site where the order goes cannot be asked.
    """
    check_scope(topology, link, scope)
    catalog = Catalog(topology)
    orders = await ground.orders(link.to)
    facts = Facts(
        topology,
        catalog,
        link,
        scope,
        (),
        End(link.from_),
        End(link.to),
        orders,
        by,
        dt.datetime.now(dt.UTC),
        reason,
        every,
    )
    if verb not in ABOUT_LOGS:
        return _with(facts, ground)

    def wanted(topic: str) -> bool:
        return scope.has(topic) and catalog.takes(link, topic)

    deadline = time.monotonic() + patience
    while True:
        target = End(link.to, await ground.ends(link.to, wanted))
        source = await _source(link.from_, wanted, ground)
        uneven = verb in LEVEL and source.error is None and source.ends != target.ends
        if not uneven or time.monotonic() > deadline:
            break
        await asyncio.sleep(PAUSE)
    return _with(await _whole(facts, source, target, verb, ground), ground)


async def _whole(facts: Facts, source: End, target: End, verb: Verb, ground: Ground) -> Facts:
    topics = carried(facts.catalog, facts.link, {tp.topic for tp in (*source.ends, *target.ends)}, facts.scope)
    source_orders = None
    if verb is Verb.REVERSE and source.error is None:
        try:
            source_orders = await ground.orders(facts.link.from_)
        except FairleadError as error:
            source = End(source.site, {}, error.what)
    return replace(facts, topics=tuple(topics), source=source, target=target, source_orders=source_orders)


async def _source(site: str, wanted: Callable[[str], bool], ground: Ground) -> End:
    try:
        return End(site, await ground.ends(site, wanted))
    except FairleadError as error:
        return End(site, {}, error.what)


def _with(facts: Facts, ground: Ground) -> Facts:
    return replace(facts, status=ground.status(facts.link.to), source_status=ground.status(facts.link.from_))
