"""What an administrator's client is given of time, and which errors say that a login was refused."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from fairlead.errors import FairleadError, RefusedError, UnavailableError
from fairlead.kafka import admin
from fairlead.kafka.admin import login_refused
from fairlead.kafka.endpoint import KafkaEndpoint, KafkaLogin

ENDPOINT = KafkaEndpoint("tokyo", (("127.0.0.1", 1),), "admin")
SILENCE = KafkaError(KafkaError._TIMED_OUT)  # noqa: SLF001 - its name


class Growing:
    """A client of a cluster that answers with these errors when topics get more partitions."""

    def __init__(self, errors: dict[str, int]) -> None:
        self._errors = errors

    def create_partitions(self, new: list[Any], **_: Any) -> dict[str, Future[None]]:
        out: dict[str, Future[None]] = {each.topic: Future() for each in new}
        for topic, done in out.items():
            if topic in self._errors:
                done.set_exception(KafkaException(KafkaError(self._errors[topic])))
            else:
                done.set_result(None)
        return out


def test_a_topic_that_may_not_grow_is_told_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused topic is among the failures if there is a place for them, else it raises; one that has the partitions
    already is none."""
    errors = {"there": KafkaError.INVALID_PARTITIONS, "refused": KafkaError.TOPIC_AUTHORIZATION_FAILED}
    monkeypatch.setattr(admin, "require_answer", lambda _: Growing(errors))
    wanted, failures = dict.fromkeys(["refused", "there", "grown"], 3), dict[str, FairleadError]()
    admin.grow_topics(ENDPOINT, wanted, failures=failures)
    assert {topic: type(error) for topic, error in failures.items()} == {"refused": RefusedError}
    with pytest.raises(RefusedError):
        admin.grow_topics(ENDPOINT, wanted)


def test_a_missing_client_certificate_is_an_error_that_is_retried(tmp_path: Path) -> None:
    """Who renews a certificate replaces two files; a program that runs meanwhile tries again."""
    login = KafkaLogin(mechanism=None, certificate=tmp_path / "gone.pem", key=tmp_path / "gone.key")
    endpoint = KafkaEndpoint("tokyo", (("127.0.0.1", 1),), "admin", tls=True, login=login)
    with pytest.raises(UnavailableError, match="tokyo's Kafka"):
        admin.admin_client(endpoint)
    with pytest.raises(UnavailableError):
        admin.require_answer(endpoint, 0)


class Held:
    """A client and its machine, which is held up for so many seconds during the first try; later ones may succeed."""

    def __init__(self, held_up: float, succeeds_at: int) -> None:
        self.now, self.tries = 0.0, 0
        self._held_up, self._succeeds_at = held_up, succeeds_at

    def describe_cluster(self, *, request_timeout: float) -> Future[object]:
        self.tries += 1
        self.now += request_timeout + (self._held_up if self.tries == 1 else 0.0)
        done: Future[object] = Future()
        if self.tries < self._succeeds_at:
            done.set_exception(KafkaException(SILENCE))
        else:
            done.set_result(object())
        return done

    def poll(self, _: float) -> None:
        pass


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(held_up: float, succeeds_at: int) -> Held:
        made = Held(held_up, succeeds_at)
        monkeypatch.setattr(admin, "admin_client", lambda *_: made)
        monkeypatch.setattr("fairlead.kafka.admin.time.monotonic", lambda: made.now)
        return made

    return make


def test_a_machine_that_was_held_up_has_its_time_all_the_same(held: Any) -> None:
    client = held(45.0, 5)
    assert admin.require_answer(ENDPOINT, 5.0) is client


def test_a_site_that_says_nothing_is_given_up_in_time(held: Any) -> None:
    client = held(0.0, 1000)
    with pytest.raises(UnavailableError):
        admin.require_answer(ENDPOINT, 5.0)
    assert 5.0 < client.now <= 7.0


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("b: SASL authentication error: Authentication failed during authentication due to invalid credentials", True),
        ("b: SASL SCRAM-SHA-512 mechanism handshake failed: Broker: Unsupported SASL mechanism: broker's: PLAIN", True),
        ("b: SASL SCRAM-SHA-512 mechanism handshake failed: Local: Broker transport failure: broker's: (n/a)", False),
        ("b: SASL SCRAM-SHA-512 mechanism handshake failed: Local: Timed out: broker's: (n/a)", False),
    ],
)
def test_a_connection_that_ended_is_no_refused_login(text: str, refused: bool) -> None:
    error = KafkaError(KafkaError._AUTHENTICATION, text)  # noqa: SLF001 - its name
    assert login_refused(error) is refused
