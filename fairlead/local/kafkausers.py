"""Users of a running broker: SCRAM credentials that it passes on to its cluster's controllers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, UserScramCredentialAlteration
from pydantic import SecretStr

from fairlead.errors import UnavailableError
from fairlead.scram import credential

_TIMEOUT = 180.0  # seconds, as for a broker to be ready
_REQUEST = 10.0  # seconds; 0.02 on a quiet machine
_PASSING = {"_TIMED_OUT", "_TRANSPORT", "REQUEST_TIMED_OUT", "NOT_CONTROLLER"}


def ensure_users(admin: AdminClient, users: Mapping[str, SecretStr], *, timeout: float = _TIMEOUT) -> None:
    """Create SCRAM users of a running broker, or give them these passwords.

    A broker passes the change on to the controllers' leader; while those elect one, for as long as two of three brokers
    need to find each other again, requests pass without an answer and are sent again: the change may be made twice.

    Raises:
        UnavailableError: the broker did not take one within ``timeout`` seconds.
    """
    end, left = time.monotonic() + timeout, dict(users)
    while left:
        wanted: list[UserScramCredentialAlteration] = [credential(u, p) for u, p in left.items()]
        asked = admin.alter_user_scram_credentials(wanted, request_timeout=min(timeout, _REQUEST))
        for user, done in asked.items():
            try:
                done.result()
                del left[user]
            except KafkaException as error:
                cause: Any = error.args[0]  # its name only is told: its text may carry the whole request
                if not (cause.retriable() or cause.name() in _PASSING) or time.monotonic() > end:
                    raise UnavailableError(
                        f"the user {user} could not be created: {cause.name()}", hint="see the broker's server.log"
                    ) from error
