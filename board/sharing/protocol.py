"""The forms of Delta Sharing's questions and answers, without I/O. Answers are in its format ``parquet``."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from fairlead.records.reading import milliseconds

PREFIX: Final = "/delta-sharing"
VERSION_HEADER: Final = "Delta-Table-Version"
NDJSON: Final = "application/x-ndjson; charset=utf-8"

_TYPES: Final = {
    pa.string(): "string",
    pa.int64(): "long",
    pa.int32(): "integer",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.timestamp("us", tz="UTC"): "timestamp",
}
_CODES: Final = {
    400: "INVALID_PARAMETER_VALUE",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "RESOURCE_DOES_NOT_EXIST",
    413: "REQUEST_TOO_LARGE",
    503: "TEMPORARILY_UNAVAILABLE",
}
_LARGEST: Final = 2**63 - 1


class ApiError(Exception):
    """An answer other than 200. ``message`` is for the customer: it names nothing of anybody else."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message

    @property
    def body(self) -> dict[str, str]:
        return {"errorCode": _CODES[self.status], "message": self.message}


@dataclass(frozen=True, slots=True)
class Moment:
    """Which version of a table is asked for: by number, by time, or (both None) the newest."""

    version: int | None = None
    timestamp: dt.datetime | None = None


@dataclass(frozen=True, slots=True)
class VersionSpan:
    """Of which versions the changes are asked for: from that of ``start`` to that of ``end``, both included."""

    start: Moment
    end: Moment


@dataclass(frozen=True, slots=True)
class SharedFile:
    """One Parquet file as an answer names it. ``expires`` is when its URL ends."""

    url: str
    digest: str
    size: int
    rows: int
    expires: dt.datetime


def page(items: Sequence[Mapping[str, str]], asked: Mapping[str, str]) -> dict[str, Any]:
    """Return one page of a list, by the request's ``maxResults`` and ``pageToken``.

    Raises:
        ApiError: one of them is no number.
    """
    first = _number("pageToken", asked["pageToken"]) if asked.get("pageToken") else 0
    last = first + _number("maxResults", asked["maxResults"]) if asked.get("maxResults") else len(items)
    found: dict[str, Any] = {"items": [dict(each) for each in items[first:last]]}
    return found | ({"nextPageToken": str(last)} if last < len(items) else {})


def query(body: bytes) -> Moment:
    """Return which version the body of a query asks for. Hints are checked and otherwise passed over: a client filters
    what it gets anyway.

    Raises:
        ApiError: the body is not what the protocol says, or asks for changes.
    """
    try:
        asked = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise ApiError(400, "the body is no JSON") from None
    if not isinstance(asked, dict):
        raise ApiError(400, "the body is no JSON object")
    if asked.get("startingVersion") is not None or asked.get("endingVersion") is not None:
        raise ApiError(400, "a query gives one version of a table: ask for its changes (readChangeFeed)")
    if asked.get("limitHint") is not None:
        _number("limitHint", asked["limitHint"])
    return moment(asked)


def moment(asked: Mapping[str, Any]) -> Moment:
    """Return which version ``version`` or ``timestamp`` of a request name.

    Raises:
        ApiError: both are there, or one is malformed.
    """
    version, timestamp = asked.get("version"), asked.get("timestamp")
    if version is not None and timestamp is not None:
        raise ApiError(400, "ask for a version or a timestamp, not for both")
    return Moment(
        None if version is None else _number("version", version),
        None if timestamp is None else instant("timestamp", timestamp),
    )


def instant(name: str, value: object) -> dt.datetime:
    """Return a time of a request: ISO 8601 with a zone, such as 2026-03-01T12:00:00Z.

    Raises:
        ApiError: it is something else.
    """
    found = None
    with contextlib.suppress(ValueError):
        found = dt.datetime.fromisoformat(value if isinstance(value, str) else "")
    if found is None or found.tzinfo is None:
        raise ApiError(400, f"{name} is no time such as 2026-03-01T12:00:00Z")
    return found


def span(asked: Mapping[str, Any]) -> VersionSpan:
    """Return of which versions a request for changes asks.

    Raises:
        ApiError: it has no start, both ways to name one, or a malformed one.
    """
    start, end = (
        moment({"version": asked.get(f"{which}Version"), "timestamp": asked.get(f"{which}Timestamp")})
        for which in ("starting", "ending")
    )
    if start == Moment():
        raise ApiError(400, "changes need startingVersion or startingTimestamp")
    return VersionSpan(start, end)


def metadata_lines(identity: str, name: str, schema: pa.Schema, files: Sequence[SharedFile], version: int) -> list[str]:
    """Return the first two lines of an answer about a table: protocol and metadata."""
    metadata = {
        "id": identity,
        "name": name,
        "format": {"provider": "parquet"},
        "schemaString": schema_string(schema),
        "partitionColumns": [],
        "configuration": {"enableChangeDataFeed": "true"},
        "version": version,
        "size": sum(each.size for each in files),
        "numFiles": len(files),
    }
    return [_line({"protocol": {"minReaderVersion": 1}}), _line({"metaData": metadata})]


def file_lines(files: Iterable[SharedFile]) -> list[str]:
    """Return one line for each file."""
    return [
        _line(
            {
                "file": {
                    "url": each.url,
                    "id": each.digest,
                    "partitionValues": {},
                    "size": each.size,
                    "stats": json.dumps({"numRecords": each.rows}),
                    "expirationTimestamp": int(each.expires.timestamp() * 1000),
                }
            }
        )
        for each in files
    ]


def change_lines(files: Iterable[tuple[SharedFile, int, dt.datetime]]) -> list[str]:
    """Return one line for each file of changes, from its version and the time of that."""
    return [
        _line(
            {
                "cdf": {
                    "url": each.url,
                    "id": each.digest,
                    "partitionValues": {},
                    "size": each.size,
                    "timestamp": milliseconds(made),
                    "version": version,
                    "expirationTimestamp": int(each.expires.timestamp() * 1000),
                }
            }
        )
        for each, version, made in files
    ]


def schema_string(schema: pa.Schema) -> str:
    """Return a schema as Delta writes it, each column with its comment."""
    fields = [
        {
            "name": field.name,
            "type": _TYPES[field.type],
            "nullable": True,
            "metadata": {key.decode(): value.decode() for key, value in (field.metadata or {}).items()},
        }
        for field in schema
    ]
    return json.dumps({"type": "struct", "fields": fields})


def _line(content: Mapping[str, Any]) -> str:
    return json.dumps(content, separators=(",", ":")) + "\n"


def _number(name: str, value: object) -> int:
    """Return a number of a request, from JSON or from text, that is not negative."""
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    else:
        text = value if isinstance(value, str) else ""
        number = int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else -1
    if not 0 <= number <= _LARGEST:
        raise ApiError(400, f"{name} is no number from 0 up")
    return number
