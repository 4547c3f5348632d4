"""Build the files beside ``compose.yaml``: brokers' settings, sites' addresses, proxies' ports, Prometheus' targets.

They have no secrets. Brokers read theirs from files by Kafka's own DirectoryConfigProvider (KIP-421). Pure.
"""

from __future__ import annotations

from itertools import count
from typing import Any, Final

from pydantic import SecretStr

from compose.fleet import BOARD, CERTIFICATES, CONTROLLER_PORT, KAFKA_PORT, METRICS_PORT, SECRETS, Deployed, Fleet
from fairlead.kafka.endpoint import Address
from fairlead.local.kafka import CONTROLLER, KEYSTORE, TRUSTSTORE, server_properties, tls_properties
from fairlead.local.state import Broker, SiteState
from topologies.endpoints import AddressOverrides
from topologies.users import NOTIFY

DATA: Final = "/var/lib/kafka"
SETTINGS: Final = "/etc/kafka/server.properties"


def properties(fleet: Fleet, site: Deployed, node: int) -> str:
    """Return ``server.properties`` of one broker of a site, by its node id."""
    host = site.brokers[node - 1]
    own = {
        "log.dirs": f"{DATA}/data",
        "listeners": f"CLIENT://:{KAFKA_PORT},CONTROLLER://:{CONTROLLER_PORT}",
        "advertised.listeners": f"CLIENT://{host}:{KAFKA_PORT}",
        "controller.quorum.voters": ",".join(
            f"{number}@{name}:{CONTROLLER_PORT}" for number, name in enumerate(site.brokers, 1)
        ),
        # A local broker has 3 s, to return fast. Here three share a site, and a whole fleet may share a machine.
        "broker.session.timeout.ms": "9000",
        "broker.heartbeat.interval.ms": "2000",
        "config.providers": "directory",
        "config.providers.directory.class": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
        "config.providers.directory.param.allowed.paths": SECRETS,
    }
    files = {KEYSTORE: f"{CERTIFICATES}/{host}.pem", TRUSTSTORE: f"{CERTIFICATES}/ca.pem"}
    secure = tls_properties("client", "controller") if fleet.tls else tls_properties("controller")
    own |= {name: files.get(str(value), str(value)) for name, value in secure.items()}
    further = tuple((KAFKA_PORT, CONTROLLER_PORT) for _ in site.brokers[1:])
    state = SiteState(
        kafka_port=KAFKA_PORT,
        controller_port=CONTROLLER_PORT,
        mqtt_port=fleet.mqtt_port,
        cluster_id=site.cluster_id,
        properties=own,
        more_brokers=further,
    )
    named = SecretStr(f"${{directory:{SECRETS}:{site.name}.{CONTROLLER}}}")
    return server_properties(state, named, broker=Broker(node, KAFKA_PORT, CONTROLLER_PORT))


SPARK_MASTER: Final = "spark://spark-master:7077"


def overlay(fleet: Fleet) -> dict[str, Any]:
    """Return ``<name>.local.yaml``, the override file beside the topology, as data. It has no secret."""
    ca = {"ca": f"{CERTIFICATES}/ca.pem"} if fleet.tls else {}
    sites: dict[str, Any] = {}
    for site in fleet.sites:
        kafka = {"bootstrap": site.bootstrap, "security": "SASL_SSL" if fleet.tls else "SASL_PLAINTEXT", **ca}
        sites[site.name] = {"kafka": kafka}
        if site.has_devices:
            security = "TLS" if fleet.tls else "PLAINTEXT"
            sites[site.name]["mqtt"] = {"host": site.mqtt, "port": fleet.mqtt_port, "security": security, **ca}
    shore = {"shore": {"master": SPARK_MASTER, "settings": SPARK_SETTINGS}} if fleet.topology.shore else {}
    return {"sites": sites, **shore}


# The driver's container is in several networks. Bound to one address, it would be unreachable by name in the others.
SPARK_SETTINGS: Final = {
    "spark.driver.bindAddress": "0.0.0.0",  # noqa: S104 - its own networks
    "spark.executor.memory": "1g",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    "spark.sql.shuffle.partitions": "4",  # Spark's default of 200 is too many for two cores
    "spark.databricks.delta.snapshotPartitions": "1",
}


HOST: Final = "links"
_FIRST_PORT: Final = 20_001


def address_overrides(fleet: Fleet) -> AddressOverrides:
    """Return the overrides for ``fairlead replicate --address-overrides`` and ``simulators.network.server``.

    The same fleet always gets the same ports.
    """
    ports = count(_FIRST_PORT)
    brokers = {site.name: site.brokers for site in fleet.sites}
    found: dict[str, dict[str, tuple[tuple[Address, Address], ...]]] = {}
    for site in fleet.sites:
        for source in dict.fromkeys(link.from_ for link in fleet.topology.links_to(site.name)):
            pairs = tuple(((host, KAFKA_PORT), (HOST, next(ports))) for host in brokers[source])
            found.setdefault(site.name, {})[source] = pairs
    return found


def prometheus(fleet: Fleet) -> dict[str, Any]:
    """Return ``prometheus.yaml`` as data: scrape all services every 15 s; load the alert rules."""
    replicators = [
        f"{site.name}-replicator:{METRICS_PORT}" for site in fleet.sites if fleet.topology.has_replicator(site.name)
    ]
    shore = [f"shore:{METRICS_PORT}"] if fleet.topology.shore is not None else []
    board = [f"{BOARD}:{METRICS_PORT}"] if fleet.topology.board is not None else []
    notify = [f"{NOTIFY}:{METRICS_PORT}"] if fleet.topology.notify is not None else []
    bridges = [f"{site.name}-bridge:{METRICS_PORT}" for site in fleet.sites if site.has_devices]
    return {
        "global": {"scrape_interval": "15s", "evaluation_interval": "15s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [
            {"job_name": "prometheus", "static_configs": [{"targets": ["localhost:9090"]}]},
            {"job_name": "replicator", "static_configs": [{"targets": replicators}]},
            {"job_name": "bridge", "static_configs": [{"targets": bridges}]},
            {"job_name": "shore", "static_configs": [{"targets": shore}]},
            {"job_name": "board", "static_configs": [{"targets": board}]},
            {"job_name": "notify", "static_configs": [{"targets": notify}]},
        ],
    }
