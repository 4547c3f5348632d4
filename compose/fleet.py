"""Plan the containers of a topology, with their names, addresses and secrets. Pure.

Ports, headquarters and data centres have three brokers (replication factor 3, min ISR 2), ships and customers one. Each
site has a network of its own for its services. Brokers and replicators are also in the network ``wan``; cutting a ship
off from it cuts the ship's links.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from fairlead.local.kafka import CONTROLLER
from fairlead.local.passwords import MQTT_BRIDGE, mqtt_secret
from topologies.model import PLACEHOLDER, Board, Site, SiteKind, Topology, Webhook
from topologies.users import ADMIN, OIDC_SECRET, SESSION, SPARK, mqtt_users, route_secret, service_users, upstream_user

KAFKA_PORT: Final = 9092
CONTROLLER_PORT: Final = 9093
MQTT_PORT: Final = 1883
MQTT_TLS_PORT: Final = 8883
METRICS_PORT: Final = 9404
BOARD: Final = "board"
"""The host of ``fairlead board``."""
BOARD_PORT: Final = 8470
SECRETS: Final = "/run/secrets"
CERTIFICATES: Final = "/run/certificates"
SINGLE: Final = (SiteKind.SHIP, SiteKind.CUSTOMER)
_NAMESPACE: Final = uuid.UUID("6f2e1a52-7d5f-4c0e-9d1c-6f0b8f1f2a11")  # arbitrary; cluster ids follow from names


@dataclass(frozen=True, slots=True)
class Deployed:
    """The containers of one site. ``brokers`` are host names by node id, from 1."""

    name: str
    site: Site
    cluster_id: str
    brokers: tuple[str, ...]

    @property
    def has_devices(self) -> bool:
        return self.site.kind is not SiteKind.CUSTOMER

    @property
    def mqtt(self) -> str:
        return f"{self.name}-mqtt"

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{host}:{KAFKA_PORT}" for host in self.brokers)


@dataclass(frozen=True, slots=True)
class Fleet:
    """The containers of a topology.

    ``tls``: clients of Kafka and of Mosquitto use TLS. Controllers always do, because they send their password in clear
    text (SASL PLAIN). ``links``: replicators reach their sources through proxies in a container of its own
    (``compose.settings``).
    """

    topology: Topology
    sites: tuple[Deployed, ...]
    tls: bool
    links: bool = False

    @property
    def size(self) -> int:
        """The number of containers that run services, without those of shore."""
        ways_in = sum(site.has_devices for site in self.sites)
        replicators = sum(self.topology.has_replicator(site.name) for site in self.sites)
        single = (self.links, self.topology.board is not None, self.topology.notify is not None)
        return sum(len(site.brokers) for site in self.sites) + 2 * ways_in + replicators + sum(single)

    @property
    def mqtt_port(self) -> int:
        return MQTT_TLS_PORT if self.tls else MQTT_PORT


def plan(topology: Topology, *, brokers: int = 3, tls: bool = True, links: bool = False) -> Fleet:
    """Return the fleet of a topology. ``brokers``: number of brokers of a port, 1 or 3."""
    sites = []
    for name, site in topology.sites.items():
        number = 1 if site.kind in SINGLE else brokers
        hosts = tuple(f"{name}-kafka-{node}" for node in range(1, number + 1))
        sites.append(Deployed(name, site, _cluster_id(topology.name, name), hosts))
    return Fleet(topology, tuple(sites), tls, links)


def secrets_of_broker(site: Deployed) -> list[str]:
    """Return the names of a broker's secrets: passwords of the users with which its log directory is formatted."""
    return [f"{site.name}.{ADMIN}", f"{site.name}.{CONTROLLER}"]


def secrets_of_mqtt(fleet: Fleet, site: Deployed) -> list[str]:
    """Return the names of the secrets of a site's Mosquitto: passwords of its users, without the devices' own."""
    return [f"{site.name}.{mqtt_secret(user)}" for user in mqtt_users(fleet.topology, site.name)]


def secrets_of_bridge(site: Deployed) -> list[str]:
    """Return the names of the secrets of a site's bridge."""
    return [f"{site.name}.bridge", f"{site.name}.{MQTT_BRIDGE}", f"{site.name}.{SESSION}"]


def secrets_of_replicator(fleet: Fleet, site: Deployed) -> list[str]:
    """Return the names of the secrets of a site's replicator: its own password, and its password at each source."""
    sources = dict.fromkeys(link.from_ for link in fleet.topology.links_to(site.name))
    return [f"{site.name}.replicator", *(f"{source}.{upstream_user(site.name)}" for source in sources)]


def secrets_of_board(board: Board) -> list[str]:
    """Return the names of the board's secrets: its passwords at the sites where it gives orders, and its secret at the
    provider where people sign in."""
    return [*(f"{site}.board" for site in board.at), *secrets_of_provider(board)]


def secrets_of_provider(board: Board | None) -> list[str]:
    """Return the name of the board's secret at the provider where people sign in. The provider makes it up; an empty
    one is none, as for a public client."""
    return [f"{board.at[0]}.{OIDC_SECRET}"] if board is not None and board.oidc is not None else []


def secrets_of_routes(fleet: Fleet) -> dict[str, bool]:
    """Return the names of the secrets of notifications' routes, and whether we make them up: a webhook's signs what is
    sent, and the receiver gets to know it. Others are the receiver's; some routes have none."""
    notify = fleet.topology.notify
    if notify is None:
        return {}
    return {
        f"{notify.at}.{route_secret(name)}": isinstance(route.to, Webhook)
        for name, route in notify.routes.items()
        if isinstance(route.to, Webhook) or PLACEHOLDER in route.to
    }


def secrets_from_outside(fleet: Fleet) -> dict[str, bool]:
    """Return the names of the secrets that somebody outside the fleet gives or gets to know, and whether we make them
    up."""
    return secrets_of_routes(fleet) | dict.fromkeys(secrets_of_provider(fleet.topology.board), False)


def secrets_of_spark(fleet: Fleet) -> list[str]:
    """Return the name of the secret that Spark's master, workers and drivers share."""
    return [f"{fleet.topology.shore.at}.{SPARK}"] if fleet.topology.shore else []


def all_secrets(fleet: Fleet) -> list[str]:
    """Return the name of every secret of the fleet, once."""
    return list(dict.fromkeys(_each(fleet)))


def _each(fleet: Fleet) -> Iterable[str]:
    for site in fleet.sites:
        yield from secrets_of_broker(site)
        yield from (f"{site.name}.{user}" for user in service_users(fleet.topology, site.name))
        if site.has_devices:
            yield from secrets_of_mqtt(fleet, site)
            yield f"{site.name}.{SESSION}"


def _cluster_id(topology: str, site: str) -> str:
    """Return a site's cluster id. It is always the same, so that a project rendered again fits its existing volumes."""
    return base64.urlsafe_b64encode(uuid.uuid5(_NAMESPACE, f"{topology}/{site}").bytes).rstrip(b"=").decode()
