"""Select dead letters for replay; the bridge treats a replayed message as it was first published."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

import msgspec
import paho.mqtt.client as paho
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from edge.ingest.classifier import Classifier
from edge.ingest.dead_letters import KEPT_BYTES, dead_letter, letter_key, unwrapped, wrapped
from edge.ingest.replay import Publisher, ReplayChoice, ReplayPlan, add
from edge.messages import EventMessage, ReadingMessage, Rejected, RejectReason
from fairlead.errors import RefusedError
from fairlead.kafka.endpoint import MqttEndpoint
from fairlead.records import decoder
from fairlead.records.edge import DeadLetter
from tests.support.edge.router_harness import RouterHarness
from tests.support.edge.samples import BOX, BOX_LOG, IMO, NOW, NOW_MS, event, reading, readings_topic, topology

HOUR = dt.timedelta(hours=1)
EVENTS = "fairlead/v1/events"
LETTER = decoder(DeadLetter)


def letter(
    topic: str = EVENTS,
    payload: bytes = b"{}",
    reason: RejectReason = RejectReason.INVALID_FIELDS,
    *,
    hours: float = 0,
    replay_of: int | None = None,
) -> DeadLetter:
    if replay_of is not None:
        topic = wrapped(replay_of, topic)
    return dead_letter(topic, payload, Rejected(reason, "a reason"), NOW_MS + int(hours * 3_600_000))


def chosen(
    letters: Iterable[DeadLetter], choice: ReplayChoice | None = None, replayed: Iterable[int] = ()
) -> ReplayPlan:
    made = ReplayPlan()
    for offset, each in enumerate(letters):
        add(made, offset, each, set(replayed), choice or ReplayChoice())
    return made


def test_everything_is_replayed_once_in_the_order_of_arrival_unless_told_again() -> None:
    """Every dead letter is replayed once, in the order of arrival; again only on request."""
    letters = [letter(hours=n) for n in range(4)]
    first = chosen(letters)
    assert (first.offsets, first.before, first.end) == ([0, 1, 2, 3], 0, 4)
    assert chosen(letters, replayed=[0, 2]).offsets == [1, 3]
    assert chosen(letters, replayed=[0, 2]).before == 2
    assert chosen(letters, ReplayChoice(again=True), replayed=[0, 2]).offsets == [0, 1, 2, 3]


def test_what_was_refused_again_is_never_replayed_beside_its_first_letter() -> None:
    """A letter about a refused replay is never replayed beside its first letter.

    Both contain the same message: with both, every replay would double their number.
    """
    letters = [letter(), letter(replay_of=0), letter(replay_of=0)]
    for choice in (ReplayChoice(), ReplayChoice(again=True)):
        made = chosen(letters, choice)
        assert (made.offsets, made.refused_again) == ([0], 2)


def test_what_was_not_kept_whole_cannot_be_replayed() -> None:
    """A message that was not kept whole cannot be replayed."""
    large = letter(payload=b"x" * (KEPT_BYTES + 1), reason=RejectReason.TOO_LARGE)
    long_topic = letter(topic="fairlead/v1/" + "x" * 2_000, reason=RejectReason.UNKNOWN_TOPIC)
    no_topic = letter(topic="(a topic that is not UTF-8)", reason=RejectReason.UNKNOWN_TOPIC)
    made = chosen([large, long_topic, no_topic])
    assert (made.offsets, made.cut) == ([], 3)


def test_the_table_counts_by_reason_with_the_oldest_and_the_newest() -> None:
    """The summary counts letters by reason, with the oldest and the newest."""
    made = chosen(
        [
            letter(payload=b"12345", reason=RejectReason.NOT_HOLDER, hours=2),
            letter(payload=b"123", reason=RejectReason.NOT_HOLDER, hours=1),
            letter(reason=RejectReason.MALFORMED_JSON, hours=5),
        ]
    )
    assert sorted(made.reasons) == ["malformed-json", "not-holder"]
    of = made.reasons["not-holder"]
    assert (of.count, of.size, of.oldest, of.newest) == (2, 8, NOW + HOUR, NOW + 2 * HOUR)


def test_an_operator_narrows_by_reason_time_device_and_log() -> None:
    """An operator can select by reason, time, device and log."""
    letters = [
        letter(readings_topic(), reading(1, name="a"), hours=0),
        letter(readings_topic(), reading(2, name="b"), hours=1),
        letter(EVENTS, event("LOAD"), RejectReason.NOT_HOLDER, hours=2),
        letter(f"fairlead/v1/ships/{IMO}/position", b"no JSON", RejectReason.MALFORMED_JSON, hours=3),
        letter("fairlead/v1/bookings", msgspec.json.encode({"equipmentReference": BOX}), hours=4),
        letter(EVENTS, b'{"device": 5, "payload": "nothing"}', hours=5),
    ]
    assert chosen(letters, ReplayChoice(reasons=["not-holder", "malformed-json"])).offsets == [2, 3]
    assert chosen(letters, ReplayChoice(since=NOW + HOUR)).offsets == [1, 2, 3, 4, 5]
    assert chosen(letters, ReplayChoice(since=NOW + HOUR, until=NOW + 3 * HOUR)).offsets == [1, 2]
    assert chosen(letters, ReplayChoice(devices=["b"])).offsets == [1]
    assert chosen(letters, ReplayChoice(logs=[BOX_LOG])).offsets == [0, 1, 2, 4]
    assert chosen(letters, ReplayChoice(logs=[BOX], devices=["a"])).offsets == [0]
    assert chosen(letters, ReplayChoice(logs=[f"ships.{IMO}.location"])).offsets == [3]
    assert chosen(letters, ReplayChoice(logs=[f"ships.{IMO}.environment", "location"])).offsets == []


@pytest.mark.parametrize(
    "topic",
    [
        "fairlead/v1/replays/",
        "fairlead/v1/replays/7",
        "fairlead/v1/replays/7/",
        "fairlead/v1/replays/-7/fairlead/v1/events",
        "fairlead/v1/replays/x/fairlead/v1/events",
        "fairlead/v1/replays/\u0667/fairlead/v1/events",
        "fairlead/v1/replays/" + "9" * 19 + "/fairlead/v1/events",
    ],
)
def test_what_only_looks_like_a_replay_is_an_unknown_topic(topic: str) -> None:
    """A topic that only resembles a replay is an unknown topic."""
    assert unwrapped(topic) == (topic, None)
    found = Classifier(topology(), "tokyo").classify(topic, b"{}", NOW_MS)
    assert isinstance(found, Rejected)
    assert found.reason == RejectReason.UNKNOWN_TOPIC


def test_a_replayed_message_is_what_it_was_published_as() -> None:
    """A replayed message keeps its original topic and payload."""
    classifier = Classifier(topology(), "tokyo")
    found = classifier.classify(wrapped(7, readings_topic()), reading(3), NOW_MS)
    assert isinstance(found, ReadingMessage)
    assert (found.log, found.identity.sequence) == (BOX_LOG, 3)
    assert isinstance(classifier.classify(wrapped(8, EVENTS), event("GTIN"), NOW_MS), EventMessage)
    twice = classifier.classify(wrapped(9, wrapped(7, EVENTS)), event("GTIN"), NOW_MS)
    assert isinstance(twice, Rejected)  # the bridge never writes such a letter


def test_a_replayed_message_is_stored_as_if_it_had_been_all_right_at_once() -> None:
    """A replayed message is stored as if it had been valid at first."""
    harness = RouterHarness("tokyo")
    assert harness.take(wrapped(7, readings_topic()), reading(3)) == BOX_LOG


def test_a_message_that_is_refused_again_says_which_letter_it_repeats() -> None:
    """A message that is refused again names the letter it repeats."""
    for replay_of in (None, 0, 7):
        topic = EVENTS if replay_of is None else wrapped(replay_of, EVENTS)
        made = dead_letter(topic, b"nothing", Rejected(RejectReason.MALFORMED_JSON, "no JSON"), NOW_MS)
        stored = LETTER.decode(msgspec.json.encode(made))
        assert (stored.mqtt_topic, stored.replay_of, stored.payload) == (EVENTS, replay_of, b"nothing")


def test_a_replay_that_the_broker_sends_again_is_not_taken_for_the_first_letter() -> None:
    """A replayed message that the broker sends again is not mistaken for its first letter.

    Otherwise it would be acknowledged without a letter of its own, and nobody would see that it was refused again.
    """
    keys = {letter_key(letter()), letter_key(letter(replay_of=0)), letter_key(letter(replay_of=1))}
    assert len(keys) == 3
    assert letter_key(letter(replay_of=1)) == letter_key(letter(replay_of=1, hours=3))


def test_a_message_that_nobody_listens_for_is_not_taken_for_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replayed message that no subscriber receives does not count as delivered.

    MQTT 3.1.1 would acknowledge it, and it would be lost.
    """

    def published(client: paho.Client, *_: object, **__: object) -> None:
        assert client.on_publish is not None
        client.on_publish(client, None, 1, ReasonCode(PacketTypes.PUBACK, "No matching subscribers"), None)  # type: ignore[call-arg, arg-type]

    monkeypatch.setattr(paho.Client, "publish", published)
    publisher = Publisher(MqttEndpoint("tokyo", "127.0.0.1", 1, "device", None))
    with pytest.raises(RefusedError, match="no bridge has ever run there"):
        publisher.publish([(EVENTS, b"")])
