"""What ``compose`` makes of one site of a test: its brokers and Mosquitto as containers, reached from outside. Pure.

All is as ``fairlead compose render`` has it, but for the brokers' listeners: clients are outside of the containers'
network, so ``CLIENT`` is the published port, and brokers talk to each other by a listener of their own.
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
# Tests kill brokers and wait for them; of containers that share a machine with a whole fleet deploy is more patient.
_QUICK: Final = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}


def topology(name: str, state: SiteState) -> dict[str, Any]:
    """A topology of this one site, as data, of which its containers learn who logs in to Mosquitto."""
    site = {"kind": "port", "unlocode": "JPTYO", "mqtt_gateway": True, "mqtt_profile": state.mqtt_profile.value}
    return {"name": TOPOLOGY, "sites": {name: site}}


def fleet_of(name: str, state: SiteState) -> tuple[Fleet, Deployed]:
    """The site as ``compose`` sees it."""
    made = plan(Topology.model_validate(topology(name, state)), brokers=len(state.brokers), tls=False)
    (planned,) = made.sites
    site = replace(planned, cluster_id=state.cluster_id)
    return replace(made, sites=(site,)), site


def server_properties(name: str, state: SiteState, node: int) -> str:
    """``server.properties`` of a broker; what the test asks for wins. Of a key that is named twice the last counts."""
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
    """What a service of ``compose.yaml`` runs and may do, as docker's own arguments.

    Its limit of memory is left out: a test's data may be in a file system in memory, which would count.
    """
    same = ("hostname", "entrypoint", "read_only", "cap_drop", "security_opt", "pids_limit")
    return {name: service[name] for name in same}


def scratch(service: dict[str, Any]) -> dict[str, str]:
    """Its file systems in memory: place and options."""
    return dict(each.split(":", 1) for each in service["tmpfs"])
