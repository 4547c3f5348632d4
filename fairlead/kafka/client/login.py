"""Log in over a connection by any of Kafka's mechanisms; make TLS contexts, with a client certificate where one counts.

What proves the user (a password, or a token) is read before the exchange begins: a token may take seconds to get.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import struct
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, Protocol, TypeVar

from pydantic import SecretStr

from fairlead.certs.trust import TrustError, client_context, trouble
from fairlead.errors import FairleadError
from fairlead.kafka import tokens
from fairlead.kafka.endpoint import KafkaEndpoint, SaslMechanism
from fairlead.kafka.protocol.coding import NO_TAGS, FieldReader, Question, blob
from fairlead.kafka.protocol.errors import AuthenticationFailed, ConnectionLost, broker_error
from fairlead.kafka.protocol.scram import ScramClient
from fairlead.kafka.protocol.versions import SASL_AUTHENTICATE, SASL_HANDSHAKE

T = TypeVar("T")

_I16: Final = struct.Struct(">h")
_I64: Final = struct.Struct(">q")
_HEAD: Final = struct.Struct(">hi")


class AskBroker(Protocol):
    """Sends a request on the connection that logs in."""

    async def __call__(self, question: Question[T]) -> T: ...


class Offer(NamedTuple):
    """A broker's answer to the handshake."""

    error_code: int
    mechanisms: tuple[str, ...]


class Step(NamedTuple):
    """A broker's answer to one step of the login."""

    error_code: int
    message: str | None
    data: bytes
    lifetime_ms: int


async def read_secret(endpoint: KafkaEndpoint, unlike: SecretStr | None = None) -> SecretStr:
    """Return what proves the user: its password, or a token, which this may have to ask for first.

    Args:
        unlike: The token of the session that is to be prolonged.

    Raises:
        AuthenticationFailed: the token endpoint refuses the user, or a file or library is missing.
        ConnectionLost: the token endpoint does not answer now.
    """
    source = endpoint.login.tokens
    if source is None:
        return endpoint.password or SecretStr("")
    found = tokens.cached(source, endpoint.login_name, endpoint.password, unlike=unlike)
    if found is None:
        try:
            found = await asyncio.to_thread(
                tokens.obtain, source, endpoint.login_name, endpoint.password, site=endpoint.site, unlike=unlike
            )
        except FairleadError as error:
            kind = ConnectionLost if error.retriable else AuthenticationFailed
            raise kind(error.what, hint=error.hint, **error.fields) from error
    return found.text


_Send = Callable[[bytes], Awaitable[Step]]


async def login(call: AskBroker, endpoint: KafkaEndpoint, secret: SecretStr, address: str) -> int:
    """Log in over ``call``; return the milliseconds until the broker requires a new login, 0 for never.

    Raises:
        AuthenticationFailed: refused, or the server could not prove that it knows the password.
    """
    mechanism = endpoint.login.mechanism or SaslMechanism.SCRAM_SHA_512
    offer = await call(handshake(mechanism.on_the_wire))
    if offer.error_code:
        raise not_offered(endpoint, address, mechanism, offer.mechanisms)

    async def send(data: bytes) -> Step:
        answer = await call(authenticate(data))
        if answer.error_code:
            raise refused(endpoint, address, answer.message or broker_error(answer.error_code).name)
        return answer

    if mechanism.is_scram:
        done = await _scram(send, endpoint, secret, address)
    elif mechanism is SaslMechanism.PLAIN:
        done = await send(b"\0".join((b"", endpoint.login_name.encode(), secret.get_secret_value().encode())))
    else:
        done = await _bearer(send, endpoint, secret, address)
    return done.lifetime_ms


async def _scram(send: _Send, endpoint: KafkaEndpoint, secret: SecretStr, address: str) -> Step:
    digest = "sha256" if endpoint.login.mechanism is SaslMechanism.SCRAM_SHA_256 else "sha512"
    client = ScramClient(endpoint.login_name, secret.get_secret_value(), digest=digest)
    challenge = await send(client.first())
    try:
        proof = client.final(challenge.data)
        done = await send(proof)
        client.verify(done.data)
    except ValueError as error:
        reason = "the server could not prove that it knows this user's password"
        raise refused(endpoint, address, reason) from error
    return done


async def _bearer(send: _Send, endpoint: KafkaEndpoint, secret: SecretStr, address: str) -> Step:
    """Send a token (RFC 7628). A broker refuses it with JSON."""
    source = endpoint.login.tokens
    extensions = "".join(f"{name}={value}\1" for name, value in (source.extensions if source else ()))
    try:
        done = await send(f"n,,\1auth=Bearer {secret.get_secret_value()}\1{extensions}\1".encode())
        if done.data:
            raise refused(endpoint, address, f"the broker does not accept the token: {_status(done.data)}")
    except AuthenticationFailed:
        if source is not None:
            tokens.forget(source, endpoint.login_name, endpoint.password)
        raise
    return done


def _status(data: bytes) -> str:
    try:
        return str(json.loads(data)["status"])[:100]
    except (ValueError, KeyError, TypeError):
        return "no reason given"


def handshake(mechanism: str) -> Question[Offer]:
    """SaslHandshake: propose the mechanism."""
    name = mechanism.encode()
    return Question(*SASL_HANDSHAKE, _I16.pack(len(name)) + name, _offer, flexible=False)


def authenticate(data: bytes) -> Question[Step]:
    """SaslAuthenticate: send one step of the mechanism."""
    return Question(*SASL_AUTHENTICATE, blob(data) + NO_TAGS, _step)


def _offer(body: memoryview) -> Offer:
    code, count = _HEAD.unpack_from(body)
    at, names = _HEAD.size, []
    for _ in range(count):
        (size,) = _I16.unpack_from(body, at)
        names.append(str(body[at + 2 : at + 2 + size], "utf-8"))
        at += 2 + size
    return Offer(code, tuple(names))


def _step(body: memoryview) -> Step:
    reader = FieldReader(body)
    (code,) = reader.unpack(_I16)
    message, data = reader.text(), reader.blob() or b""
    (lifetime,) = reader.unpack(_I64)
    return Step(code, message, data, lifetime)


def refused(endpoint: KafkaEndpoint, address: str, reason: str) -> AuthenticationFailed:
    """Make the error for a refused login; it names site, user and mechanism, never the password."""
    variable = f"FAIRLEAD_SECRET_{endpoint.site}_{endpoint.user}".upper().replace("-", "_").replace(".", "_")
    mechanism = endpoint.login.mechanism or SaslMechanism.SCRAM_SHA_512
    hint = (
        f"the password of {endpoint.user!r} at {endpoint.site!r} comes from {variable}, else from the "
        "secrets.json of the topology's state folder; correct it, or create the user again with `fairlead acl apply`"
    )
    if mechanism is SaslMechanism.PLAIN:
        hint = f"name (logins in the topology) and secret ({variable}) must be those of one user or API key there"
    elif mechanism is SaslMechanism.OAUTHBEARER:
        hint = "do the issuer, audience and key set that the broker expects fit the token endpoint? see its server.log"
    elif mechanism is SaslMechanism.AWS_MSK_IAM:
        hint = "the IAM role of this machine needs kafka-cluster:Connect on the cluster"
    return AuthenticationFailed(
        f"Kafka of site {endpoint.site!r} at {address} refused the login of user {endpoint.user!r} by {mechanism}: "
        f"{reason}",
        hint=hint,
        **_fields(endpoint, address),
        mechanism=str(mechanism),
    )


def not_offered(
    endpoint: KafkaEndpoint, address: str, mechanism: SaslMechanism, offered: tuple[str, ...]
) -> AuthenticationFailed:
    """Make the error for a broker that does not know the mechanism: what it offers, and which of that works here."""
    usable = [each for each in SaslMechanism if each in offered]
    hint = f"set sasl_mechanism of {endpoint.site} to {' or '.join(usable)}" if usable else "use another listener"
    if not offered:
        hint = "this port wants no login by SASL: use the port of a SASL listener, or security: SSL"
    return AuthenticationFailed(
        f"Kafka of site {endpoint.site!r} at {address} offers {', '.join(offered) or 'no mechanism'} to log in, "
        f"not {mechanism.on_the_wire}",
        hint=hint,
        **_fields(endpoint, address),
        mechanism=str(mechanism),
        offered=list(offered),
    )


def _fields(endpoint: KafkaEndpoint, address: str) -> dict[str, str | None]:
    return {"site": endpoint.site, "user": endpoint.user, "address": address}


def tls_context(endpoint: KafkaEndpoint) -> ssl.SSLContext | None:
    """Return the TLS context for this endpoint, or None where it has no TLS.

    Raises:
        AuthenticationFailed: its file of trusted authorities, or the user's certificate or key, cannot be used.
    """
    if not endpoint.tls:
        return None
    try:
        context = client_context(endpoint.tls_ca, site=endpoint.site, verify_host=endpoint.tls_verify_hostname)
    except TrustError as error:
        raise AuthenticationFailed(error.what, hint=error.hint, **error.fields) from error
    certificate, key = endpoint.login.certificate, endpoint.login.key
    if certificate is not None:
        try:
            context.load_cert_chain(certificate, key, password=_no_password)
        except (OSError, ValueError) as error:  # includes ssl.SSLError
            why = (error.strerror if isinstance(error, OSError) else None) or str(error)
            raise AuthenticationFailed(
                f"the certificate of {endpoint.user!r} at {endpoint.site!r} cannot be used: {why}",
                hint=f"PEM files: the certificate with its chain in {certificate}, its key without a password in {key}",
                site=endpoint.site,
                user=endpoint.user,
                path=str(certificate),
            ) from error
    return context


def _no_password() -> str:
    raise ValueError("the key is protected by a password")  # OpenSSL would ask at the terminal


_CERTIFICATE_ALERTS: Final = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it wants a certificate of the client",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it wants a certificate of the client, or cannot read it",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not know the authority of the client's certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not accept the client's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client's certificate has expired",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "the client's certificate is revoked",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "it ended the handshake; it may want a certificate of the client",
}


def certificate_refused(endpoint: KafkaEndpoint, address: str, error: Exception | None) -> AuthenticationFailed | None:
    """Make the error for a server that refused the client's certificate; None for every other end of a connection."""
    why = _CERTIFICATE_ALERTS.get(error.reason) if isinstance(error, ssl.SSLError) and error.reason else None
    if why is None:
        return None
    has = endpoint.login.certificate
    own = f"the certificate is {has}" if has else "security: SSL and certificates: FOLDER in the topology give it one"
    return AuthenticationFailed(
        f"Kafka of site {endpoint.site!r} at {address} refused the connection of {endpoint.user!r}: {why}",
        hint=f"{own}; its authority must be one that the broker's listener trusts",
        **_fields(endpoint, address),
    )


def untrusted(endpoint: KafkaEndpoint, host: str, port: int, error: ssl.SSLError) -> AuthenticationFailed:
    """Make the error for a failed TLS handshake: the reason, and what to do."""
    found = trouble(error, host, endpoint.tls_ca)
    return AuthenticationFailed(
        f"no TLS with Kafka of site {endpoint.site!r} at {host}:{port}: {found.why}",
        hint=found.hint,
        site=endpoint.site,
        address=f"{host}:{port}",
    )
