"""An audit asks a site for its logs' offsets while the site's brokers are in trouble."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from fairlead.errors import FairleadError, RefusedError
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.types import TopicPartition
from replication.audit import ranges
from replication.audit.ranges import Inquiries, Inquiry

TOKYO = KafkaEndpoint("tokyo", (("127.0.0.1", 1),), user="admin")
LOGS = [TopicPartition("s.a"), TopicPartition("s.b", 3)]


class Broker:
    """A broker that answers with errors first: one entry of a log's list for each request."""

    def __init__(self, errors: Mapping[str, list[int]]) -> None:
        self.errors = {topic: list(codes) for topic, codes in errors.items()}
        self.asked: list[list[str]] = []

    def list_offsets(self, wanted: Mapping[Any, Any], **_: Any) -> dict[Any, Future[Any]]:
        self.asked.append([tp.topic for tp in wanted])
        return {tp: self.answer(tp.topic, SimpleNamespace(offset=7)) for tp in wanted}

    def describe_configs(self, resources: list[Any], **_: Any) -> dict[Any, Future[Any]]:
        policy = {"cleanup.policy": SimpleNamespace(value="compact,delete")}
        return {each: self.answer(each.name, policy) for each in resources}

    def answer(self, topic: str, good: Any) -> Future[Any]:
        future: Future[Any] = Future()
        left = self.errors.get(topic)
        if left:
            future.set_exception(KafkaException(KafkaError(left.pop(0))))
        else:
            future.set_result(good)
        return future


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "PAUSE", 0)
    monkeypatch.setattr(ranges, "GONE_AFTER", 0)


def site(monkeypatch: pytest.MonkeyPatch, **errors: list[int]) -> tuple[Inquiry, Broker]:
    broker = Broker({f"s.{key}": codes for key, codes in errors.items()})
    monkeypatch.setattr(ranges, "require_answer", lambda _endpoint: broker)
    return Inquiry(TOKYO), broker


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError._TIMED_OUT,  # noqa: SLF001 - its public name
    ],
)
def test_what_may_be_right_in_a_moment_is_asked_again(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """A request that fails with a retriable error is repeated."""
    inquiry, broker = site(monkeypatch, b=[code, code])
    assert inquiry.extents(LOGS) == {tp: (7, 7) for tp in LOGS}
    assert broker.asked == [["s.a", "s.b"], ["s.b"], ["s.b"], ["s.a", "s.b"]]  # only the failed part


def test_a_log_that_is_gone_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that was deleted is left out."""
    inquiry, _ = site(monkeypatch, b=[KafkaError.UNKNOWN_TOPIC_OR_PART] * 2)
    assert list(inquiry.extents(LOGS)) == LOGS[:1]
    site(monkeypatch, b=[KafkaError.UNKNOWN_TOPIC_OR_PART] * 2)
    with pytest.raises(FairleadError, match=r"s\.b/3 was deleted"):
        Inquiries(TOKYO, TOKYO).starts(LOGS)


def test_a_broker_that_has_just_started_gets_time_to_know_its_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that has just started gets time to load its topics."""
    monkeypatch.setattr(ranges, "GONE_AFTER", 30)
    inquiry, _ = site(monkeypatch, b=[KafkaError.UNKNOWN_TOPIC_OR_PART] * 2)
    assert list(inquiry.extents(LOGS)) == LOGS


def test_a_refusal_is_told_with_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal is reported with the name of the log."""
    inquiry, _ = site(monkeypatch, b=[KafkaError.TOPIC_AUTHORIZATION_FAILED])
    with pytest.raises(RefusedError, match=r"offsets of s\.b/3"):
        inquiry.extents(LOGS)


def test_settings_that_may_not_be_read_count_as_not_compacted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log whose settings may not be read is treated as not compacted."""
    inquiry, _ = site(monkeypatch, b=[KafkaError.TOPIC_AUTHORIZATION_FAILED])
    assert inquiry.compacted(["s.a", "s.b"]) == {"s.a"}
