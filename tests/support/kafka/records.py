"""A record and a marker with the present time."""

from __future__ import annotations

import secrets
import time

from fairlead.kafka.convention import marker_record
from fairlead.kafka.protocol.record import NewRecord


def record(text: str, key: str | None = None) -> NewRecord:
    """Return a record with the present time."""
    return NewRecord(text.encode(), None if key is None else key.encode(), timestamp_ms=int(time.time() * 1000))


def marker() -> NewRecord:
    """Return a marker that occurs nowhere else."""
    return marker_record(secrets.token_hex(8).encode(), timestamp_ms=int(time.time() * 1000))
