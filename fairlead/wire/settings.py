"""Topic settings over the wire: DescribeConfigs for a few named settings of many topics. Pure.

Asking by name is what makes it cheap: six settings of a topic are about 250 bytes, all of them 3 KB.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import Final

from fairlead.wire.coding import NO_TAGS, Question, Reader, count, text
from fairlead.wire.versions import DESCRIBE_CONFIGS

TOPIC: Final = b"\2"  # Kafka's number for that kind of resource

_I8: Final = struct.Struct(">b")
_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")
_FLAGS: Final = struct.Struct(">bbb")  # read only, source, sensitive


def request(topics: Collection[str], names: Collection[str]) -> Question[dict[str, dict[str, str]]]:
    """Ask for these settings of these topics. The answer has settings by topic; topics with an error (unknown, not
    permitted) are left out."""
    keys = count(len(names)) + b"".join(map(text, names)) + NO_TAGS
    asked = b"".join(TOPIC + text(topic) + keys for topic in topics)
    body = count(len(topics)) + asked + b"\0\0" + NO_TAGS  # neither synonyms nor documentation
    return Question(*DESCRIBE_CONFIGS, body, _answered)


def _answered(body: memoryview) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    reader = Reader(body)
    reader.unpack(_I32)  # throttle time
    for _ in range(reader.count()):
        (code,) = reader.unpack(_I16)
        reader.blob()  # message
        reader.unpack(_I8)  # kind of resource
        topic = reader.text() or ""
        settings = _settings(reader)
        reader.tags()
        if code == 0:
            found[topic] = settings
    return found


def _settings(reader: Reader) -> dict[str, str]:
    found: dict[str, str] = {}
    for _ in range(reader.count()):
        name, value = reader.text() or "", reader.text()
        reader.unpack(_FLAGS)
        for _ in range(reader.count()):  # synonyms
            reader.blob()
            reader.blob()
            reader.unpack(_I8)
            reader.tags()
        reader.unpack(_I8)  # type
        reader.blob()  # documentation
        reader.tags()
        if value is not None:
            found[name] = value
    return found
