"""Log in with SASL/SCRAM-SHA-512 over a connection; make TLS contexts."""

from __future__ import annotations

import ssl
import struct
from typing import Final, NamedTuple, Protocol, TypeVar

from fairlead.certs.trust import TrustError, client_context, trouble
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.coding import NO_TAGS, FieldReader, Question, blob
from fairlead.kafka.protocol.errors import AuthenticationFailed, broker_error
from fairlead.kafka.protocol.scram import MECHANISM, ScramClient
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


async def login(call: AskBroker, endpoint: KafkaEndpoint, address: str) -> int:
    """Log in over ``call``; return the milliseconds until the broker requires a new login, 0 for never.

    Raises:
        AuthenticationFailed: refused, or the server could not prove that it knows the password.
    """
    password = endpoint.password.get_secret_value() if endpoint.password else ""
    offer = await call(handshake(MECHANISM))
    if offer.error_code:
        offered = ", ".join(offer.mechanisms) or "none"
        raise refused(endpoint, address, f"the broker offers {offered}, not {MECHANISM}")

    async def step(data: bytes) -> Step:
        answer = await call(authenticate(data))
        if answer.error_code:
            raise refused(endpoint, address, answer.message or broker_error(answer.error_code).name)
        return answer

    client = ScramClient(endpoint.user or "", password)
    challenge = await step(client.first())
    try:
        proof = client.final(challenge.data)
        done = await step(proof)
        client.verify(done.data)
    except ValueError as error:
        reason = "the server could not prove that it knows this user's password"
        raise refused(endpoint, address, reason) from error
    return done.lifetime_ms


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
    """Make the error for a refused login; it names user and site, never the password."""
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
    """Return the TLS context for this endpoint, or None where it has no TLS.

    Raises:
        AuthenticationFailed: its file of trusted authorities cannot be used.
    """
    if not endpoint.tls:
        return None
    try:
        return client_context(endpoint.tls_ca, site=endpoint.site, verify_host=endpoint.tls_verify_hostname)
    except TrustError as error:
        raise AuthenticationFailed(error.what, hint=error.hint, **error.fields) from error


def untrusted(endpoint: KafkaEndpoint, host: str, port: int, error: ssl.SSLError) -> AuthenticationFailed:
    """Make the error for a failed TLS handshake: the reason, and what to do."""
    found = trouble(error, host, endpoint.tls_ca)
    return AuthenticationFailed(
        f"no TLS with Kafka of site {endpoint.site!r} at {host}:{port}: {found.why}",
        hint=found.hint,
        site=endpoint.site,
        address=f"{host}:{port}",
    )
