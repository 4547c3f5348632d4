"""What containers a topology becomes, with their names, addresses and secrets. Pure.

Brokers of ports, headquarters and data centres are three (replication factor 3, min ISR 2), of ships and customers one.
Each site has a network of its own for what runs beside its Kafka; brokers and replicators are in the network ``wan``,
too, which is where a ship loses its link.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from fairlead.local.kafka import CONTROLLER
from fairlead.local.passwords import MQTT_BRIDGE, mqtt_secret
from topologies.model import Site, SiteKind, Topology
from topologies.users import ADMIN, SESSION, SPARK, mqtt_users, service_users, upstream_user

KAFKA_PORT: Final = 9092
CONTROLLER_PORT: Final = 9093
MQTT_PORT: Final = 1883
MQTT_TLS_PORT: Final = 8883
METRICS_PORT: Final = 9404
SECRETS: Final = "/run/secrets"
CERTIFICATES: Final = "/run/certificates"
SINGLE: Final = (SiteKind.SHIP, SiteKind.CUSTOMER)
_NAMESPACE: Final = uuid.UUID("6f2e1a52-7d5f-4c0e-9d1c-6f0b8f1f2a11")  # any; cluster ids follow from names


@dataclass(frozen=True, slots=True)
class Deployed:
    """A site as containers. ``brokers`` are host names by node id, from 1."""

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
    """A topology as containers. ``tls``: clients of Kafka and of Mosquitto speak TLS; controllers always do, as their
    password goes over the network as it is (SASL PLAIN). ``links``: replicators reach their sources over lines in a
    container of its own (``compose.settings``)."""

    topology: Topology
    sites: tuple[Deployed, ...]
    tls: bool
    links: bool = False

    @property
    def size(self) -> int:
        """How many containers serve, those of shore left out."""
        ways_in = sum(site.has_devices for site in self.sites)
        replicators = sum(bool(self.topology.links_to(site.name)) for site in self.sites)
        return sum(len(site.brokers) for site in self.sites) + 2 * ways_in + replicators + self.links

    @property
    def mqtt_port(self) -> int:
        return MQTT_TLS_PORT if self.tls else MQTT_PORT


def plan(topology: Topology, *, brokers: int = 3, tls: bool = True, links: bool = False) -> Fleet:
    """The fleet of a topology. ``brokers``: how many a port has, 1 or 3."""
    sites = []
    for name, site in topology.sites.items():
        number = 1 if site.kind in SINGLE else brokers
        hosts = tuple(f"{name}-kafka-{node}" for node in range(1, number + 1))
        sites.append(Deployed(name, site, _cluster_id(topology.name, name), hosts))
    return Fleet(topology, tuple(sites), tls, links)


def secrets_of_broker(site: Deployed) -> list[str]:
    """Names of the secrets that a broker reads: the users that its log directory begins with."""
    return [f"{site.name}.{ADMIN}", f"{site.name}.{CONTROLLER}"]


def secrets_of_mqtt(fleet: Fleet, site: Deployed) -> list[str]:
    """Those of a site's Mosquitto: the passwords of its users that are no devices' own."""
    return [f"{site.name}.{mqtt_secret(user)}" for user in mqtt_users(fleet.topology, site.name)]


def secrets_of_bridge(site: Deployed) -> list[str]:
    """Those of a site's bridge."""
    return [f"{site.name}.bridge", f"{site.name}.{MQTT_BRIDGE}", f"{site.name}.{SESSION}"]


def secrets_of_replicator(fleet: Fleet, site: Deployed) -> list[str]:
    """Those of a site's replicator: its own, and what each source knows it by."""
    sources = dict.fromkeys(link.from_ for link in fleet.topology.links_to(site.name))
    return [f"{site.name}.replicator", *(f"{source}.{upstream_user(site.name)}" for source in sources)]


def secrets_of_spark(fleet: Fleet) -> list[str]:
    """What Spark's machines and drivers know each other by."""
    return [f"{fleet.topology.shore.at}.{SPARK}"] if fleet.topology.shore else []


def all_secrets(fleet: Fleet) -> list[str]:
    """Every secret of the fleet, once."""
    return list(dict.fromkeys(_each(fleet)))


def _each(fleet: Fleet) -> Iterable[str]:
    for site in fleet.sites:
        yield from secrets_of_broker(site)
        yield from (f"{site.name}.{user}" for user in service_users(fleet.topology, site.name))
        if site.has_devices:
            yield from secrets_of_mqtt(fleet, site)
            yield f"{site.name}.{SESSION}"


def _cluster_id(topology: str, site: str) -> str:
    """The same each time, so that a project that is rendered again fits the volumes that are there."""
    return base64.urlsafe_b64encode(uuid.uuid5(_NAMESPACE, f"{topology}/{site}").bytes).rstrip(b"=").decode()
