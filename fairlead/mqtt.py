"""Code shared by Fairlead's MQTT clients: login, TLS errors in plain words, and one run of the network loop."""

from __future__ import annotations

import select
import ssl

import paho.mqtt.client as paho
from paho.mqtt.enums import MQTTErrorCode

from fairlead.certs.trust import client_context, trouble
from fairlead.errors import UntrustedError
from fairlead.kafka.endpoint import MqttEndpoint


def identify(client: paho.Client, endpoint: MqttEndpoint) -> None:
    """Set the user, and TLS if the endpoint has it, of a client that is not connected yet.

    Raises:
        TrustError: the endpoint's file of authorities cannot be used.
    """
    if endpoint.user is not None:
        client.username_pw_set(endpoint.user, endpoint.password.get_secret_value() if endpoint.password else None)
    if endpoint.tls:
        client.tls_set_context(client_context(endpoint.tls_ca, site=endpoint.site))


def untrusted(endpoint: MqttEndpoint, error: ssl.SSLCertVerificationError) -> UntrustedError:
    """Make the error for a broker whose certificate is not trusted: the reason, and what to do."""
    found = trouble(error, endpoint.host, endpoint.tls_ca)
    return UntrustedError(
        f"no TLS with the MQTT broker of {endpoint.site}: {found.why}", hint=found.hint, site=endpoint.site
    )


def poll_once(client: paho.Client, seconds: float) -> MQTTErrorCode:
    """Run a client's network loop once, as ``Client.loop`` does: wait up to ``seconds``, then read and write.

    ``Client.loop`` waits with ``select``, which takes no file descriptor from 1024 on: in a process with many open
    files, a running broker then seems to be away (paho 2.2).
    """
    sock = client.socket()
    if sock is None:
        return MQTTErrorCode.MQTT_ERR_NO_CONN
    waiting = select.poll()
    waiting.register(sock, select.POLLIN | (select.POLLOUT if client.want_write() else 0))
    decrypted = getattr(sock, "pending", int)()  # poll does not report bytes that TLS has read already
    events = waiting.poll(0 if decrypted else seconds * 1000)
    ready = events[0][1] if events else 0
    if decrypted or ready & ~select.POLLOUT:
        done = client.loop_read()
        if done != MQTTErrorCode.MQTT_ERR_SUCCESS:
            return done
    if ready & select.POLLOUT:
        done = client.loop_write()
        if done != MQTTErrorCode.MQTT_ERR_SUCCESS:
            return done
    return client.loop_misc()
