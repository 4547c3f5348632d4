"""What the bridge keeps when it may not, or cannot, append a message to its log: strays and dead letters."""

from __future__ import annotations

import datetime as dt

from fairlead.records.reading import Base


class Stray(Base, frozen=True, kw_only=True):
    """A message for a log that this site does not (yet) hold, kept in ``strays.<site>`` in order of arrival.

    Args:
        payload: The reading as published; where ``event`` is true, the equipment event that waits for custody.
        event: Only the site that keeps it carries it out; other sites drain readings only.
        mqtt_topic: Of an event: where it was published.
    """

    log: str
    payload: bytes
    received_date_time: dt.datetime
    event: bool = False
    mqtt_topic: str = ""


class DeadLetter(Base, frozen=True, kw_only=True):
    """A message the bridge could not use, kept whole in ``deadletters.<site>`` with the reason.

    ``reason`` is a stable code (``malformed-json``, ``invalid-fields``, ``wrong-check-digit``, ``number-mismatch``,
    ``unknown-owner``, ``unknown-ship``, ``unknown-port``, ``unknown-customer``, ``unknown-topic``, ``device-clock``,
    ``too-large``, ``not-holder``; see ``edge.messages.Reason``), ``detail`` a sentence for a person. A payload larger
    than what a log takes is cut, ``payload_bytes`` tells its full length and ``payload_sha256`` its digest.
    """

    mqtt_topic: str
    reason: str
    detail: str
    payload: bytes
    payload_bytes: int
    payload_sha256: str
    received_date_time: dt.datetime
