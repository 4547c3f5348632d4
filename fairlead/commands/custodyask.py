"""Where ``fairlead custody`` looks: at the site that is named, else at the first of the likely ones that answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Final, TypeVar

from edge.orders.ground import Ground, standing
from edge.orders.look import nobody_answers
from fairlead.commands.context import Context
from fairlead.endpoint import KafkaEndpoint
from fairlead.errors import FairleadError, UnavailableError, UnknownNameError
from topologies.model import SiteKind, Topology
from topologies.users import ADMIN

T = TypeVar("T")

_LIKELY: Final = (SiteKind.HQ, SiteKind.PORT, SiteKind.DATACENTRE, SiteKind.SHIP)
"""Who is asked after the site where shore runs; the ledger never comes to most customers' sites."""


def likely_sites(topology: Topology, at: str | None) -> list[str]:
    """The sites to ask, in order: ``at`` alone, or all that have a ledger, those ashore first.

    Raises:
        UnknownNameError: the topology has no site ``at``.
    """
    if at is not None:
        if at not in topology.sites:
            raise UnknownNameError("site", at, topology.sites)
        return [at]
    by_kind = [name for kind in _LIKELY for name, site in topology.sites.items() if site.kind is kind]
    shore = [topology.shore.at] if topology.shore is not None else []
    return list(dict.fromkeys([*shore, *by_kind]))


async def ask_first(topology: Topology, at: str | None, question: Callable[[str], Awaitable[T]]) -> T:
    """The answer of the site ``at``, or of the first likely one that answers.

    Raises:
        UnavailableError: none answers. FairleadError: the site that was named does not.
    """
    sites = likely_sites(topology, at)
    away: tuple[str, FairleadError] | None = None
    for site in sites:
        try:
            return await question(site)
        except FairleadError as error:
            if at is not None:
                raise
            away = away or (site, error)
    raise nobody_answers(sites, away)


def ground_of(context: Context) -> AbstractAsyncContextManager[Ground]:
    """The sites of a topology as their administrators; a local site that does not run is known without asking it."""
    processes = context.local.status()

    def kafka(site: str) -> KafkaEndpoint:
        here = context.topology.sites[site].is_local
        if here and site in processes and not processes[site].kafka_up:
            raise UnavailableError(f"the Kafka of {site} does not run", hint=f"fairlead up {site}", site=site)
        return context.directory.kafka(site, ADMIN)

    return standing(kafka)
