"""Where a benchmark's figures go, and what machine they are of."""

from __future__ import annotations

import json
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

FOLDER = Path("build/bench")


def machine() -> dict[str, Any]:
    """The machine and how busy it is now: call it before the measurement."""
    return {
        "cpu_count": os.cpu_count(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
        "fsync_ms": round(fsync_ms(), 3),
    }


def fsync_ms() -> float:
    """Milliseconds until a small new file is on the disk that has the brokers' data (``TMPDIR``): the median of nine.
    A broker does that twice for each new log."""
    taken = []
    with tempfile.TemporaryDirectory(prefix="fairlead-bench-") as folder:
        for number in range(9):
            began = time.perf_counter()
            with (Path(folder) / str(number)).open("wb") as file:
                file.write(b"x" * 100)
                file.flush()
                os.fsync(file.fileno())
            taken.append((time.perf_counter() - began) * 1e3)
    return statistics.median(taken)


def write(name: str, figures: dict[str, Any]) -> None:
    """Write ``build/bench/NAME.json``."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{name}.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
