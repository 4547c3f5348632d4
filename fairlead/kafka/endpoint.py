"""Where a broker is and how to log in: the values that every client is created from. Pure data.

Passwords are ``SecretStr``, so ``repr``, logs and tracebacks do not show them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import SecretStr

from fairlead.kafka.tokens import MskRegion, OidcEndpoint, TokenSource, obtain

Address = tuple[str, int]


class SaslMechanism(StrEnum):
    """How a user proves who it is, by Kafka's names. ``AWS_MSK_IAM`` is OAUTHBEARER with tokens for AWS."""

    SCRAM_SHA_512 = "SCRAM-SHA-512"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    PLAIN = "PLAIN"
    OAUTHBEARER = "OAUTHBEARER"
    AWS_MSK_IAM = "AWS_MSK_IAM"

    @property
    def on_the_wire(self) -> str:
        """What the client proposes to the broker."""
        return str(SaslMechanism.OAUTHBEARER if self is SaslMechanism.AWS_MSK_IAM else self)

    @property
    def is_scram(self) -> bool:
        """Whether the cluster itself keeps the passwords, so that its administrator can set them."""
        return self in (SaslMechanism.SCRAM_SHA_512, SaslMechanism.SCRAM_SHA_256)

    @property
    def by_password(self) -> bool:
        """Whether the broker is shown the user's password, or a proof of it."""
        return self.is_scram or self is SaslMechanism.PLAIN


@dataclass(frozen=True, slots=True)
class KafkaLogin:
    """How users of a cluster log in.

    Args:
        mechanism: None where the TLS certificate alone is the proof.
        name: What the cluster calls the user, if it chooses the names itself (API keys, OAuth clients).
        tokens: Where the tokens come from, for OAUTHBEARER and AWS_MSK_IAM.
        certificate, key: PEM files of the user's TLS certificate, with its chain, and of its key.
    """

    mechanism: SaslMechanism | None = SaslMechanism.SCRAM_SHA_512
    name: str | None = None
    tokens: TokenSource | None = None
    certificate: Path | None = None
    key: Path | None = None

    @property
    def shown(self) -> str:
        """How users log in, for messages."""
        return str(self.mechanism) if self.mechanism is not None else "a client certificate"


@dataclass(frozen=True, slots=True)
class KafkaEndpoint:
    """A Kafka cluster seen by one user.

    Args:
        site: Name of the site, for messages.
        bootstrap: ``(host, port)`` pairs, at least one.
        user: Fairlead's name of the user, or None for a listener without authentication.
        password: For OAUTHBEARER, the client's secret.
        tls_ca: PEM file of the authority that signed the brokers; None for the authorities of this machine.
        tls_verify_hostname: Host names are verified unless this is False (never for real use).
        other_passwords: Tried when ``password`` is refused: during a change either may be the accepted one.
        address_overrides: ``(advertised address, address to connect to)`` for brokers behind a tunnel or a proxy. TLS
            still checks the advertised name. Only ``fairlead.kafka`` uses them; librdkafka cannot.
        login: How the user proves who it is.
        rack: Where the client is, as Kafka's ``client.rack``: fetch sessions read from a replica there (KIP-392). Only
            ``fairlead.kafka`` uses it.
    """

    site: str
    bootstrap: tuple[Address, ...]
    user: str | None = None
    password: SecretStr | None = None
    tls: bool = False
    tls_ca: Path | None = None
    tls_verify_hostname: bool = True
    address_overrides: tuple[tuple[Address, Address], ...] = ()
    other_passwords: tuple[SecretStr, ...] = ()
    login: KafkaLogin = field(default_factory=KafkaLogin)
    rack: str = ""

    def reached_at(self, host: str, port: int) -> Address:
        """Return the address to connect to for a broker that advertises this one."""
        return dict(self.address_overrides).get((host, port), (host, port))

    @property
    def login_name(self) -> str:
        """The name with which the user logs in."""
        return self.login.name or self.user or ""

    @property
    def principal(self) -> str:
        """The user in the cluster's access rules, where the brokers do not map names otherwise."""
        return f"User:{self.login_name}"

    @property
    def uses_sasl(self) -> bool:
        """Whether the user logs in once it is connected; a TLS certificate may be the proof already."""
        return self.user is not None and self.login.mechanism is not None

    @property
    def security_protocol(self) -> str:
        return ("SASL_" if self.uses_sasl else "") + ("SSL" if self.tls else "PLAINTEXT")

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.bootstrap)

    def librdkafka(self) -> dict[str, Any]:
        """Return settings for confluent-kafka's clients. They contain the password, so never log them."""
        conf: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap_servers,
            "security.protocol": self.security_protocol,
        }
        if self.user:
            conf |= self._sasl()
        if self.tls_ca:
            conf["ssl.ca.location"] = str(self.tls_ca)
        if self.tls and not self.tls_verify_hostname:
            conf["ssl.endpoint.identification.algorithm"] = "none"
        if self.login.certificate and self.login.key:
            conf |= {"ssl.certificate.location": str(self.login.certificate), "ssl.key.location": str(self.login.key)}
        return conf

    def _sasl(self) -> dict[str, Any]:
        mechanism, tokens = self.login.mechanism, self.login.tokens
        secret = self.password.get_secret_value() if self.password else ""
        if mechanism is None or (mechanism.by_password and not secret):
            return {}
        conf: dict[str, Any] = {"sasl.mechanism": mechanism.on_the_wire}
        if mechanism.by_password:
            return conf | {"sasl.username": self.login_name, "sasl.password": secret}
        if isinstance(tokens, MskRegion):
            return conf | {"oauth_cb": partial(_token_of, self)}
        if isinstance(tokens, OidcEndpoint):
            conf |= {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": self.login_name,
                "sasl.oauthbearer.client.secret": secret,
                "sasl.oauthbearer.token.endpoint.url": tokens.url,
                "sasl.oauthbearer.scope": tokens.scope,
                "sasl.oauthbearer.extensions": ",".join(f"{name}={value}" for name, value in tokens.extensions),
                "https.ca.location": str(tokens.ca) if tokens.ca else "",
            }
        return {name: value for name, value in conf.items() if value}


def _token_of(endpoint: KafkaEndpoint, _: str) -> tuple[str, float]:
    """Return a token and its end, for librdkafka."""
    assert endpoint.login.tokens is not None  # noqa: S101 - it is one of Amazon's
    found = obtain(endpoint.login.tokens, endpoint.login_name, endpoint.password, site=endpoint.site)
    return found.text.get_secret_value(), found.ends


@dataclass(frozen=True, slots=True)
class MqttEndpoint:
    """A site's MQTT broker seen by one user.

    Args:
        tls: The connection is encrypted; the broker's certificate and name are verified with ``tls_ca``, a PEM file, or
            with the authorities of this machine when that is None. With ``tls_ca`` it is always true.
        keep_seconds: How long a device keeps a message after its acknowledgement, because a broker that is killed loses
            messages that it has not saved (docs/edge.md, profiles of the MQTT broker); 0 where that cannot happen, or
            does not matter.
    """

    site: str
    host: str
    port: int
    user: str | None = None
    password: SecretStr | None = None
    tls_ca: Path | None = None
    keep_seconds: float = 0.0
    other_passwords: tuple[SecretStr, ...] = ()  # as in ``KafkaEndpoint``
    tls: bool = False

    def __post_init__(self) -> None:
        if self.tls_ca is not None:
            object.__setattr__(self, "tls", True)


Endpoint = KafkaEndpoint | Callable[[], KafkaEndpoint]
"""An endpoint, or a function that returns the current one: passwords change while programs run."""
MqttWay = MqttEndpoint | Callable[[], MqttEndpoint]
"""The same for an MQTT broker."""

Seen = TypeVar("Seen", KafkaEndpoint, MqttEndpoint)
T = TypeVar("T")


def current(endpoint: Seen | Callable[[], Seen]) -> Seen:
    """Return the current endpoint."""
    return endpoint() if callable(endpoint) else endpoint


def with_each_password(endpoint: Seen) -> tuple[Seen, ...]:
    """Return one endpoint for each candidate password, ``password`` first; each has only that password."""
    known = dict.fromkeys((endpoint.password, *endpoint.other_passwords))
    return tuple(replace(endpoint, password=password, other_passwords=()) for password in known)


def try_credentials(endpoint: Seen, refused: type[Exception], work: Callable[[Seen], T]) -> T:
    """Try each candidate password until ``work`` does not raise ``refused``; re-raise the last error."""
    ways = with_each_password(endpoint)
    for way in ways[:-1]:
        with suppress(refused):
            return work(way)
    return work(ways[-1])
