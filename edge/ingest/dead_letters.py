"""Dead letters: a message the bridge cannot use, kept whole (or cut, with its digest) with the reason.

``fairlead bridge replay`` publishes a letter's message as ``fairlead/v1/replays/<offset>/<its MQTT topic>``, with the
same bytes. The bridge takes it for what was published on that topic. The offset is for the case that it refuses it
again: the new letter then says which one it repeats, and is never replayed itself.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from typing import Final

from edge.alerts.engine import AlertEngine
from edge.logwriter import records
from edge.logwriter.records import digest
from edge.logwriter.writer import LogEntry
from edge.messages import ROOT, Rejected, RejectReason
from edge.mqtt.acks import PendingAck
from edge.writer_registry import WriterRegistry
from fairlead.records.alert import Alert, Cause
from fairlead.records.edge import DeadLetter

REPLAYS_ROOT: Final = f"{ROOT}/replays/"
KEPT_TOPIC: Final = 1_024  # characters
_LONGEST_OFFSET: Final = 18  # digits; below 2^63
KEPT_BYTES = 256 * 1024  # base64 in JSON makes four bytes of three; the record stays well below a log's 1 MiB


def dead_letter(topic: str, payload: bytes, rejected: Rejected, received_ms: int) -> DeadLetter:
    """The record to keep for a rejected message; ``topic`` is the one that it came on."""
    topic, replay_of = unwrapped(topic)
    return DeadLetter(
        mqtt_topic=topic[:KEPT_TOPIC],
        reason=rejected.reason.value,
        detail=rejected.detail[:1024],
        payload=payload[:KEPT_BYTES],
        payload_bytes=len(payload),
        payload_sha256=hashlib.sha256(payload).hexdigest(),
        received_date_time=dt.datetime.fromtimestamp(received_ms / 1000, dt.UTC),
        replay_of=replay_of,
    )


def letter_key(letter: DeadLetter) -> bytes:
    """What a letter is recognised by when the MQTT broker sends its message again."""
    repeats = () if letter.replay_of is None else (str(letter.replay_of),)
    return digest(letter.mqtt_topic, letter.payload_sha256, *repeats)


def wrapped(offset: int, mqtt_topic: str) -> str:
    """The MQTT topic on which the message of the letter at ``offset`` is published again."""
    return f"{REPLAYS_ROOT}{offset}/{mqtt_topic}"


def unwrapped(mqtt_topic: str) -> tuple[str, int | None]:
    """The MQTT topic that a message counts as published on, and of a replayed one its letter's offset."""
    if mqtt_topic.startswith(REPLAYS_ROOT):
        offset, _, topic = mqtt_topic[len(REPLAYS_ROOT) :].partition("/")
        if topic and offset.isascii() and offset.isdecimal() and len(offset) <= _LONGEST_OFFSET:
            return topic, int(offset)
    return mqtt_topic, None


class DeadLetters:
    """Puts messages that cannot be used into the site's dead-letter log.

    Args:
        engine: The alert engine of a ship, which raises alerts about wrong device clocks; None ashore.
    """

    def __init__(self, writers: WriterRegistry, engine: AlertEngine | None) -> None:
        self._writers = writers
        self._engine = engine

    def reject(
        self, rejected: Rejected, topic: str, payload: bytes, redelivered: bool, ack: PendingAck | None, now_ms: int
    ) -> None:
        """Keep a message as a dead letter; it is acknowledged when the letter is stored."""
        if self._engine is not None and rejected.reason is RejectReason.DEVICE_CLOCK:
            self._writers.alerts.append_alerts(self._clock_alerts(self._engine, rejected, topic, payload, now_ms), ack)
        self._writers.metrics.refused_by_reason[rejected.reason.value] += 1
        letter = dead_letter(topic, payload, rejected, now_ms)
        self._writers.letters.enqueue(LogEntry(records.dead(letter, now_ms), letter_key(letter), redelivered, ack))

    def _clock_alerts(
        self, engine: AlertEngine, rejected: Rejected, topic: str, payload: bytes, now_ms: int
    ) -> list[Alert]:
        """The alert about a container whose readings are rejected, so that no rule sees them."""
        identity = records.identity(payload)
        match topic.split("/"):
            case [_, _, "containers", number, "readings"] if identity is not None:
                device, boot, sequence = identity
                cause = Cause(
                    log=self._writers.letters.log, offset=-1, device_id=device, boot_id=boot, sequence=sequence
                )
                return engine.refused(number, cause, rejected.detail, now_ms)
        return []
