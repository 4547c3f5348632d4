"""Container numbers for simulated fleets: ISO 6346, right check digits, no two alike. Pure functions."""

from __future__ import annotations

import random

from fairlead.errors import ConfigurationError
from fairlead.names import container_check_digit

SERIALS = 1_000_000  # six digits
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_VALUES = {letter: value for letter, value in zip(_LETTERS, (v for v in range(10, 39) if v % 11), strict=True)}


def remainder(ten: str) -> int:
    """The weighted sum of the first ten characters modulo 11 (ISO 6346); 10 is written as check digit 0."""
    return sum((_VALUES.get(c) or int(c)) << place for place, c in enumerate(ten)) % 11


def numbers(owner: str, count: int, rng: random.Random) -> list[str]:
    """``count`` different container numbers of one owner code (``BIGU``), in random order of serial.

    Serials whose remainder is 10 are skipped: they would share check digit 0 with remainder 0, so that one digit
    misread could go unnoticed.

    Raises:
        ConfigurationError: an owner code has fewer than ``count`` usable serials.
    """
    found: list[str] = []
    seen: set[int] = set()
    if count > SERIALS * 0.9:  # about one serial in eleven is skipped
        raise ConfigurationError(
            f"{count} containers of owner {owner} are more than its serial numbers allow",
            hint="use fewer containers, or spread them over several owner codes; at most 900000 for each",
        )
    while len(found) < count:
        serial = rng.randrange(SERIALS)
        if serial in seen:
            continue
        seen.add(serial)
        ten = f"{owner}{serial:06d}"
        if remainder(ten) != 10:
            found.append(ten + container_check_digit(ten))
    return found
