"""A crash after every write of a batch, and the batch again, as Spark does: the tables are as they must be.

Between two writes nothing is kept, so a crash before one is a crash after the one before it. Without Spark: the jobs'
own functions for a batch. ``tests/integration/shore/test_crashes.py`` has the whole of it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.crashes import crash_everywhere
from tests.unit.shore import fleet as story


def test_boxes_and_devices(tmp_path: Path) -> None:
    fleet = story.Fleet(tmp_path)

    def batch(number: int) -> Callable[[], None]:
        hour = number * 3.0
        place = (story.TOKYO[0] + number * 0.5, story.TOKYO[1])
        rows: dict[str, list[dict[str, Any]]] = {
            "readings": [story.reading(number * 10, hour), story.reading(number * 10 + 1, hour - 5, story.OTHER)],
            "booking_changes": [story.change(number, hour, status="COMPLETED" if number % 2 else "CONFIRMED")],
            "positions": [story.position(number, hour + 0.5, place, speed=0.0 if number % 2 else 14.0)],
            "alerts": [story.alert(number, hour, alert_id=f"a{number}")],
        }
        fleet.append(rows)
        return lambda: fleet.update(rows)

    def check() -> None:
        assert fleet.differing() == []

    assert crash_everywhere(batch, check) >= len(story.DERIVED)
