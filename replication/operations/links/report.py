"""Gather the data of ``link list`` and ``link describe``: each link's policy, state and orders. JSON-ready."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from fairlead.errors import FairleadError
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.names import parse_log
from replication.check.ask import check_link
from replication.operations.links.access import ClusterAccess, Status
from replication.overrides import Override, Overrides
from replication.states import LinkState
from topologies.endpoints import EndpointResolver
from topologies.model import Link, Topology
from topologies.users import ADMIN, upstream_user

STOPPED: Final = "stopped"  # no replicator runs, so the current state is unknown
PROBE: Final = 10.0


async def list_links(
    topology: Topology, access: ClusterAccess, links: Iterable[Link] | None = None
) -> list[dict[str, Any]]:
    """Return every link with its state.

    ``state``, ``lag`` (records; null if unknown) and ``berth`` (why a berthed link is open or closed; empty if unknown)
    come from the replicator. ``in_trouble`` counts logs by state.
    ``paused`` is the order that pauses the whole link, ``parts_paused`` are the orders that pause its streams and logs.
    ``orders_error`` is the reason why a site's orders cannot be read.
    """
    wanted = tuple(topology.directed_links() if links is None else links)
    sites = tuple(dict.fromkeys(link.to for link in wanted))
    orders = dict(zip(sites, await asyncio.gather(*(_orders(access, site) for site in sites)), strict=True))
    status = {site: access.status(site) for site in sites}
    return [_one(link, orders[link.to], status[link.to]) for link in wanted]


async def describe_link(
    topology: Topology, resolver: EndpointResolver, access: ClusterAccess, link: Link
) -> dict[str, Any]:
    """Return everything about one link.

    ``checks`` lists settings of both ends that should be changed; it is null if they could not be read, and
    ``checks_error`` is the reason. ``consumer_groups`` is what ``GroupSync.snapshot`` shows; null if no group follows
    the link, or no replicator runs.
    """

    def source() -> KafkaEndpoint:
        return resolver.kafka(link.from_, upstream_user(link.to))

    def target() -> KafkaEndpoint:
        return resolver.kafka(link.to, "replicator")

    (found,) = await list_links(topology, access, [link])
    status = access.status(link.to)
    ends = await asyncio.gather(probe_login(source), probe_login(target))
    checks: list[dict[str, str]] | None = None
    error = next((each["error"] for each in ends if not each["reachable"]), None)
    if error is None:
        try:
            admins = {"source_admin": _admin(resolver, link.from_), "target_admin": _admin(resolver, link.to)}
            checks = [each.as_json() for each in await check_link(topology, link, source(), target(), **admins)]
        except FairleadError as trouble:
            error = trouble.what
    return {
        **found,
        "source": {"site": link.from_, **ends[0]},
        "target": {"site": link.to, **ends[1]},
        "logs_in_trouble": dict(logs_of(link, status)),
        "released_logs": dict(releases_of(link, status)),
        "consumer_groups": groups_of(link, status),
        "checks": checks,
        "checks_error": error,
    }


def _admin(resolver: EndpointResolver, site: str) -> KafkaEndpoint | None:
    """Return a site's Kafka as administrator; None if this machine has no address or password for it."""
    try:
        return resolver.kafka(site, ADMIN)
    except FairleadError:
        return None


def logs_of(link: Link, status: Status | None) -> dict[str, Mapping[str, Any]]:
    """Return the logs of one link that are not mirrored, by name, from its replicator's last snapshot."""
    found: Mapping[str, Mapping[str, Any]] = status.snapshot.get("logs", {}) if status else {}
    return {log: each for log, each in sorted(found.items()) if _concerns(link, log, each)}


def releases_of(link: Link, status: Status | None) -> dict[str, Mapping[str, Any]]:
    """Return the logs of one link that were promoted or failed over to its target."""
    found = status.released() if status else {}
    return {log: each for log, each in sorted(found.items()) if _takes(link, log)}


def groups_of(link: Link, status: Status | None) -> Mapping[str, Any] | None:
    """Return what a running replicator shows of the consumer groups that follow one link; None without any."""
    now = status.link(link.name) if status is not None and status.running else None
    found: Mapping[str, Any] | None = now.get("groups") if now is not None else None
    return found


async def probe_login(endpoint: Callable[[], KafkaEndpoint]) -> dict[str, Any]:
    """Try to log in to a cluster. Return ``reachable``, ``user``, ``error`` and ``milliseconds``."""
    began = time.monotonic()
    try:
        at = endpoint()
    except FairleadError as error:
        return {"reachable": False, "user": None, "error": error.what, "milliseconds": None}
    try:
        async with await Cluster.open(at, client_id="fairlead-link", request_timeout=PROBE):
            took = (time.monotonic() - began) * 1000
            return {"reachable": True, "user": at.user, "error": None, "milliseconds": round(took, 1)}
    except FairleadError as error:
        return {"reachable": False, "user": at.user, "error": error.what, "milliseconds": None}


async def _orders(access: ClusterAccess, site: str) -> Overrides | FairleadError:
    try:
        return await access.orders(site)
    except FairleadError as error:
        return error


def _one(link: Link, orders: Overrides | FairleadError, status: Status | None) -> dict[str, Any]:
    now = status.link(link.name) if status is not None and status.running else None
    known = orders if isinstance(orders, Overrides) else None
    whole = known.link_paused(link.name) if known else None
    parts = [each for each in known.pauses() if _part_of(link, each)] if known else []
    not_mirrored = logs_of(link, status).values()
    state = str(now["state"]) if now else STOPPED
    return {
        "link": link.name,
        "from": link.from_,
        "to": link.to,
        "policy": _policy(link),
        "state": state,
        "cause": now["cause"] if now else f"no replicator of {link.to} runs on this machine",
        "since": now["since"] if now else None,
        "berth": now.get("berth", "") if now else "",
        "logs": now["logs"] if now else None,
        "followed": now["followed"] if now else None,
        "lag": now["lag"] if now else None,
        "paused": _as_json(whole) or (state == LinkState.PAUSED or None),
        "parts_paused": [_as_json(each) for each in parts],
        "in_trouble": dict(Counter(str(each["state"]) for each in not_mirrored if each["state"] != LinkState.PAUSED)),
        "released": len(releases_of(link, status)),
        "orders_error": orders.what if isinstance(orders, FairleadError) else None,
    }


def _policy(link: Link) -> dict[str, Any]:
    return {
        "when": link.when,
        "streams": {stream: each if isinstance(each, str) else list(each) for stream, each in link.streams.items()},
        "rate": link.rate,
        "priority": {stream: str(each) for stream, each in link.priority.items()},
        "start": str(link.start),
        "groups": list(link.groups),
    }


def _part_of(link: Link, order: Override) -> bool:
    """Return whether a pause covers a part of a link, and not all of it."""
    if order.link not in (None, link.name):
        return False
    if order.log is not None:
        return _takes(link, order.log)
    return order.stream in link.streams


def _concerns(link: Link, log: str, trouble: Mapping[str, Any]) -> bool:
    at = trouble.get("link")
    return bool(at == link.name) if at is not None else _takes(link, log)


def _takes(link: Link, log: str) -> bool:
    name = parse_log(log.partition("/")[0])
    return name is not None and link.takes(name)


def _as_json(order: Override | None) -> dict[str, Any] | None:
    built: dict[str, Any] | None = msgspec.to_builtins(order) if order is not None else None
    return built
