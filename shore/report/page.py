"""What the pages of both reports share: the templates, and how times, numbers and sites are written."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any, Final

import jinja2

from shore.report.slices import Row

MOVEMENTS: Final = {
    "ARRI": "ship arrived",
    "DEPA": "ship left",
    "GTIN": "came to the dock",
    "LOAD": "loaded",
    "DISC": "unloaded",
    "GTOT": "left by the gate",
}


def render(template: str, sites: Mapping[str, Row], **values: Any) -> str:
    """One page, which needs neither a network nor scripts.

    Args:
        template: A file of this package.
        sites: Rows of table ``sites`` by name, for the filter ``site``.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("shore.report", "."), autoescape=True, undefined=jinja2.StrictUndefined
    )
    environment.filters |= {
        "time": time,
        "number": number,
        "duration": duration,
        "count": count,
        "movement": lambda code: MOVEMENTS.get(code, code),
        "site": lambda name: sites[name]["title"] if name in sites else name or "",
    }
    return environment.get_template(template).render(written=dt.datetime.now(dt.UTC), **values)


def time(moment: dt.datetime | None) -> str:
    """UTC to the minute; nothing for None."""
    return "" if moment is None else f"{moment.astimezone(dt.UTC):%Y-%m-%d %H:%M}"


def number(value: float | None, digits: int = 1) -> str:
    """A number with at most so many digits after the point; nothing for None."""
    if value is None:
        return ""
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if digits > 1 else text


def count(number: int, what: str) -> str:
    """So many things: 1 record, 2,500 records."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def duration(minutes: float | None) -> str:
    """Minutes as people say them: 45 min, 3 h 15 min, 12 d 4 h; nothing for None."""
    if minutes is None:
        return ""
    whole = round(minutes)
    if whole < 60:
        return f"{whole} min"
    hours, rest = divmod(whole, 60)
    if hours < 48:
        return f"{hours} h {rest} min" if rest else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"
