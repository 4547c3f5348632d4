"""Questions and answers of Delta Sharing, held against the real client's own parsers."""

from __future__ import annotations

import datetime as dt
import json

import pyarrow as pa
import pytest
from delta_sharing.converter import get_empty_table
from delta_sharing.protocol import AddFile, Metadata, Protocol

from board.sharing.content import SHARED
from board.sharing.protocol import (
    ApiError,
    Moment,
    SharedFile,
    file_lines,
    instant,
    metadata_lines,
    page,
    query,
    schema_string,
)

NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
ITEMS = [{"name": name} for name in "abc"]


@pytest.mark.parametrize(
    ("asked", "names", "following"),
    [
        ({}, "abc", None),
        ({"maxResults": "2"}, "ab", "2"),
        ({"maxResults": "2", "pageToken": "2"}, "c", None),
        ({"maxResults": "0"}, "", "0"),
        ({"pageToken": "99"}, "", None),
        ({"maxResults": "", "pageToken": ""}, "abc", None),
    ],
)
def test_a_page(asked: dict[str, str], names: str, following: str | None) -> None:
    found = page(ITEMS, asked)
    assert "".join(each["name"] for each in found["items"]) == names
    assert found.get("nextPageToken") == following


@pytest.mark.parametrize("bad", ["-1", "x", "1.5", "9" * 30, "\N{ARABIC-INDIC DIGIT ONE}"])
@pytest.mark.parametrize("name", ["maxResults", "pageToken"])
def test_a_page_by_no_number_is_malformed(name: str, bad: str) -> None:
    with pytest.raises(ApiError, match=name) as refused:
        page(ITEMS, {name: bad})
    assert refused.value.status == 400 and refused.value.body["errorCode"] == "INVALID_PARAMETER_VALUE"


@pytest.mark.parametrize(
    ("body", "moment"),
    [
        (b"", Moment()),
        (b"{}", Moment()),
        (b'{"predicateHints": ["a > 1"], "jsonPredicateHints": "{", "limitHint": 5}', Moment()),
        (b'{"version": 7}', Moment(version=7)),
        (b'{"timestamp": "2026-03-01T12:00:00Z"}', Moment(timestamp=NOON)),
        (b'{"timestamp": "2026-03-01T21:00:00+09:00", "version": null}', Moment(timestamp=NOON)),
    ],
)
def test_a_query_names_a_version(body: bytes, moment: Moment) -> None:
    assert query(body) == moment


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        b'{"version": -1}',
        b'{"version": true}',
        b'{"version": 1.5}',
        b'{"version": 99999999999999999999}',
        b'{"limitHint": "many"}',
        b'{"timestamp": "2026-03-01T12:00:00"}',
        b'{"timestamp": 5}',
        b'{"version": 1, "timestamp": "2026-03-01T12:00:00Z"}',
        b'{"startingVersion": 1}',
        b'{"endingVersion": 1}',
    ],
)
def test_a_malformed_query_is_refused(body: bytes) -> None:
    with pytest.raises(ApiError) as refused:
        query(body)
    assert refused.value.status == 400


def test_a_time_needs_a_zone() -> None:
    assert instant("startingTimestamp", "2026-03-01T12:00:00+00:00") == NOON
    with pytest.raises(ApiError, match="startingTimestamp is no time such as"):
        instant("startingTimestamp", "yesterday")


def test_the_client_reads_what_is_said_of_a_table() -> None:
    schema = SHARED["detailed"][0].schema
    files = [SharedFile("https://board/files/x", "ab" * 32, 1234, 56, NOON)]
    first, second, third = (
        json.loads(each) for each in [*metadata_lines("i", "t", schema, files, 7), *file_lines(files)]
    )
    assert Protocol.from_json(first["protocol"]) == Protocol(min_reader_version=1)
    metadata = Metadata.from_json(second["metaData"])
    assert (metadata.version, metadata.size, metadata.num_files, metadata.partition_columns) == (7, 1234, 1, [])
    found = AddFile.from_json(third["file"])
    assert (found.url, found.id, found.size) == ("https://board/files/x", "ab" * 32, 1234)
    assert json.loads(found.stats or "") == {"numRecords": 56}
    assert third["file"]["expirationTimestamp"] == NOON.timestamp() * 1000


@pytest.mark.parametrize("grain", SHARED)
def test_the_client_reads_every_schema(grain: str) -> None:
    for table in SHARED[grain]:  # type: ignore[index]
        read = get_empty_table(json.loads(schema_string(table.schema)))
        assert list(read.columns) == table.schema.names
        for field in table.schema:
            kind = read[field.name].dtype
            assert (
                pa.types.is_string(field.type)
                or pa.types.is_timestamp(field.type)
                or kind == field.type.to_pandas_dtype()
            )
