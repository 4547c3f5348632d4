"""Looking into data whose form nobody has checked yet: whatever has another form than expected counts as absent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def part(data: Any, key: str) -> dict[str, Any]:
    """A mapping inside data, empty when it has another form or is missing."""
    value = data.get(key) if isinstance(data, Mapping) else None
    return value if isinstance(value, dict) else {}


def items(data: Any, key: str) -> list[Any]:
    """A list inside data, empty when it has another form or is missing."""
    value = data.get(key) if isinstance(data, Mapping) else None
    return value if isinstance(value, list) else []


def text(data: Any, key: str) -> str | None:
    """A text inside data, None when it has another form or is missing."""
    value = data.get(key) if isinstance(data, Mapping) else None
    return value if isinstance(value, str) else None
