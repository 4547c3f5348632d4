"""Change a Kafka user's password, and wait until the cluster accepts it; tell whether somebody has changed one.

Kafka keeps one password for each user and mechanism: after the change every login needs the new one. Open sessions last
until the broker asks for the password again (``connections.max.reauth.ms``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from pydantic import SecretStr

from fairlead.errors import ConfigurationError, LoginRefusedError, UnavailableError
from fairlead.kafka.admin import explain, kafka_error, require_answer
from fairlead.kafka.client.login import authenticate, handshake, not_offered, refused
from fairlead.kafka.client.pool import Pool
from fairlead.kafka.endpoint import KafkaEndpoint, SaslMechanism
from fairlead.kafka.protocol.errors import SASL_AUTHENTICATION_FAILED
from fairlead.kafka.protocol.scram import ScramClient, salt_of

ITERATIONS: Final = 4096
"""Kafka's minimum. More iterations make each login slower and do not protect a random password better."""


def credential(
    user: str, password: SecretStr, mechanism: SaslMechanism | None = SaslMechanism.SCRAM_SHA_512
) -> UserScramCredentialUpsertion:
    """Make the change that sets a user's password, and creates the user if it does not exist."""
    kind = ScramMechanism.SCRAM_SHA_256 if mechanism is SaslMechanism.SCRAM_SHA_256 else ScramMechanism.SCRAM_SHA_512
    return UserScramCredentialUpsertion(
        user, ScramCredentialInfo(kind, ITERATIONS), password.get_secret_value().encode()
    )


def require_scram(endpoint: KafkaEndpoint) -> None:
    """Check that a cluster keeps its users' passwords itself, so that they can be set through Kafka.

    Raises:
        ConfigurationError: its users log in in another way.
    """
    mechanism = endpoint.login.mechanism
    if mechanism is None or not mechanism.is_scram:
        raise ConfigurationError(
            f"the Kafka of {endpoint.site} does not keep the secrets of its users: they log in by "
            f"{endpoint.login.shown}",
            hint="create users, and change their secrets, where the cluster's operator or provider keeps them",
            site=endpoint.site,
        )


_PAUSE = 0.05
_ANSWER = 20.0  # seconds for a cluster to answer before anything is changed
_TIMEOUT = 60.0  # seconds; waiting for a slow broker is better than leaving a rotation half done


class PasswordNotTaken(UnavailableError):
    """A broker received a new password and still refuses it."""


def give_password(admin: KafkaEndpoint, user: str, password: SecretStr) -> None:
    """Set a user's password, and return when every broker that answers accepts it.

    Raises:
        ConfigurationError: the cluster does not keep passwords.
        RefusedError: ``admin`` may not. UnavailableError: the cluster does not answer, or a broker still refuses the
            new password after a minute: the change may or may not have been made, and may be made again.
    """
    require_scram(admin)
    client = require_answer(admin, _ANSWER)
    change = credential(user, password, admin.login.mechanism)
    for done in client.alter_user_scram_credentials([change], request_timeout=_TIMEOUT).values():
        try:
            done.result()
        except KafkaException as error:
            raise explain(error, admin, f"change the password of {user}") from None
    login = replace(admin.login, name=None)
    user_now = replace(admin, user=user, password=password, other_passwords=(), login=login)
    away: list[UnavailableError] = []
    for address in admin.bootstrap:
        one = replace(user_now, bootstrap=(address,))
        try:
            wait_accepted(partial(accepts, one), f"{admin.site}'s Kafka at {address[0]}:{address[1]}", user, _TIMEOUT)
        except PasswordNotTaken:
            raise
        except UnavailableError as error:
            away.append(error)  # after a restart a broker reads the password before it accepts logins
    if len(away) == len(admin.bootstrap):
        raise away[0]


def take_password(admin: KafkaEndpoint, user: str) -> None:
    """Delete a user's passwords of every mechanism, so that it cannot log in. No error if it has none.

    Raises:
        RefusedError: ``admin`` may not. UnavailableError: the cluster does not answer.
    """
    client = require_answer(admin, _ANSWER)
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        change = UserScramCredentialDeletion(user, mechanism)
        for done in client.alter_user_scram_credentials([change], request_timeout=_TIMEOUT).values():
            try:
                done.result()
            except KafkaException as error:
                if kafka_error(error).name() != "RESOURCE_NOT_FOUND":
                    raise explain(error, admin, f"take away the password of {user}") from None


def accepts(endpoint: KafkaEndpoint) -> bool:
    """Whether a broker accepts this password.

    Raises:
        UnavailableError: it does not answer.
    """
    try:
        require_answer(endpoint, 5.0)
    except LoginRefusedError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class PasswordVersion:
    """Which password a user has at a site, told by its SCRAM salt: Kafka makes a new one whenever a password is set,
    also to the same one. ``salt`` is None if the user has no password there.
    """

    site: str
    salt: bytes | None


async def password_version(endpoint: KafkaEndpoint, *, client_id: str, request_timeout: float) -> PasswordVersion:
    """Return the version of the password of the endpoint's user, without knowing the password.

    Brokers send the salt to whoever begins to log in (RFC 5802). This ends the login there.

    Raises:
        ConfigurationError: users do not log in by SCRAM there.
        AuthenticationFailed: the listener does not offer the mechanism, or its certificate is not trusted.
        ConnectionLost, RequestTimeout: no broker answers.
    """
    require_scram(endpoint)
    mechanism = endpoint.login.mechanism or SaslMechanism.SCRAM_SHA_512
    pool = Pool(replace(endpoint, user=None, password=None, other_passwords=()), client_id, request_timeout)
    try:
        connection = await pool.any("control")
        offer = await connection.call(handshake(mechanism.on_the_wire))
        if offer.error_code:
            raise not_offered(endpoint, connection.address, mechanism, offer.mechanisms)
        challenge = await connection.call(authenticate(ScramClient(endpoint.login_name, "").first()))
    finally:
        await pool.close()
    if challenge.error_code == SASL_AUTHENTICATION_FAILED:  # no password was checked yet, so the user does not exist
        return PasswordVersion(endpoint.site, None)
    try:
        return PasswordVersion(endpoint.site, salt_of(challenge.data))
    except ValueError as error:
        raise refused(endpoint, connection.address, challenge.message or str(error)) from error


def wait_accepted(accepted: Callable[[], bool], where: str, user: str, timeout: float) -> None:
    """Wait until a broker accepts a new password, which it soon gets from its controller or reads from its file.

    Raises:
        PasswordNotTaken: it still refuses it after ``timeout`` seconds.
    """
    end = time.monotonic() + timeout
    while not accepted():
        if time.monotonic() > end:
            raise PasswordNotTaken(
                f"{where} still refuses the new password of {user} after {timeout:.0f} s",
                hint="see its log; the same command does the rest",
                user=user,
            )
        time.sleep(_PAUSE)  # no event announces it
