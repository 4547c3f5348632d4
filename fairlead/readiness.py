"""What bridges and replicators say of themselves in their status files, which they write every second.

Standard library only: containers ask every few seconds.
"""

from __future__ import annotations

import json
import time
from pathlib import Path


def why_not_ready(file: Path, *, fresh: float | None = None, now: float | None = None) -> str:
    """Why the writer of a status file is not at work; nothing when it is.

    Args:
        fresh: The most seconds that may have passed since it was written; None: any.
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
