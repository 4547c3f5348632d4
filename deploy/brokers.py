"""The settings of a broker in a container: what an embedded one has, at the addresses of the project. Pure.

Secrets stay out: a file that Kafka's own DirectoryConfigProvider reads is named in their place (KIP-421).
"""

from __future__ import annotations

from typing import Final

from pydantic import SecretStr

from deploy.fleet import CERTIFICATES, CONTROLLER_PORT, KAFKA_PORT, SECRETS, Deployed, Fleet
from fairlead.local.kafka import CONTROLLER, server_properties
from fairlead.local.kafkatls import KEYSTORE, TLS_PROPERTIES, TRUSTSTORE
from fairlead.local.state import Broker, SiteState

DATA: Final = "/var/lib/kafka"
SETTINGS: Final = "/etc/kafka/server.properties"


def properties(fleet: Fleet, site: Deployed, node: int) -> str:
    """``server.properties`` of one broker of a site, by its node id."""
    host = site.brokers[node - 1]
    own = {
        "log.dirs": f"{DATA}/data",
        "listeners": f"CLIENT://:{KAFKA_PORT},CONTROLLER://:{CONTROLLER_PORT}",
        "advertised.listeners": f"CLIENT://{host}:{KAFKA_PORT}",
        "controller.quorum.voters": ",".join(
            f"{number}@{name}:{CONTROLLER_PORT}" for number, name in enumerate(site.brokers, 1)
        ),
        # Of an embedded broker 3 s, for a quick return; here three share a site, and a fleet may share a machine.
        "broker.session.timeout.ms": "9000",
        "broker.heartbeat.interval.ms": "2000",
        "config.providers": "directory",
        "config.providers.directory.class": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
        "config.providers.directory.param.allowed.paths": SECRETS,
    }
    if fleet.tls:
        files = {KEYSTORE: f"{CERTIFICATES}/{host}.pem", TRUSTSTORE: f"{CERTIFICATES}/ca.pem"}
        own |= {name: files.get(str(value), str(value)) for name, value in TLS_PROPERTIES.items()}
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
