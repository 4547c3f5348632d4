"""What a client of librdkafka reports of itself while it tries again and again, and what that means."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError

_LOGIN: Final = ("_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED")
_REFUSED: Final = ("SASL authentication error", "Unsupported SASL mechanism")  # in the texts of these


def login_refused(error: KafkaError) -> bool:
    """Whether an error that the client reports of itself says that a broker refused the login.

    librdkafka (2.16) has the same code for a connection that ended, or was silent for too long, while client and broker
    were agreeing on a mechanism: no password had been sent then, and the next attempt may well succeed.
    """
    return error.name() in _LOGIN and any(reason in error.str() for reason in _REFUSED)


class Troubles:
    """The last report of each kind. Delivered when the client is polled.

    Apart from whoever owns the client: in a cycle with its own callback a client would keep its threads and sockets
    until the garbage is searched.
    """

    def __init__(self) -> None:
        self.refused: KafkaError | None = None
        self.untrusted: KafkaError | None = None
        self.down: KafkaError | None = None

    def note(self, error: KafkaError) -> None:
        """The client's ``error_cb``."""
        if login_refused(error):
            self.refused = error
        elif error.name() == "_SSL":
            self.untrusted = error
        elif error.name() == "_ALL_BROKERS_DOWN":
            self.down = error
