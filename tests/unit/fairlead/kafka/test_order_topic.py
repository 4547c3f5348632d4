"""Orders by hand reach their topic, or it is said that they did not: without brokers."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError

from edge.custody.operator.execute import append_custody_orders
from fairlead.errors import RefusedError, UnavailableError
from fairlead.kafka import order_topic
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.order_topic import append_records
from fairlead.records.custody import CUSTODY_ORDERS, CustodyOrder
from replication.operations.links.access import append_orders
from replication.overrides import ORDERS_TOPIC, Override, OverrideKind

ENDPOINT = KafkaEndpoint("tokyo", (("localhost", 9092),), user="admin")
NOW = dt.datetime(2026, 9, 21, tzinfo=dt.UTC)


class Site:
    """A site's Kafka. ``answers``: of each record in turn an offset, an error, or None when it never answers."""

    def __init__(self) -> None:
        self.answers: list[int | KafkaError | None] = []
        self.topics: list[str] = []
        self.records: list[tuple[str, bytes | None, bytes]] = []
        self.settings: dict[str, Any] = {}

    def create(self, endpoint: KafkaEndpoint, topics: dict[str, dict[str, str]], *, client: object) -> set[str]:
        self.topics += topics
        return set(topics)

    def producer(self, settings: dict[str, Any]) -> Site:
        self.settings = settings
        return self

    def produce(
        self, topic: str, *, key: bytes | None, value: bytes, partition: int, on_delivery: Callable[..., None]
    ) -> None:
        assert partition == 0
        answer = self.answers[len(self.records)]
        self.records.append((topic, key, value))
        if answer is not None:
            error = answer if isinstance(answer, KafkaError) else None
            on_delivery(error, Message(answer if isinstance(answer, int) else None))

    def flush(self, seconds: float) -> int:
        return sum(each is None for each in self.answers)


class Message:
    def __init__(self, offset: int | None) -> None:
        self._offset = offset

    def offset(self) -> int | None:
        return self._offset


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    made = Site()
    monkeypatch.setattr(order_topic, "Producer", made.producer)
    monkeypatch.setattr(order_topic, "create_logs", made.create)
    monkeypatch.setattr(order_topic, "require_answer", lambda endpoint, timeout: object())
    return made


def test_records_are_appended_in_turn_and_their_offsets_told(site: Site) -> None:
    site.answers = [7, 8]
    found = append_records(ENDPOINT, "orders", [(b"k", b"one"), (None, b"two")], client_id="me", timeout=2)
    assert found == [7, 8]
    assert site.topics == ["orders"]
    assert site.records == [("orders", b"k", b"one"), ("orders", None, b"two")]
    assert site.settings["client.id"] == "me"
    assert site.settings["acks"] == "all"
    assert site.settings["message.timeout.ms"] == 2000


def test_a_refusal_is_raised_though_others_landed(site: Site) -> None:
    site.answers = [7, KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)]
    with pytest.raises(RefusedError, match="append to orders"):
        append_records(ENDPOINT, "orders", [(None, b"one"), (None, b"two")], client_id="me")


def custody_order() -> CustodyOrder:
    return CustodyOrder(
        order_id="o-1",
        kind="grant",
        log="containers.BIGU1000016",
        at_site="tokyo",
        to_site="sydney",
        ordered_date_time=NOW,
        ordered_by="ann",
    )


def test_an_order_about_custody_has_its_log_as_key(site: Site) -> None:
    site.answers = [3]
    append_custody_orders(ENDPOINT, [custody_order()])
    assert site.records[0][:2] == (CUSTODY_ORDERS, b"containers.BIGU1000016")


def test_an_order_about_custody_that_is_not_confirmed(site: Site) -> None:
    site.answers = [None]
    with pytest.raises(UnavailableError, match="confirmed 0 of 1 orders"):
        append_custody_orders(ENDPOINT, [custody_order()])


def replication_orders(count: int) -> list[Override]:
    return [Override(kind=OverrideKind.PAUSE, link="a->b", at=NOW, by="ann") for _ in range(count)]


def test_orders_about_links_end_after_the_last_of_them(site: Site) -> None:
    site.answers = [4, 5]
    assert append_orders(ENDPOINT, replication_orders(2)) == 6
    assert {topic for topic, _, _ in site.records} == {ORDERS_TOPIC}


def test_orders_about_links_that_are_not_all_confirmed(site: Site) -> None:
    site.answers = [4, None, None]
    with pytest.raises(UnavailableError, match="did not confirm 2 of 3 orders"):
        append_orders(ENDPOINT, replication_orders(3))
