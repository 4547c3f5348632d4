"""Messages that the bridge keeps when it may not, or cannot, append them to their logs: strays and dead letters.

Also the record of a dead letter that an operator has replayed.
"""

from __future__ import annotations

from typing import Final

from fairlead.records.reading import Dated, Time

REPLAYS: Final = "fairlead.replays"
"""Topic of ``Replay`` at each site. It is not the log of any stream; the site's administrators write it."""


class Stray(Dated, frozen=True, kw_only=True):
    """A message for a log that this site does not hold (yet), kept in ``strays.<site>`` in order of arrival.

    Args:
        payload: The reading as published; if ``event`` is true, the equipment event that waits for custody.
        event: Only the site that keeps an event carries it out; other sites drain readings only.
        mqtt_topic: For an event: the topic that it was published on.
    """

    log: str
    payload: bytes
    received_date_time: Time
    event: bool = False
    mqtt_topic: str = ""


class DeadLetter(Dated, frozen=True, kw_only=True):
    """A message that the bridge could not use, kept whole in ``deadletters.<site>`` with the reason.

    ``reason`` is a stable code (``malformed-json``, ``invalid-fields``, ``wrong-check-digit``, ``number-mismatch``,
    ``unknown-owner``, ``unknown-ship``, ``unknown-port``, ``unknown-customer``, ``unknown-topic``, ``device-clock``,
    ``too-large``, ``not-holder``, ``flood``, ``foreign-booking``, ``internal-error``: ``edge.messages.RejectReason``),
    ``detail`` a sentence for a person. A payload larger than a log accepts is cut; ``payload_bytes`` is its full length
    and ``payload_sha256`` its digest.

    Args:
        replay_of: For a message that was replayed and refused again: the offset of its first letter in this log.
    """

    mqtt_topic: str
    reason: str
    detail: str
    payload: bytes
    payload_bytes: int
    payload_sha256: str
    received_date_time: Time
    replay_of: int | None = None


class Replay(Dated, frozen=True, kw_only=True):
    """A dead letter's message was sent to its site's bridge again, and the MQTT broker has acknowledged it.

    This record does not have the result: either the message is in its log now, or the bridge refused it again and kept
    another letter.
    """

    log: str
    offset: int
    replayed_date_time: Time
    replayed_by: str
