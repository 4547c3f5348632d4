"""How long a session lives, by what brokers say of their settings."""

from __future__ import annotations

import pytest

from acl.rotate import session_seconds

ANY, OWN = "connections.max.reauth.ms", "listener.name.client.connections.max.reauth.ms"
OTHER = "listener.name.inner.connections.max.reauth.ms"
SCRAM, TOKENS = (
    f"listener.name.client.{mechanism}.connections.max.reauth.ms" for mechanism in ("scram-sha-512", "oauthbearer")
)
TWO = {
    "listeners": "CLIENT://:9092,INNER://:9093,OPEN://:9094,CONTROLLER://:9095",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CLIENT:SASL_SSL,INNER:SASL_SSL,OPEN:SSL,CONTROLLER:SASL_SSL",
    "sasl.enabled.mechanisms": "OAUTHBEARER,SCRAM-SHA-512",
}
"""A broker at two of whose listeners users log in with a password."""
ONE = {**TWO, "listener.name.inner.sasl.enabled.mechanisms": "OAUTHBEARER"}


@pytest.mark.parametrize(
    ("brokers", "seconds"),
    [
        ({"1": {ANY: "0"}}, None),  # Kafka's default: for ever
        ({"1": {ANY: "60000"}}, 60.0),
        ({"1": {**ONE, ANY: "0", OWN: "2000"}}, 2.0),
        ({"1": {**TWO, ANY: "0", OWN: "2000", OTHER: "9000"}}, 9.0),
        ({"1": {**TWO, OWN: "2000", OTHER: "0"}}, None),
        ({"1": {**TWO, ANY: "0", OWN: "2000"}}, None),  # the other listener has none of its own
        ({"1": {**TWO, ANY: "3000", OWN: "2000"}}, 3.0),
        ({"1": {**ONE, ANY: "0", OWN: "2000"}, "2": {**ONE, ANY: "0", OWN: "5000"}}, 5.0),
        ({"1": {**ONE, OWN: "2000"}, "2": {**ONE, ANY: "0"}}, None),
        ({"1": {**ONE, ANY: "0", TOKENS: "2000"}}, None),  # sessions by tokens end, those by passwords do not
        ({"1": {**ONE, ANY: "0", SCRAM: "2000"}}, 2.0),
        ({"1": {**ONE, OWN: "2000", SCRAM: "4000"}}, 4.0),
        ({"1": {ANY: None}}, None),
        ({"1": {**ONE, ANY: "60000", SCRAM: None}}, None),  # hidden
        ({"1": {**ONE, "listeners": "client://:9092", ANY: "60000", OWN: "0"}}, None),
        ({"1": {ANY: "60000", OWN: "0"}}, None),  # no listeners told
        ({}, None),
    ],
)
def test_how_long_sessions_live(brokers: dict[str, dict[str, str | None]], seconds: float | None) -> None:
    assert session_seconds(brokers) == seconds
