"""The Kafka users of each site: ``fairlead up`` creates them (SCRAM), ``acl`` writes their rules. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from topologies.model import Link, SiteKind, Topology

ADMIN = "admin"
"""The super user of every local cluster; no rule speaks of it, so ``service_users`` does not name it."""

CONTROLLER = "controller"
"""As which brokers log in to each other."""

SESSION = "bridge-session"
"""What the name of a bridge's MQTT session, a secret, is called where passwords are by user."""

SPARK = "spark"
"""What a standalone cluster of Spark authenticates by is called where passwords are by user."""

RESERVED_NAMES = frozenset({ADMIN, "bridge", "replicator", "shore", CONTROLLER, "device"})
"""Names that a customer or user may not have; nor any that begins with ``replicator``."""


def is_reserved(name: str) -> bool:
    """Whether a name belongs to Fairlead's own services."""
    return name in RESERVED_NAMES or name.startswith("replicator")


class Role(StrEnum):
    """What a user is there for; its permissions follow from this, the links, and the streams' expressions."""

    BRIDGE = "bridge"  # appends to the logs this site holds
    REPLICATOR = "replicator"  # appends to this site's replicas, makes their topics
    UPSTREAM = "upstream"  # the replicator of another site, reading here what its links take
    SHORE = "shore"  # reads everything here, appends to feeds
    CUSTOMER = "customer"
    USER = "user"


@dataclass(frozen=True, slots=True)
class ServiceUser:
    """One Kafka user at one site.

    Args:
        links: ``REPLICATOR``: the links that end here. ``UPSTREAM``: those from here to ``target``. Else empty.
        target: ``UPSTREAM``: the site whose replicator this is.
        groups, roles: from the topology, for access expressions (customers and users only).
    """

    name: str
    site: str
    role: Role
    links: tuple[Link, ...] = ()
    target: str | None = None
    groups: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()


def upstream_user(target: str) -> str:
    """Name of the user with which the replicator of ``target`` reads at the other sites."""
    return f"replicator.{target}"


def service_users(topology: Topology, site: str) -> dict[str, ServiceUser]:
    """Every Kafka user that exists at a site, by name; the super user ``admin`` is not among them.

    ``bridge`` is at every site but a customer's (nothing enters there); ``replicator`` where a link ends;
    ``replicator.<target>`` where a link begins; ``shore`` where shore runs; customers where they read; users at
    the sites they name.
    """
    found: list[ServiceUser] = []
    if topology.sites[site].kind is not SiteKind.CUSTOMER:
        found.append(ServiceUser("bridge", site, Role.BRIDGE))
    if incoming := topology.links_to(site):
        found.append(ServiceUser("replicator", site, Role.REPLICATOR, links=incoming))
    outgoing = topology.links_from(site)
    for target in dict.fromkeys(link.to for link in outgoing):
        links = tuple(link for link in outgoing if link.to == target)
        found.append(ServiceUser(upstream_user(target), site, Role.UPSTREAM, links=links, target=target))
    if topology.shore and topology.shore.at == site:
        found.append(ServiceUser("shore", site, Role.SHORE))
    for name, customer in topology.customers.items():
        if site == customer.feed_at or site in customer.reads_at:
            found.append(ServiceUser(name, site, Role.CUSTOMER, groups=customer.groups, roles=customer.roles))
    for name, user in topology.users.items():
        if site in user.at:
            found.append(ServiceUser(name, site, Role.USER, groups=user.groups, roles=user.roles))
    return {user.name: user for user in found}


def mqtt_users(topology: Topology, site: str) -> tuple[str, ...]:
    """The MQTT users of a site that are no devices' own: the bridge, and the publisher of dead letters."""
    return ("bridge", publisher(topology, site))


def publisher(topology: Topology, site: str) -> str:
    """The MQTT user as which dead letters are replayed: the gateway, where there is one."""
    return "device" if topology.sites[site].mqtt_gateway else "replay"
