"""The board's audit log: who signed in and out, who was refused, who looked at which container, who changed an alert.

One JSON object a line in ``board-audit.jsonl`` of the topology's run folder, which only its owner can read. It has no
passwords, tokens or cookies.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Final

from fairlead.home import private_folder

FILE: Final = "board-audit.jsonl"
AGAIN: Final = 3600.0
"""Seconds after which a page that reads itself again is noted again."""


class AuditLog:
    """Appends to the log. May be used from several threads."""

    def __init__(self, folder: Path) -> None:
        """``folder`` is the folder ``run`` of the topology's state."""
        self.file = private_folder(folder) / FILE
        self.events: Counter[str] = Counter()
        """How many lines of each event this process has written."""
        self._lock = threading.Lock()
        self._looks: dict[tuple[str, str, str], float] = {}

    def note(self, event: str, who: str, address: str, **facts: str) -> None:
        """Append one event with its time.

        Raises:
            OSError: the file cannot be written; nothing that has to be recorded happens without its record.
        """
        line = json.dumps(
            {"at": dt.datetime.now(dt.UTC).isoformat(), "event": event, "who": who, "from": address, **facts}
        )
        with self._lock:
            descriptor = os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(descriptor, line.encode() + b"\n")
            finally:
                os.close(descriptor)
            self.events[event] += 1

    def note_look(self, who: str, address: str, container: str, *, again: bool = False) -> None:
        """Append that somebody looks at a container.

        Args:
            again: An open page reads itself anew; that is noted once in ``AGAIN`` seconds.

        Raises:
            OSError: as ``note``.
        """
        key, now = (who, address, container), time.monotonic()
        before = self._looks.get(key)
        if again and before is not None and now - before < AGAIN:
            return
        self.note("looked-at-container", who, address, container=container)
        self._looks = {each: at for each, at in self._looks.items() if now - at < AGAIN} | {key: now}
