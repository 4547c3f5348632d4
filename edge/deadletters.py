"""Dead letters: a message the bridge cannot use, kept whole (or cut, with its digest) with the reason. Pure."""

from __future__ import annotations

import datetime as dt
import hashlib

from edge.messages import Rejected
from fairlead.records.edge import DeadLetter

KEPT_BYTES = 256 * 1024  # base64 in JSON makes four bytes of three; the record stays well below a log's 1 MiB


def dead_letter(topic: str, payload: bytes, rejected: Rejected, received_ms: int) -> DeadLetter:
    """The record to keep for a rejected message."""
    return DeadLetter(
        mqtt_topic=topic[:1024],
        reason=rejected.reason.value,
        detail=rejected.detail[:1024],
        payload=payload[:KEPT_BYTES],
        payload_bytes=len(payload),
        payload_sha256=hashlib.sha256(payload).hexdigest(),
        received_date_time=dt.datetime.fromtimestamp(received_ms / 1000, dt.UTC),
    )
