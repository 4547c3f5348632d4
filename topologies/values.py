"""Parse and format the values of a topology that people write as text: durations, rates, addresses. Pure functions."""

from __future__ import annotations

import datetime as dt
import re
import zoneinfo
from typing import Annotated, Any
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, BeforeValidator

FOREVER = dt.timedelta.max
_DURATION = re.compile(r"([0-9]{1,18})\s*(s|m|h|d|w|y)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800, "y": 31536000}
_RATE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*([kMG]?)(bit|B)/s")
_ADDRESS = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})")
_PERCENT = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)\s*%")
_TIME_OF_DAY = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]")
_MOST_PERCENT = 100_000
_LONGEST_SIMULATED = dt.timedelta(days=36500)
_FASTEST = 10**15
_FACTOR = {"": 1, "k": 1_000, "M": 1_000_000, "G": 1_000_000_000}


def parse_duration(value: Any) -> dt.timedelta:
    """Parse a duration: ``90d``, ``12h``, ``10y`` (365 days each) or ``forever``."""
    if isinstance(value, dt.timedelta):
        return value
    if value == "forever":
        return FOREVER
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("expected a duration: a whole number with s, m, h, d, w or y (90d), or 'forever'")
    try:
        return dt.timedelta(seconds=int(match[1]) * _SECONDS[match[2]])
    except (OverflowError, ValueError):
        raise ValueError("expected a duration below a million years; for ever is written 'forever'") from None


def format_duration(value: dt.timedelta) -> str:
    """Format a duration in the largest unit that divides it: ``90d``, ``1y``, ``forever``."""
    if value == FOREVER:
        return "forever"
    seconds = int(value.total_seconds())
    for unit in "ydhm":
        if seconds and seconds % _SECONDS[unit] == 0:
            return f"{seconds // _SECONDS[unit]}{unit}"
    return f"{seconds}s"


def format_rate(bytes_per_second: int) -> str:
    """Format a rate in bits per second: ``64 kbit/s``."""
    bits = bytes_per_second * 8
    for prefix in "GMk":
        if bits >= _FACTOR[prefix]:
            return f"{bits / _FACTOR[prefix]:.4g} {prefix}bit/s"
    return f"{bits} bit/s"


def parse_rate(value: Any) -> int:
    """Parse a rate, such as ``64 kbit/s``, ``100 Mbit/s`` or ``8 kB/s`` (decimal prefixes), into bytes per second."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _FASTEST:
        return value
    match = _RATE.fullmatch(value) if isinstance(value, str) else None
    per_second = float(match[1]) * _FACTOR[match[2]] / (8 if match[3] == "bit" else 1) if match else 0.0
    if not 0 < per_second <= _FASTEST:
        raise ValueError("expected a rate above nothing, such as '64 kbit/s', '2 Mbit/s' or '8 kB/s'")
    return max(1, int(per_second))


def parse_time_of_day(value: Any) -> dt.time:
    """Parse a time of day, ``22:00``. YAML reads one without quotes as a number, which is refused."""
    if isinstance(value, dt.time):
        return value
    if not isinstance(value, str) or _TIME_OF_DAY.fullmatch(value) is None:
        raise ValueError("expected a time of day in quotes: '22:00'")
    return dt.time.fromisoformat(value)


def _check_zone(value: str) -> str:
    try:
        zoneinfo.ZoneInfo(value)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError("expected an IANA time zone: Asia/Tokyo") from None
    return value


def parse_percent(value: Any) -> float:
    """Parse a share of one thread's time in percent: ``20 %`` or ``250 %`` (two and a half threads)."""
    match = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    percent = float(match[1]) if match else value
    if isinstance(percent, bool) or not isinstance(percent, int | float) or not 0 < percent <= _MOST_PERCENT:
        raise ValueError("expected a share of one thread's time above nothing, such as '20 %' or '250 %'")
    return float(percent)


def parse_bootstrap(value: str) -> tuple[tuple[str, int], ...]:
    """Parse ``host:port[,host:port...]`` into ``(host, port)`` pairs; IPv6 addresses are in brackets.

    Raises:
        ValueError: the text has another format; the message has the expected one.
    """
    pairs: list[tuple[str, int]] = []
    for part in value.split(","):
        match = _ADDRESS.fullmatch(part.strip())
        if match is None or not 1 <= int(match[2]) <= 65535:
            raise ValueError("expected host:port[,host:port...] with ports from 1 to 65535 (broker-1:9092)")
        pairs.append((match[1].strip("[]"), int(match[2])))
    return tuple(pairs)


def _check_bootstrap(value: str) -> str:
    parse_bootstrap(value)
    return value


_MSK = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?:")


def msk_region(bootstrap: str) -> str | None:
    """Return the AWS region in the addresses of an Amazon MSK cluster; None in other addresses."""
    match = _MSK.search(bootstrap)
    return match[1] if match else None


START_WORDS = ("earliest", "latest", "end")


def parse_start(value: Any) -> str:
    """Parse the start of a link in logs that the target does not have yet: ``earliest``, ``latest``, ``end`` or a time.

    A time may be a YAML timestamp or text. It is returned in ISO 8601 with its offset from UTC.
    """
    if isinstance(value, str) and value in START_WORDS:
        return value
    found = value
    if isinstance(value, str):
        try:
            found = dt.datetime.fromisoformat(value)
        except ValueError:
            found = None
    if not isinstance(found, dt.datetime) or found.tzinfo is None:
        raise ValueError("expected earliest, latest, end, or a time with its zone such as 2026-09-01T00:00:00Z")
    return found.isoformat()


def start_time_ms(start: str) -> int | None:
    """Return a start that is a time in milliseconds since 1970; None for the words."""
    return None if start in START_WORDS else int(dt.datetime.fromisoformat(start).timestamp() * 1000)


def _check_positive(value: dt.timedelta) -> dt.timedelta:
    if not dt.timedelta(0) < value < dt.timedelta.max:
        raise ValueError("expected a duration above zero, such as 3h")
    return value


def _check_simulated(value: dt.timedelta) -> dt.timedelta:
    if not dt.timedelta(0) < value <= _LONGEST_SIMULATED:
        raise ValueError("expected a duration above zero and at most 100y, such as 3h")
    return value


def _check_since_start(value: dt.timedelta) -> dt.timedelta:
    if not dt.timedelta(0) <= value <= _LONGEST_SIMULATED:
        raise ValueError("expected a duration of at most 100y, such as 3h")
    return value


def _check_row_retention(value: dt.timedelta) -> dt.timedelta:
    if not dt.timedelta(days=30) <= value < dt.timedelta.max:
        raise ValueError("expected 30d or more; rows of tables that are not named are kept for ever")
    return value


Start = Annotated[str, BeforeValidator(parse_start)]
Duration = Annotated[dt.timedelta, BeforeValidator(parse_duration)]
PositiveDuration = Annotated[Duration, AfterValidator(_check_positive)]
SimulatedDuration = Annotated[Duration, AfterValidator(_check_simulated)]
"""How long something takes in a scenario."""
SinceStart = Annotated[Duration, AfterValidator(_check_since_start)]
"""When something begins in a scenario, after its start."""
RowRetention = Annotated[Duration, AfterValidator(_check_row_retention)]
BytesPerSecond = Annotated[int, BeforeValidator(parse_rate)]
Percent = Annotated[float, BeforeValidator(parse_percent)]
Bootstrap = Annotated[str, AfterValidator(_check_bootstrap)]


def _check_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme == "http" and parts.hostname in LOOPBACK and parts.path:
        return value
    if parts.scheme != "https" or not parts.hostname or parts.username is not None:
        raise ValueError("expected the address of a token endpoint, https://host/path; http only on this machine")
    return value


def parse_web_address(value: str) -> SplitResult:
    """Parse ``https://host/path``; ``http://`` only to this machine itself.

    Raises:
        ValueError: the text has another format; the message has the expected one.
    """
    try:
        url = urlsplit(value)
        host, _ = url.hostname, url.port  # a wrong port raises
    except ValueError:
        host = None
    if not host or url.scheme not in ("https", "http") or (url.scheme == "http" and host not in LOOPBACK):
        raise ValueError("expected https://host/path (http:// only to this machine itself)")
    return url


LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Names of this machine itself."""
HttpUrl = Annotated[str, AfterValidator(_check_url)]


_SETTING = re.compile(r"spark\.[A-Za-z0-9_.-]+")
_SECRET = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)  # like the default of spark.redaction.regex
_SHORES_OWN = {
    "spark.master": "expected another setting: set the master with shore's key 'master'",
    "spark.jars": "expected another setting: shore has its own jars; add more with shore's key 'packages'",
    "spark.jars.packages": "expected another setting: add packages with shore's key 'packages'",
    **dict.fromkeys(
        ("spark.sql.session.timeZone", "spark.sql.timestampType", "spark.sql.ansi.enabled"),
        "expected another setting: what is in shore's tables depends on this one",
    ),
}


def _setting_name(name: str) -> str:
    if not _SETTING.fullmatch(name):
        raise ValueError("expected the name of a Spark setting, spark.<name>")
    if name in _SHORES_OWN:
        raise ValueError(_SHORES_OWN[name])
    if _SECRET.search(name):
        raise ValueError(
            "expected no secret, because a topology holds none: set it in the environment of the processes that run "
            "Spark, or use a credentials provider"
        )
    return name


def _setting_value(value: Any) -> Any:
    """Convert YAML's numbers and booleans to Spark's text form."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _package(text: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9_.-]+:[A-Za-z0-9_.-]+:[A-Za-z0-9_.-]+", text) is None:
        raise ValueError("expected Maven coordinates, group:artifact:version")
    return text


SparkSettings = dict[Annotated[str, AfterValidator(_setting_name)], Annotated[str, BeforeValidator(_setting_value)]]
"""Spark settings by name; never a secret."""
Package = Annotated[str, AfterValidator(_package)]
"""A jar of a Maven repository, which Spark fetches with its dependencies."""
TimeOfDay = Annotated[dt.time, BeforeValidator(parse_time_of_day)]
TimeZone = Annotated[str, AfterValidator(_check_zone)]
