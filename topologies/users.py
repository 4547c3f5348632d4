"""List the Kafka users of each site: ``fairlead up`` creates them (SCRAM), ``acl`` writes their rules. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from topologies.model import Link, SiteKind, Topology

ADMIN = "admin"
"""The super user of every local cluster. It needs no rules, so ``service_users`` leaves it out."""

CONTROLLER = "controller"
"""The user with which brokers log in to each other."""

SESSION = "bridge-session"
"""The user name under which a bridge's MQTT session name, a secret, is stored."""

SPARK = "spark"
"""The user name under which the shared secret of a standalone Spark cluster is stored."""

NOTIFY = "notify"
"""The user that reads alerts for notifications. With ``-<route>``, the name under which a route's secret is stored."""

OIDC_SECRET = "board-oidc"  # noqa: S105 - a name
"""The user name under which the board's secret at its sign-in provider is stored."""

NOTIFY_GROUPS = "fairlead.notify."
"""What the consumer groups of routes begin with; the route's name follows."""

REPLICATOR_GROUPS = "fairlead.replicators."
"""What the groups of replicators that share a site's logs begin with. No user's own groups begin so."""

RESERVED_NAMES = frozenset({ADMIN, "bridge", "replicator", "shore", "board", CONTROLLER, "device", NOTIFY})
"""Names that a customer or user may not have. Names that begin with ``replicator`` are reserved, too."""


def is_reserved(name: str) -> bool:
    """Return whether a name is reserved for Fairlead's own services."""
    return name in RESERVED_NAMES or name.startswith("replicator")


class Role(StrEnum):
    """The role of a user. Its permissions follow from the role, the links, and the streams' expressions."""

    BRIDGE = "bridge"  # appends to the logs this site holds
    REPLICATOR = "replicator"  # appends to this site's replicas, creates their topics
    UPSTREAM = "upstream"  # the replicator of another site, which reads the logs of its links here
    SHORE = "shore"  # reads everything here, appends to feeds
    BOARD = "board"  # reads alerts, events and positions here, orders what its users order about alerts
    NOTIFY = "notify"  # reads alerts and bookings here, commits how far each route is
    CUSTOMER = "customer"
    USER = "user"


@dataclass(frozen=True, slots=True)
class ServiceUser:
    """One Kafka user at one site.

    Args:
        links: ``REPLICATOR``: the links that end here. ``UPSTREAM``: the links from here to ``target``. Else empty.
        target: ``UPSTREAM``: the replicator's own site.
        groups, roles: From the topology, for access expressions (customers and users only).
    """

    name: str
    site: str
    role: Role
    links: tuple[Link, ...] = ()
    target: str | None = None
    groups: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()


def route_secret(route: str) -> str:
    """Return the name under which the secret of a route of notifications is stored at its site."""
    return f"{NOTIFY}-{route}"


def upstream_user(target: str) -> str:
    """Return the name of the user with which the replicator of ``target`` reads at other sites."""
    return f"replicator.{target}"


def service_users(topology: Topology, site: str) -> dict[str, ServiceUser]:
    """Return every Kafka user of a site, by name, except the super user ``admin``.

    ``bridge`` is at every site but a customer's (nothing enters there); ``replicator`` where ``has_replicator``;
    ``replicator.<target>`` where a link begins; ``shore`` where shore may run; ``board`` where the board may run;
    ``notify`` where notifications are sent; customers where they read; users at the sites they name.
    """
    found: list[ServiceUser] = []
    if topology.sites[site].kind is not SiteKind.CUSTOMER:
        found.append(ServiceUser("bridge", site, Role.BRIDGE))
    if topology.has_replicator(site):
        found.append(ServiceUser("replicator", site, Role.REPLICATOR, links=topology.links_to(site)))
    outgoing = topology.links_from(site)
    for target in dict.fromkeys(link.to for link in outgoing):
        links = tuple(link for link in outgoing if link.to == target)
        found.append(ServiceUser(upstream_user(target), site, Role.UPSTREAM, links=links, target=target))
    if topology.shore and site in topology.shore.sites:
        found.append(ServiceUser("shore", site, Role.SHORE))
    if topology.board and site in topology.board.at:
        found.append(ServiceUser("board", site, Role.BOARD))
    if topology.notify and site == topology.notify.at:
        found.append(ServiceUser(NOTIFY, site, Role.NOTIFY))
    for name, customer in topology.customers.items():
        if site == customer.feed_at or site in customer.reads_at:
            found.append(ServiceUser(name, site, Role.CUSTOMER, groups=customer.groups, roles=customer.roles))
    for name, user in topology.users.items():
        if site in user.at:
            found.append(ServiceUser(name, site, Role.USER, groups=user.groups, roles=user.roles))
    return {user.name: user for user in found}


def mqtt_users(topology: Topology, site: str) -> tuple[str, ...]:
    """Return the MQTT users of a site that belong to no single device: the bridge and the publisher of dead letters."""
    return ("bridge", publisher(topology, site))


def publisher(topology: Topology, site: str) -> str:
    """Return the MQTT user that replays dead letters: the gateway if the site has one."""
    return "device" if topology.sites[site].mqtt_gateway else "replay"
