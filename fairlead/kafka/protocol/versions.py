"""Request versions that Fairlead sends, and the check that a broker supports them (ApiVersions). Pure."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from fairlead.kafka.protocol import fetch_codec, produce_codec
from fairlead.kafka.protocol.coding import Question

Api = tuple[int, int]  # API key and version

LIST_OFFSETS: Final[Api] = 2, 7
METADATA: Final[Api] = 3, 12
FIND_COORDINATOR: Final[Api] = 10, 3
JOIN_GROUP: Final[Api] = 11, 7
HEARTBEAT: Final[Api] = 12, 4
LEAVE_GROUP: Final[Api] = 13, 4
SYNC_GROUP: Final[Api] = 14, 5
LIST_GROUPS: Final[Api] = 16, 4
SASL_HANDSHAKE: Final[Api] = 17, 1
API_VERSIONS: Final[Api] = 18, 0
DELETE_TOPICS: Final[Api] = 20, 6
DELETE_RECORDS: Final[Api] = 21, 2
DESCRIBE_CONFIGS: Final[Api] = 32, 4
DESCRIBE_LOG_DIRS: Final[Api] = 35, 4
SASL_AUTHENTICATE: Final[Api] = 36, 2
DESCRIBE_CLIENT_QUOTAS: Final[Api] = 48, 1
ALTER_CLIENT_QUOTAS: Final[Api] = 49, 1
DESCRIBE_PRODUCERS: Final[Api] = 61, 0

# Name and least version by API key. A broker must support each of them (Kafka 3.3 or later does).
NEEDED: Final = {
    produce_codec.API_KEY: ("Produce", produce_codec.VERSION),
    fetch_codec.API_KEY: ("Fetch", fetch_codec.VERSION),
    LIST_OFFSETS[0]: ("ListOffsets", LIST_OFFSETS[1]),
    METADATA[0]: ("Metadata", METADATA[1]),
    DELETE_RECORDS[0]: ("DeleteRecords", DELETE_RECORDS[1]),
    SASL_AUTHENTICATE[0]: ("SaslAuthenticate", SASL_AUTHENTICATE[1]),
    DESCRIBE_PRODUCERS[0]: ("DescribeProducers", DESCRIBE_PRODUCERS[1]),
}

WITHOUT_THROTTLE_TIME: Final = frozenset(
    {produce_codec.API_KEY, API_VERSIONS[0], SASL_HANDSHAKE[0], SASL_AUTHENTICATE[0]}
)
"""Requests whose answers do not begin with ``throttle_time_ms``. Produce has it at the end, the others have none. All
other requests are sent in flexible versions."""

_HEAD: Final = struct.Struct(">hi")
_ENTRY: Final = struct.Struct(">hhh")

Offered = Mapping[int, tuple[int, int]]


def question() -> Question[Offered]:
    """Ask which versions of each request the broker supports: (lowest, highest) by API key."""
    return Question(*API_VERSIONS, b"", _offered, flexible=False)


def missing(offered: Offered) -> list[str]:
    """List the requests that a broker does not support, by name and version."""
    return [
        f"{name} v{version}"
        for key, (name, version) in NEEDED.items()
        if not (key in offered and offered[key][0] <= version <= offered[key][1])
    ]


def produce_version(offered: Offered) -> int:
    """Return the version of Produce requests to send: by topic id where the broker offers it, else by name."""
    lowest, highest = offered[produce_codec.API_KEY]
    return produce_codec.BY_ID if lowest <= produce_codec.BY_ID <= highest else produce_codec.VERSION


def name_of(api_key: int) -> str:
    """Return a request's name, for messages."""
    return NEEDED[api_key][0] if api_key in NEEDED else f"API {api_key}"


def _offered(body: memoryview) -> Offered:
    _, entries = _HEAD.unpack_from(body)
    found = (_ENTRY.unpack_from(body, _HEAD.size + number * _ENTRY.size) for number in range(entries))
    return {key: (lowest, highest) for key, lowest, highest in found}
