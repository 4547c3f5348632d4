"""What a Kafka cluster is told to let a user log in with a password: SCRAM-SHA-512, everywhere the same."""

from __future__ import annotations

from typing import Final

from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from pydantic import SecretStr

ITERATIONS: Final = 4096
"""The least that Kafka takes; more make each login cost more and protect no random password better."""


def credential(user: str, password: SecretStr) -> UserScramCredentialUpsertion:
    """The change that gives a user this password, and makes the user where there is none."""
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, ITERATIONS)
    return UserScramCredentialUpsertion(user, info, password.get_secret_value().encode())
