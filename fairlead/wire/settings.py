"""Topic settings over the wire: DescribeConfigs for a few named settings of many topics. Pure.

Asking by name is what makes it cheap: six settings of a topic are about 250 bytes, all of them 3 KB.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from fairlead.wire.coding import NO_TAGS, Question, Reader, count, text
from fairlead.wire.versions import DESCRIBE_CONFIGS

TOPIC: Final = b"\2"  # Kafka's number for that kind of resource
OWN: Final = 1  # source of a value that the topic itself has (DYNAMIC_TOPIC_CONFIG)

_I8: Final = struct.Struct(">b")
_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")
_FLAGS: Final = struct.Struct(">bbb")  # read only, source, sensitive


def request(topics: Collection[str], names: Collection[str]) -> Question[dict[str, dict[str, str]]]:
    """Ask for these settings of these topics. The answer has settings by topic; topics with an error (unknown, not
    permitted) are left out."""
    return Question(*DESCRIBE_CONFIGS, _body(topics, names, synonyms=False), _in_effect)


def defaults_request(topic: str, names: Collection[str]) -> Question[dict[str, str]]:
    """Ask what these settings of a topic would be if it had none of its own: of the places where a broker looks for a
    value, in its order, the first that is not the topic. Empty for a topic with an error."""
    return Question(*DESCRIBE_CONFIGS, _body([topic], names, synonyms=True), _defaults)


def _body(topics: Collection[str], names: Collection[str], *, synonyms: bool) -> bytes:
    keys = count(len(names)) + b"".join(map(text, names)) + NO_TAGS
    asked = b"".join(TOPIC + text(topic) + keys for topic in topics)
    return count(len(topics)) + asked + (b"\1" if synonyms else b"\0") + b"\0" + NO_TAGS  # no documentation


def _in_effect(body: memoryview) -> dict[str, dict[str, str]]:
    return {
        topic: {each.name: each.value for each in settings if each.value is not None}
        for topic, settings in _answered(body).items()
    }


def _defaults(body: memoryview) -> dict[str, str]:
    found: dict[str, str] = {}
    for settings in _answered(body).values():
        for each in settings:
            value = next((value for value, source in each.places if source != OWN), None)
            if value is not None:
                found[each.name] = value
    return found


class _Setting(NamedTuple):
    name: str
    value: str | None  # None: secret, or not set
    places: tuple[tuple[str | None, int], ...]  # values with their sources, the one in effect first


def _answered(body: memoryview) -> dict[str, list[_Setting]]:
    found: dict[str, list[_Setting]] = {}
    reader = Reader(body)
    reader.unpack(_I32)  # throttle time
    for _ in range(reader.count()):
        (code,) = reader.unpack(_I16)
        reader.blob()  # message
        reader.unpack(_I8)  # kind of resource
        topic = reader.text() or ""
        settings = list(_settings(reader))
        reader.tags()
        if code == 0:
            found[topic] = settings
    return found


def _settings(reader: Reader) -> Iterator[_Setting]:
    for _ in range(reader.count()):
        name, value = reader.text() or "", reader.text()
        reader.unpack(_FLAGS)
        places = tuple(_place(reader) for _ in range(reader.count()))
        reader.unpack(_I8)  # type
        reader.blob()  # documentation
        reader.tags()
        yield _Setting(name, value, places)


def _place(reader: Reader) -> tuple[str | None, int]:
    reader.blob()  # what the setting is called there
    value = reader.text()
    (source,) = reader.unpack(_I8)
    reader.tags()
    return value, source
