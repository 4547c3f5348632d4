"""Where a benchmark's figures go, and what machine they are of."""

from __future__ import annotations

import json
import os
import platform
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
    }


def write(name: str, figures: dict[str, Any]) -> None:
    """Write ``build/bench/NAME.json``."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{name}.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
