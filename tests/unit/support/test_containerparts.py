"""Sites of tests as containers: what of a broker's settings differs from those of deploy, and when tests skip."""

from __future__ import annotations

import pytest

from deploy.brokers import properties
from fairlead.local.state import SiteState
from tests.support import containerparts, engine

STATE = SiteState(
    kafka_port=20001,
    controller_port=20002,
    mqtt_port=20003,
    cluster_id="AAAAAAAAAAAAAAAAAAAAAA",
    more_brokers=((20004, 20005), (20006, 20007)),
    properties={"broker.session.timeout.ms": "7000", "log.retention.ms": "5"},
)


def settings(text: str) -> dict[str, str]:
    """As Kafka reads them: of a key that is named twice the last counts."""
    return dict(line.split("=", 1) for line in text.splitlines())


def test_clients_are_told_the_published_port_and_brokers_each_others_names() -> None:
    made = settings(containerparts.server_properties("alpha", STATE, 2))
    assert made["advertised.listeners"] == "CLIENT://127.0.0.1:20004,BROKERS://alpha-kafka-2:9092"
    assert made["inter.broker.listener.name"] == "BROKERS"
    assert made["controller.quorum.voters"] == "1@alpha-kafka-1:9093,2@alpha-kafka-2:9093,3@alpha-kafka-3:9093"
    assert "BROKERS:SASL_PLAINTEXT" in made["listener.security.protocol.map"].split(",")


def test_nothing_else_differs_from_what_deploy_writes_but_what_the_test_asks_for() -> None:
    fleet, site = containerparts.fleet_of("alpha", STATE)
    deployed = settings(properties(fleet, site, 2))
    made = settings(containerparts.server_properties("alpha", STATE, 2))
    assert set(deployed) <= set(made)
    differ = {key for key in made if made[key] != deployed.get(key)}
    assert differ == {
        "listeners",
        "advertised.listeners",
        "listener.security.protocol.map",
        "inter.broker.listener.name",
        "listener.name.brokers.scram-sha-512.sasl.jaas.config",
        "broker.heartbeat.interval.ms",
        *STATE.properties,
    }
    assert {key: made[key] for key in STATE.properties} == STATE.properties


def test_an_engine_elsewhere_is_a_reason_to_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://elsewhere:2375")
    assert "not on this machine" in engine.why_no_sites()
