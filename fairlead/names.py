"""Build, parse and check the names of logs, containers and ships. Pure functions.

A log is one Kafka topic of one partition, named ``<stream>.<key>`` (docs/design.md). A stream name has no dot; the key
may have (``ships.9074729.location``). Container numbers follow ISO 6346 with its check digit, ship numbers the IMO
scheme with its check digit; both checks come from python-stdnum.
"""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec
from stdnum import imo as _imo
from stdnum import iso6346 as _iso6346

STREAM_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
SITE_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
MAX_TOPIC_LENGTH = 249  # Kafka's own limit (org.apache.kafka.common.internals.Topic)


class LogName(msgspec.Struct, frozen=True, gc=False):
    """A log's name in two parts: ``stream`` and ``key``."""

    stream: str
    key: str

    def __str__(self) -> str:
        return f"{self.stream}.{self.key}"


def parse_log(topic: str) -> LogName | None:
    """Split a topic name at its first dot; return None when it is no log of any stream (``__consumer_offsets``)."""
    stream, dot, key = topic.partition(".")
    if not dot or not key or not STREAM_NAME.fullmatch(stream):
        return None
    return LogName(stream, key)


@lru_cache(maxsize=65536)
def is_container_number(text: str) -> bool:
    """Whether the text is a complete ISO 6346 number: upper case, no blanks, right check digit (``CSQU3054383``)."""
    return len(text) == 11 and text.isascii() and text.isupper() and bool(_iso6346.is_valid(text))


def container_check_digit(ten: str) -> str:
    """Return the check digit that ISO 6346 requires after the first ten characters (``CSQU305438`` gives ``3``)."""
    return str(_iso6346.calc_check_digit(ten))


def owner_code(container_number: str) -> str:
    """Return the BIC owner code with its category letter: the first four characters (``CSQU``)."""
    return container_number[:4]


@lru_cache(maxsize=4096)
def is_imo_number(text: str) -> bool:
    """Whether the text has seven digits that satisfy the IMO ship number's check digit (``9074729``)."""
    return len(text) == 7 and text.isdigit() and bool(_imo.is_valid(text))
