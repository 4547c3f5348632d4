"""Options that are times or durations: the accepted forms, and the errors for others.

Every command parses them here, so that ``24h`` and ``2026-03-01`` mean the same everywhere. A time without a zone is
UTC.
"""

from __future__ import annotations

import datetime as dt
from typing import ClassVar

from fairlead.errors import ConfigurationError, ExitCode
from topologies.values import parse_duration


class TimeError(ConfigurationError):
    """An option is not a valid time, or two options leave no time between them."""

    exit_code: ClassVar[int] = ExitCode.USAGE


def parse_span(option: str, text: str) -> dt.timedelta:
    """Parse a duration: ``90s``, ``30m``, ``24h``, ``7d``, or ``forever``.

    Raises:
        TimeError: it is none of these.
    """
    try:
        return parse_duration(text)
    except ValueError as error:
        raise TimeError(f"{option} {text}: {error}", hint="a time like 90s, 30m, 24h or 7d") from error


def parse_moment(option: str, text: str | None) -> dt.datetime | None:
    """Parse a day, a time, or how long ago: ``2026-03-01``, ``2026-03-01T06:00Z``, ``24h``; return None for None.

    Raises:
        TimeError: it is none of these, or too long ago to be a date.
    """
    if text is None:
        return None
    try:
        ago = parse_duration(text)
    except ValueError:
        return _written(option, text)
    try:
        return dt.datetime.now(dt.UTC) - ago
    except OverflowError:
        raise TimeError(f"{option} {text}: no date is so long ago", hint=_HINT) from None


def check_order(first: dt.datetime | None, end: dt.datetime | None, options: tuple[str, str]) -> None:
    """Raise TimeError unless the first moment is before the other; None means no limit."""
    if first is not None and end is not None and first >= end:
        one, other = options
        raise TimeError(f"{one} is not before {other}: no time is left between them", hint=f"{other} is exclusive")


def _written(option: str, text: str) -> dt.datetime:
    try:
        moment = dt.datetime.fromisoformat(text)
        return moment.replace(tzinfo=dt.UTC) if moment.tzinfo is None else moment.astimezone(dt.UTC)
    except (ValueError, OverflowError):
        raise TimeError(f"{option} {text}: this is no time", hint=_HINT) from None


_HINT = "a day like 2026-03-01, a time like 2026-03-01T06:00Z (UTC without a zone), or how long ago: 30m, 24h, 7d"
