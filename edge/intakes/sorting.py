"""What an intake makes of a message before the core gets it: checked and decoded, without any state. Pure."""

from __future__ import annotations

from edge.classifier import Classifier
from edge.intakes.frames import Item, MarkItem, NothingItem, ReadingItem, RefusedItem
from edge.intakes.names import is_own
from edge.messages import ReadingMessage, Rejected

_NOTHING = NothingItem()


class Sorter:
    """Sorts messages. ``marks`` is the topic of the core's own marks."""

    def __init__(self, classifier: Classifier, marks: str) -> None:
        self._classify = classifier.classify
        self._marks = marks

    def sort(self, topic: str, payload: bytes, redelivered: bool, received_ms: int) -> Item:
        """One message into one item."""
        if topic == self._marks:
            return MarkItem(payload)
        if is_own(topic):
            return _NOTHING
        message = self._classify(topic, payload, received_ms)
        if isinstance(message, ReadingMessage):
            device, boot, sequence = message.identity
            return ReadingItem(
                message.log,
                message.number,
                device,
                boot,
                sequence,
                message.device_ms,
                received_ms,
                redelivered,
                payload,
            )
        if isinstance(message, Rejected):
            return RefusedItem(topic, message.reason.value, message.detail, received_ms, redelivered, payload)
        return _NOTHING
