"""Users of a running broker whose cluster may be without a controller for a while."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from pydantic import SecretStr

from fairlead.errors import UnavailableError
from fairlead.local.kafka import ensure_users

TIMED_OUT = KafkaError._TIMED_OUT  # noqa: SLF001  # librdkafka's own have no other name
# The broker that was asked is one of the cluster no more.
GONE: int = KafkaError._DESTROY_BROKER  # type: ignore[attr-defined]  # noqa: SLF001
USERS = {"one": SecretStr("1"), "two": SecretStr("2")}


class Scripted:
    """Answers each request for a user with the next of its errors, then takes it."""

    def __init__(self, **errors: list[int]) -> None:
        self.errors = errors
        self.asked: list[list[str]] = []

    def alter_user_scram_credentials(self, wanted: list[Any], request_timeout: float) -> dict[str, Future[None]]:
        assert request_timeout > 0
        self.asked.append([each.user for each in wanted])
        return {each.user: self._answer(each.user) for each in wanted}

    def _answer(self, user: str) -> Future[None]:
        done: Future[None] = Future()
        if errors := self.errors.get(user):
            done.set_exception(KafkaException(KafkaError(errors.pop(0))))
        else:
            done.set_result(None)
        return done


def ensure(admin: Scripted, timeout: float = 60) -> None:
    ensure_users(cast(AdminClient, admin), USERS, timeout=timeout)


def test_nobody_is_asked_when_there_are_no_users() -> None:
    admin = Scripted()
    ensure_users(cast(AdminClient, admin), {})
    assert admin.asked == []


@pytest.mark.parametrize("passing", [TIMED_OUT, GONE, KafkaError.NOT_CONTROLLER, KafkaError.REQUEST_TIMED_OUT])
def test_who_was_not_answered_is_asked_again_alone(passing: int) -> None:
    admin = Scripted(two=[passing, passing])
    ensure(admin)
    assert admin.asked == [["one", "two"], ["two"], ["two"]]


def test_a_refusal_is_told_at_once() -> None:
    admin = Scripted(one=[KafkaError.CLUSTER_AUTHORIZATION_FAILED])
    with pytest.raises(UnavailableError, match="one could not be created: CLUSTER_AUTHORIZATION_FAILED"):
        ensure(admin)
    assert len(admin.asked) == 1


def test_it_is_given_up_in_time() -> None:
    with pytest.raises(UnavailableError, match="_TIMED_OUT"):
        ensure(Scripted(one=[TIMED_OUT] * 1000), timeout=0.001)
