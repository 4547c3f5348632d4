"""Check a bridge's or replicator's health by the status file that it writes every second.

This module imports only the standard library, because the health check of each container imports it every few seconds.
"""

from __future__ import annotations

import json
import time
from pathlib import Path


def health_problem(file: Path, *, fresh: float | None = None, now: float | None = None) -> str:
    """Return why the service that writes a status file is not ready; an empty string when it is.

    Args:
        fresh: Greatest age of the file in seconds; None for any age.
        now: Unix time.
    """
    try:
        body = json.loads(file.read_text(encoding="utf-8"))
        age = (time.time() if now is None else now) - file.stat().st_mtime
    except (OSError, ValueError) as error:
        return f"{file.name}: {error}"
    if fresh is not None and age > fresh:
        return f"{file.name} was written {age:.0f} s ago"
    ready = body["ready"] if "ready" in body else body["target"]["state"] == "up"
    return "" if ready else "it is not ready"
