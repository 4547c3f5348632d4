"""Take from ``compose`` the settings of one test site: its brokers and Mosquitto in containers, reached from outside.
Pure.

Everything is as ``fairlead compose render`` has it, except the brokers' listeners: the clients are outside the
containers' network, so ``CLIENT`` is the published port, and the brokers talk to each other over a listener of their
own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from compose.fleet import CONTROLLER_PORT, KAFKA_PORT, Deployed, Fleet, plan
from compose.settings import properties
from fairlead.local import ports
from fairlead.local.state import SiteState
from topologies.model import Topology

TOPOLOGY: Final = "tests"
_JAAS: Final = "listener.name.client.scram-sha-512.sasl.jaas.config"
# Tests kill brokers and wait for them. The settings for production are more patient, because there the containers share
# a machine with a whole fleet.
_QUICK: Final = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}


def topology(name: str, state: SiteState) -> dict[str, Any]:
    """Return a topology of this one site, as data; the containers read from it who may log in to Mosquitto."""
    site = {"kind": "port", "unlocode": "JPTYO", "mqtt_gateway": True, "mqtt_profile": state.mqtt_profile.value}
    return {"name": TOPOLOGY, "sites": {name: site}}


def fleet_of(name: str, state: SiteState) -> tuple[Fleet, Deployed]:
    """Return the site in the form that ``compose`` works on."""
    made = plan(Topology.model_validate(topology(name, state)), brokers=len(state.brokers), tls=False)
    (planned,) = made.sites
    site = replace(planned, cluster_id=state.cluster_id)
    return replace(made, sites=(site,)), site


def server_properties(name: str, state: SiteState, node: int) -> str:
    """Return the ``server.properties`` of a broker. The test's own settings win: of a key that occurs twice, Kafka uses
    the last.
    """
    fleet, site = fleet_of(name, state)
    text = properties(fleet, site, node)
    lines = dict(line.split("=", 1) for line in text.splitlines())
    outside, host = state.brokers[node - 1].port, site.brokers[node - 1]
    further = {
        "listeners": f"CLIENT://:{outside},BROKERS://:{KAFKA_PORT},CONTROLLER://:{CONTROLLER_PORT}",
        "advertised.listeners": f"CLIENT://{ports.HOST}:{outside},BROKERS://{host}:{KAFKA_PORT}",
        "listener.security.protocol.map": lines["listener.security.protocol.map"] + ",BROKERS:SASL_PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
        _JAAS.replace(".client.", ".brokers."): lines[_JAAS],
    }
    return text + "".join(f"{key}={value}\n" for key, value in (further | _QUICK | state.properties).items())


def confined(service: dict[str, Any]) -> dict[str, Any]:
    """Return what a service of ``compose.yaml`` runs and its restrictions, as arguments for docker.

    The memory limit is left out: a test's data may be in a file system in memory, which would count against it.
    """
    same = ("hostname", "entrypoint", "read_only", "cap_drop", "security_opt", "pids_limit")
    return {name: service[name] for name in same}


def scratch(service: dict[str, Any]) -> dict[str, str]:
    """Return the service's in-memory file systems: mount point and options."""
    return dict(each.split(":", 1) for each in service["tmpfs"])
