"""Which Kafka users exist where, and with which address and password."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from fairlead.errors import ConfigurationError, UnknownNameError
from fairlead.kafka.endpoint import KafkaEndpoint, KafkaLogin, MqttEndpoint, SaslMechanism
from fairlead.kafka.tokens import MskRegion, OidcEndpoint
from fairlead.local.sites import LocalSites
from tests.support.topologies.examples import RIGHT
from topologies.endpoints import EndpointResolver
from topologies.loader.load import load, read
from topologies.users import Role, is_reserved, service_users, upstream_user


def test_users_follow_from_links_shore_customers_and_users() -> None:
    small = read(RIGHT, "small.yaml")
    assert {site: list(service_users(small, site)) for site in small.sites} == {
        "tokyo": ["bridge", "replicator", "replicator.sydney", "replicator.duck-star", "analyst"],
        "sydney": ["bridge", "replicator", "replicator.tokyo", "replicator.shop", "shore", "ducks"],
        "duck-star": ["bridge", "replicator", "replicator.tokyo"],
        "shop": ["replicator", "ducks"],
    }


def test_an_upstream_user_has_just_the_links_to_its_target() -> None:
    big_blue = load("big-blue", env={})
    for site in big_blue.sites:
        for user in service_users(big_blue, site).values():
            assert user.site == site
            if user.role is Role.UPSTREAM:
                assert user.target is not None and user.name == upstream_user(user.target)
                assert user.links and {(link.from_, link.to) for link in user.links} == {(site, user.target)}
            elif user.role is Role.REPLICATOR:
                assert user.links == big_blue.links_to(site)
            else:
                assert user.links == ()


def test_every_replicator_finds_its_user_at_every_site_it_reads() -> None:
    big_blue = load("big-blue", env={})
    for link in big_blue.directed_links():
        assert upstream_user(link.to) in service_users(big_blue, link.from_)
        assert "replicator" in service_users(big_blue, link.to)


def test_names_of_services_are_reserved() -> None:
    small = read(RIGHT, "small.yaml")
    services = {Role.BRIDGE, Role.REPLICATOR, Role.UPSTREAM, Role.SHORE, Role.NOTIFY}
    for site in small.sites:
        for user in service_users(small, site).values():
            assert is_reserved(user.name) == (user.role in services)


class _Local:
    """What ``LocalSites`` would answer, without any."""

    folder = Path("topologies/big-blue")

    def kafka(self, site: str, user: str) -> KafkaEndpoint:
        return KafkaEndpoint(site, (("127.0.0.1", 1),), user)

    def mqtt(self, site: str, user: str) -> MqttEndpoint:
        return MqttEndpoint(site, "127.0.0.1", 2, user)


ELSEWHERE = {
    "FAIRLEAD_SITES__DUCK_STAR__KAFKA__BOOTSTRAP": "a:9092, [::1]:9093",
    "FAIRLEAD_SITES__DUCK_STAR__KAFKA__CA": "/etc/ca.pem",
    "FAIRLEAD_SITES__DUCK_STAR__MQTT__HOST": "ship",
    "FAIRLEAD_SITES__DUCK_STAR__MQTT__PORT": "8883",
}


def _directory(secrets: dict[str, str]) -> EndpointResolver:
    return EndpointResolver(read(RIGHT, "small.yaml", env=ELSEWHERE), cast(LocalSites, _Local()), env=secrets)


def test_a_site_with_an_address_is_there() -> None:
    secrets = {"FAIRLEAD_SECRET_DUCK_STAR_REPLICATOR_TOKYO": "one", "FAIRLEAD_SECRET_DUCK_STAR_BRIDGE_MQTT": "two"}
    resolver = _directory(secrets)
    kafka = resolver.kafka("duck-star", "replicator.tokyo")
    assert kafka.bootstrap == (("a", 9092), ("::1", 9093))
    assert kafka.password is not None and kafka.password.get_secret_value() == "one"
    assert (kafka.security_protocol, str(kafka.tls_ca)) == ("SASL_SSL", "/etc/ca.pem")
    mqtt = resolver.mqtt("duck-star", "bridge")
    assert (mqtt.host, mqtt.port, mqtt.tls, mqtt.tls_ca) == ("ship", 8883, True, None)
    assert mqtt.password is not None and mqtt.password.get_secret_value() == "two"


_SITE = "FAIRLEAD_SITES__DUCK_STAR__KAFKA__"
LOGINS: dict[str, tuple[dict[str, str], KafkaLogin, str, bool]] = {
    "SCRAM-SHA-256": (
        {"SASL_MECHANISM": "SCRAM-SHA-256"},
        KafkaLogin(SaslMechanism.SCRAM_SHA_256),
        "SASL_SSL",
        True,
    ),
    "API keys": (
        {"SASL_MECHANISM": "PLAIN", "LOGINS__BRIDGE": "KEY123"},
        KafkaLogin(SaslMechanism.PLAIN, "KEY123"),
        "SASL_SSL",
        True,
    ),
    "OAUTHBEARER": (
        {
            "SASL_MECHANISM": "OAUTHBEARER",
            "OAUTH__ENDPOINT": "https://idp/token",
            "OAUTH__SCOPE": "kafka",
            "OAUTH__CA": "i.pem",
            "OAUTH__EXTENSIONS__POOL": "lkc-1",
        },
        KafkaLogin(
            SaslMechanism.OAUTHBEARER,
            tokens=OidcEndpoint("https://idp/token", "kafka", Path("i.pem"), (("pool", "lkc-1"),)),
        ),
        "SASL_SSL",
        True,
    ),
    "certificates": (
        {"SECURITY": "SSL", "CERTIFICATES": "people"},
        KafkaLogin(None, certificate=Path("people/bridge.pem"), key=Path("people/bridge.key")),
        "SSL",
        False,
    ),
    "IAM": (
        {"SASL_MECHANISM": "AWS_MSK_IAM", "BOOTSTRAP": "b-1.x.y.c2.kafka.eu-west-1.amazonaws.com:9098"},
        KafkaLogin(SaslMechanism.AWS_MSK_IAM, tokens=MskRegion("eu-west-1")),
        "SASL_SSL",
        False,
    ),
}


@pytest.mark.parametrize("way", LOGINS)
def test_a_site_says_how_its_users_log_in(way: str) -> None:
    env, login, protocol, secret = LOGINS[way]
    topology = read(RIGHT, "small.yaml", env=ELSEWHERE | {f"{_SITE}{key}": value for key, value in env.items()})
    secrets = {"FAIRLEAD_SECRET_DUCK_STAR_BRIDGE": "one"} if secret else {}
    found = EndpointResolver(topology, cast(LocalSites, _Local()), env=secrets).kafka("duck-star", "bridge")
    assert (found.login, found.security_protocol, found.password is not None) == (login, protocol, secret)
    assert found.principal == f"User:{login.name or 'bridge'}"


def test_the_bridge_never_shows_its_kafka_password_to_an_mqtt_broker() -> None:
    resolver = _directory({"FAIRLEAD_SECRET_DUCK_STAR_BRIDGE": "kafka's", "FAIRLEAD_SECRET_DUCK_STAR_BRIDGE_NEXT": "n"})
    assert resolver.kafka("duck-star", "bridge").password is not None
    with pytest.raises(ConfigurationError) as caught:
        resolver.mqtt("duck-star", "bridge")
    assert "FAIRLEAD_SECRET_DUCK_STAR_BRIDGE_MQTT" in caught.value.hint


def test_clear_text_to_an_mqtt_broker_has_to_be_asked_for() -> None:
    asked = ELSEWHERE | {"FAIRLEAD_SITES__DUCK_STAR__MQTT__PORT": "1883"}
    secrets = {"FAIRLEAD_SECRET_DUCK_STAR_DEVICE": "one"}
    for security, tls in (("TLS", True), ("PLAINTEXT", False)):
        env = asked | {"FAIRLEAD_SITES__DUCK_STAR__MQTT__SECURITY": security}
        resolver = EndpointResolver(read(RIGHT, "small.yaml", env=env), cast(LocalSites, _Local()), env=secrets)
        assert resolver.mqtt("duck-star", "device").tls is tls
    topology = read(RIGHT, "small.yaml", env=asked)
    assert EndpointResolver(topology, cast(LocalSites, _Local()), env=secrets).mqtt("duck-star", "device").tls


def test_a_site_without_an_address_is_local() -> None:
    resolver = _directory({})
    assert resolver.kafka("tokyo", "bridge") == KafkaEndpoint("tokyo", (("127.0.0.1", 1),), "bridge")
    assert resolver.mqtt("tokyo", "device").port == 2


def test_a_missing_password_names_its_variable() -> None:
    with pytest.raises(ConfigurationError) as caught:
        _directory({"FAIRLEAD_SECRET_DUCK_STAR_BRIDGE": ""}).kafka("duck-star", "bridge")
    assert "FAIRLEAD_SECRET_DUCK_STAR_BRIDGE" in caught.value.hint


def test_an_unknown_site_has_a_nearest() -> None:
    with pytest.raises(UnknownNameError) as caught:
        _directory({}).kafka("tokio", "bridge")
    assert caught.value.fields["nearest"] == "tokyo"
