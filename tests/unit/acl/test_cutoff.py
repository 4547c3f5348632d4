"""How long a session lives, by what brokers say of their settings."""

from __future__ import annotations

import pytest

from acl.rotate import session_seconds

ANY, OWN = "connections.max.reauth.ms", "listener.name.client.connections.max.reauth.ms"
OTHER = "listener.name.inner.connections.max.reauth.ms"


@pytest.mark.parametrize(
    ("brokers", "seconds"),
    [
        ({"1": {ANY: "0"}}, None),  # Kafka's default: for ever
        ({"1": {ANY: "60000"}}, 60.0),
        ({"1": {ANY: "0", OWN: "2000"}}, 2.0),
        ({"1": {ANY: "0", OWN: "2000", OTHER: "9000"}}, 9.0),
        ({"1": {OWN: "2000", OTHER: "0"}}, None),
        ({"1": {OWN: "2000"}, "2": {OWN: "5000"}}, 5.0),
        ({"1": {OWN: "2000"}, "2": {ANY: "0"}}, None),
        ({"1": {ANY: None}}, None),
        ({}, None),
    ],
)
def test_how_long_sessions_live(brokers: dict[str, dict[str, str | None]], seconds: float | None) -> None:
    assert session_seconds(brokers) == seconds
