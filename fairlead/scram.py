"""What a Kafka cluster is told to let a user log in by SCRAM-SHA-512, everywhere the same, and what it says then."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError
from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from pydantic import SecretStr

ITERATIONS: Final = 4096
"""The least that Kafka takes; more make each login cost more and protect no random password better."""

_LOGIN: Final = ("_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED")
_REFUSED: Final = ("SASL authentication error", "Unsupported SASL mechanism")  # in the texts of these


def credential(user: str, password: SecretStr) -> UserScramCredentialUpsertion:
    """The change that gives a user this password, and makes the user where there is none."""
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, ITERATIONS)
    return UserScramCredentialUpsertion(user, info, password.get_secret_value().encode())


def login_refused(error: KafkaError) -> bool:
    """Whether an error that the client reports of itself says that a broker refused the login.

    librdkafka (2.16) has the same code for a connection that ended, or was silent for too long, while client and broker
    were agreeing on a mechanism: no password had been sent then, and the next attempt may well succeed.
    """
    return error.name() in _LOGIN and any(reason in error.str() for reason in _REFUSED)
