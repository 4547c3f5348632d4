"""Logging in: SASL/SCRAM-SHA-512 with kafka-python's mechanism (RFC 5802), and TLS contexts."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Final

from kafka.net.sasl import get_sasl_mechanism
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from fairlead.endpoint import KafkaEndpoint
from fairlead.wire.errors import AuthenticationFailed, broker_error

MECHANISM: Final = "SCRAM-SHA-512"
HANDSHAKE_VERSION: Final = 1
AUTHENTICATE_VERSION: Final = 2

Call = Callable[[Any, Any], Awaitable[Any]]  # (request, response class) -> decoded answer


async def login(call: Call, endpoint: KafkaEndpoint, address: str) -> int:
    """Log in over ``call``; the milliseconds after which the broker wants it again, 0 for never.

    Raises:
        AuthenticationFailed: refused, or the server could not prove that it knows the password.
    """
    password = endpoint.password.get_secret_value() if endpoint.password else ""
    answer = await call(SaslHandshakeRequest(version=HANDSHAKE_VERSION, mechanism=MECHANISM), SaslHandshakeResponse)
    if answer.error_code:
        offered = ", ".join(answer.mechanisms or ()) or "none"
        raise refused(endpoint, address, f"the broker offers {offered}, not {MECHANISM}")
    mechanism = get_sasl_mechanism(MECHANISM)(
        host=address, sasl_mechanism=MECHANISM, sasl_plain_username=endpoint.user, sasl_plain_password=password
    )
    lifetime = 0
    while not mechanism.is_done():
        request = SaslAuthenticateRequest(version=AUTHENTICATE_VERSION, auth_bytes=mechanism.auth_bytes())
        answer = await call(request, SaslAuthenticateResponse)
        if answer.error_code:
            raise refused(endpoint, address, answer.error_message or broker_error(answer.error_code).name)
        try:
            mechanism.receive(bytes(answer.auth_bytes))
        except (ValueError, KeyError) as error:
            reason = "the server could not prove that it knows this user's password"
            raise refused(endpoint, address, reason) from error
        lifetime = answer.session_lifetime_ms
    return int(lifetime)


def refused(endpoint: KafkaEndpoint, address: str, reason: str) -> AuthenticationFailed:
    """The error for a refused login; names user and site, never the password."""
    variable = f"FAIRLEAD_SECRET_{endpoint.site}_{endpoint.user}".upper().replace("-", "_").replace(".", "_")
    return AuthenticationFailed(
        f"Kafka of site {endpoint.site!r} at {address} refused the login of user {endpoint.user!r}: {reason}",
        hint=f"the password of {endpoint.user!r} at {endpoint.site!r} comes from {variable}, else from the "
        "secrets.json of the topology's state folder; correct it, or create the user again with `fairlead acl apply`",
        site=endpoint.site,
        user=endpoint.user,
        address=address,
    )


def tls_context(endpoint: KafkaEndpoint) -> ssl.SSLContext | None:
    """The TLS context for this endpoint, or None where it has no TLS."""
    if not endpoint.tls:
        return None
    context = ssl.create_default_context(cafile=None if endpoint.tls_ca is None else str(endpoint.tls_ca))
    context.check_hostname = endpoint.tls_verify_hostname
    return context
