"""The recorded schemas of the tables: released columns stay as they are."""

from __future__ import annotations

from shore.delta.evolution import broken_rules, recorded, schemas


def test_what_was_released_is_still_there() -> None:
    assert broken_rules(recorded(), schemas()) == []


def test_every_column_is_recorded() -> None:
    assert recorded() == schemas(), "python -m shore.delta.evolution records new columns"
