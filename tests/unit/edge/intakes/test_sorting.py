from __future__ import annotations

from edge.classifier import Classifier
from edge.intakes.frames import MarkItem, NothingItem, ReadingItem, RefusedItem
from edge.intakes.sorting import Sorter
from tests.unit.edge.samples import BOX, NOW, event, reading, readings_topic, topology

SITE = "tokyo"
SORTER = Sorter(Classifier(topology(), SITE), "fairlead/intakes/b/marks")
AT = int(NOW.timestamp() * 1000)


def test_a_reading_is_named_and_its_bytes_are_kept() -> None:
    payload = reading(7, number=BOX, at=NOW, name="dev")
    item = SORTER.sort(readings_topic(BOX), payload, True, AT)
    assert isinstance(item, ReadingItem)
    assert (item.log, item.device, item.sequence, item.device_ms) == (f"containers.{BOX}", "dev", 7, AT)
    assert (item.payload, item.redelivered, item.received_ms) == (payload, True, AT)


def test_what_cannot_be_used_has_its_reason() -> None:
    item = SORTER.sort(readings_topic(BOX), b"{", False, AT)
    assert isinstance(item, RefusedItem)
    assert (item.reason, item.topic) == ("malformed-json", readings_topic(BOX))
    unknown = SORTER.sort("fairlead/v1/nothing", b"{}", False, AT)
    assert isinstance(unknown, RefusedItem)
    assert unknown.reason == "unknown-topic"


REPLAYED = "fairlead/v1/replays/7/fairlead/v1/events"


def test_what_the_core_has_from_its_own_session_is_left_to_it() -> None:
    for topic in ("fairlead/v1/events", "fairlead/v1/bookings", "fairlead/v1/ships/9074729/position", REPLAYED):
        assert isinstance(SORTER.sort(topic, event("GTIN", number=BOX), False, AT), NothingItem)
    assert SORTER.sort("fairlead/intakes/b/marks", b"run:1", False, AT) == MarkItem(b"run:1")
