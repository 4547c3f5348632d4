"""How a client logs in to an MQTT broker: as whom, over TLS or not, and what it means when there is no TLS."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from fairlead.certs.trust import client_context, trouble
from fairlead.endpoint import MqttEndpoint
from fairlead.errors import UntrustedError

if TYPE_CHECKING:
    from paho.mqtt.client import Client


def identify(client: Client, endpoint: MqttEndpoint) -> None:
    """Give a client that is not connected yet its user, and whom it trusts.

    Raises:
        TrustError: the endpoint's file of authorities cannot be used.
    """
    if endpoint.user is not None:
        client.username_pw_set(endpoint.user, endpoint.password.get_secret_value() if endpoint.password else None)
    if endpoint.tls_ca is not None:
        client.tls_set_context(client_context(endpoint.tls_ca, site=endpoint.site))


def untrusted(endpoint: MqttEndpoint, error: ssl.SSLCertVerificationError) -> UntrustedError:
    """The error for a broker whose certificate is not trusted: why, and what to do."""
    found = trouble(error, endpoint.host, endpoint.tls_ca)
    return UntrustedError(
        f"no TLS with the MQTT broker of {endpoint.site}: {found.why}", hint=found.hint, site=endpoint.site
    )
