"""Where a broker is and how to log in: the values that every client is created from. Pure data.

Passwords are ``SecretStr``, so ``repr``, logs and tracebacks do not show them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from pydantic import SecretStr

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class KafkaEndpoint:
    """A Kafka cluster seen by one user.

    Args:
        site: Name of the site, for messages.
        bootstrap: ``(host, port)`` pairs, at least one.
        user: SCRAM-SHA-512 user, or None for a listener without authentication.
        tls_ca: PEM file of the authority that signed the brokers; None for the authorities of this machine.
        tls_verify_hostname: Host names are verified unless this is False (never for real use).
        other_passwords: Tried when ``password`` is refused: during a change either may be the accepted one.
        address_overrides: ``(advertised address, address to connect to)`` for brokers behind a tunnel or a proxy. TLS
            still checks the advertised name. Only ``fairlead.kafka`` uses them; librdkafka cannot.
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

    def reached_at(self, host: str, port: int) -> Address:
        """Return the address to connect to for a broker that advertises this one."""
        return dict(self.address_overrides).get((host, port), (host, port))

    @property
    def security_protocol(self) -> str:
        return ("SASL_" if self.user else "") + ("SSL" if self.tls else "PLAINTEXT")

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.bootstrap)

    def librdkafka(self) -> dict[str, str | int | float | bool]:
        """Return settings for confluent-kafka's clients. They contain the password, so never log them."""
        conf: dict[str, str | int | float | bool] = {
            "bootstrap.servers": self.bootstrap_servers,
            "security.protocol": self.security_protocol,
        }
        if self.user and self.password:
            conf |= {
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": self.user,
                "sasl.password": self.password.get_secret_value(),
            }
        if self.tls_ca:
            conf["ssl.ca.location"] = str(self.tls_ca)
        if self.tls and not self.tls_verify_hostname:
            conf["ssl.endpoint.identification.algorithm"] = "none"
        return conf


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
