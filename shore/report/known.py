"""Whether a container number is one, and whether the tables know it; if not, which are near."""

from __future__ import annotations

import difflib
from typing import Any, Final

from fairlead.errors import ConfigurationError
from fairlead.names import container_check_digit, is_container_number
from shore.report.slices import Slices, of_container

_TABLES: Final = ("containers_now", "custody", "bookings")  # small ones; a box of readings alone is looked for too


class UnknownContainerError(ConfigurationError):
    """A number that is no container number, or that no table knows; the hint names those that are near."""


def normalised(text: str) -> str:
    """A container number as the tables write it: capitals, no blanks or hyphens."""
    return "".join(text.split()).replace("-", "").upper()


def check_known(found: Slices, number: str) -> None:
    """Do nothing when some table has a row of the container, at whatever time.

    Raises:
        UnknownContainerError: the number is not valid by ISO 6346, or no table has it.
    """
    valid = is_container_number(number)
    for name in (*_TABLES, "readings"):
        found.add(name, of_container(number), as_=f"{name}_of_it")
        if valid and found.rows(f"select 1 from {name}_of_it limit 1"):  # noqa: S608  # our own names
            return
    for name in _TABLES:
        found.add(name, as_=f"all_{name}")
    rows = found.rows(" union ".join(f"select equipment_reference as n from all_{name}" for name in _TABLES))  # noqa: S608
    known = sorted(row["n"] for row in rows if row["n"])
    near = difflib.get_close_matches(number, known, n=3, cutoff=0.7)
    fields: dict[str, Any] = {"equipment_reference": number, "nearest": near}
    hint = f"near it: {', '.join(near)}" if near else f"the tables know {len(known):,} containers"
    if valid:
        raise UnknownContainerError(f"no table has container {number}", hint=hint, **fields)
    right = _corrected(number)
    if right is None:
        raise UnknownContainerError(
            f"{number!r} is no container number: ISO 6346 has four letters and seven digits (MSKU1234565)",
            hint=hint,
            **fields,
        )
    raise UnknownContainerError(
        f"{number} is no container number: its check digit must be {right[-1]}",
        hint=f"did you mean {right}? {hint}" if right in known else f"{right} is in no table; {hint}",
        **fields,
    )


def _corrected(number: str) -> str | None:
    """The number with the right check digit, if nothing else is wrong with it."""
    if len(number) not in (10, 11) or not number.isascii():
        return None
    try:
        right = number[:10] + container_check_digit(number[:10])
    except (ValueError, KeyError, IndexError):
        return None
    return right if is_container_number(right) else None
