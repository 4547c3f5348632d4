"""Dead letters: messages that the bridge cannot use, kept whole (or cut, with a digest) together with the reason.

``fairlead bridge replay`` publishes a letter's message as ``fairlead/v1/replays/<offset>/<its MQTT topic>``, with the
same bytes. The bridge treats it as if it came on that MQTT topic. If the bridge rejects the message again, the new
letter names the offset of the letter that it repeats, and is never replayed itself.
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
KEPT_BYTES = 256 * 1024  # base64 makes four bytes of three; the record stays well below a log's limit of 1 MiB


def dead_letter(topic: str, payload: bytes, rejected: Rejected, received_ms: int) -> DeadLetter:
    """Return the letter for a message that was rejected; ``topic`` is the MQTT topic it came on."""
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
    """Return the key by which a letter is recognised when the MQTT broker sends its message again."""
    repeats = () if letter.replay_of is None else (str(letter.replay_of),)
    return digest(letter.mqtt_topic, letter.payload_sha256, *repeats)


def wrapped(offset: int, mqtt_topic: str) -> str:
    """Return the MQTT topic on which to replay the message of the letter at ``offset``."""
    return f"{REPLAYS_ROOT}{offset}/{mqtt_topic}"


def unwrapped(mqtt_topic: str) -> tuple[str, int | None]:
    """Return a message's original MQTT topic, and for a replayed message the offset of its letter, otherwise None."""
    if mqtt_topic.startswith(REPLAYS_ROOT):
        offset, _, topic = mqtt_topic[len(REPLAYS_ROOT) :].partition("/")
        if topic and offset.isascii() and offset.isdecimal() and len(offset) <= _LONGEST_OFFSET:
            return topic, int(offset)
    return mqtt_topic, None


class DeadLetters:
    """Writes messages that cannot be used into the site's dead-letter log.

    Args:
        engine: The site's alert engine, which raises alerts about wrong device clocks.
    """

    def __init__(self, writers: WriterRegistry, engine: AlertEngine) -> None:
        self._writers = writers
        self._engine = engine

    def reject(
        self,
        rejected: Rejected,
        topic: str,
        payload: bytes,
        redelivered: bool,
        ack: PendingAck | None,
        now_ms: int,
        *,
        received_ms: int | None = None,
    ) -> None:
        """Keep a message as a dead letter, and acknowledge it when the letter is stored.

        Args:
            received_ms: When the message came, if it has waited since.
        """
        if rejected.reason is RejectReason.DEVICE_CLOCK:
            self._writers.alerts.append_alerts(self._clock_alerts(rejected, topic, payload, now_ms), ack)
        self._writers.metrics.dead_letters_by_reason[rejected.reason.value] += 1
        letter = dead_letter(topic, payload, rejected, now_ms if received_ms is None else received_ms)
        self._writers.letters.enqueue(LogEntry(records.dead(letter, now_ms), letter_key(letter), redelivered, ack))

    def _clock_alerts(self, rejected: Rejected, topic: str, payload: bytes, now_ms: int) -> list[Alert]:
        """Return the alert about a container whose readings are rejected, and so reach no alert rule."""
        identity = records.identity(payload)
        match topic.split("/"):
            case [_, _, "containers", number, "readings"] if identity is not None:
                device, boot, sequence = identity
                cause = Cause(
                    log=self._writers.letters.log, offset=-1, device_id=device, boot_id=boot, sequence=sequence
                )
                return self._engine.refused(number, cause, rejected.detail, now_ms)
        return []
