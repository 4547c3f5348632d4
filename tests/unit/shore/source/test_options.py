"""Options of the source: errors name what is wrong and what is valid."""

from __future__ import annotations

import re

import pytest

from shore.errors import SourceOptionError
from shore.source import options
from shore.source.options import EARLIEST, LATEST, Edge, parse_options


def test_usual_options() -> None:
    found = parse_options({"STREAMS": "containers, yellow", "maxrecordspertrigger": "10", "checkpointLocation": "/x"})
    assert found.streams == {"containers", "yellow"}
    assert (found.rows, found.tasks, found.max_records, found.fail_on_data_loss) == ("raw", 2, 10, True)
    assert (found.max_bytes, found.keep_logs_whole) == (None, False)


@pytest.mark.parametrize(
    ("topic", "taken"),
    [
        ("containers.BIGU0000016", True),
        ("containers", False),
        ("containersx.BIGU0000016", False),
        ("secret.containers.1", False),
        ("__consumer_offsets", False),
    ],
)
def test_streams_select_their_own_logs_only(topic: str, taken: bool) -> None:
    assert parse_options({"streams": "containers"}).takes(topic) is taken


def test_a_pattern_must_match_the_whole_name() -> None:
    found = parse_options({"pattern": r"events\..+|__.*"})
    assert found.takes("events.tokyo")
    assert not found.takes("secret.events.tokyo")
    assert not found.takes("__consumer_offsets")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "streams"),
        ({"streams": "a", "pattern": "b"}, "either"),
        ({"streams": "A B"}, "cannot be a stream"),
        ({"pattern": "("}, "no regular expression"),
        ({"streams": "a", "rows": "pretty"}, "readings"),
        ({"streams": "a", "tasks": "0"}, "whole number"),
        ({"streams": "a", "maxRecordsPerTrigger": "-1"}, "whole number"),
        ({"streams": "a", "failOnDataLoss": "maybe"}, "true"),
        ({"stream": "a"}, "did you mean 'streams'"),
        ({"streams": "a", "password": "x"}, "no option 'password'"),
        ({"streams": "a", "keepLogsWhole": "1"}, "true"),
        ({"streams": "a", "maxBytesPerTrigger": "16m"}, "whole number"),
        ({"streams": "a", "startingOffsets": "oldest"}, "earliest"),
        ({"streams": "a", "startingOffsets": '{"a.1": "x"}'}, "offset by log"),
        ({"streams": "a", "startingOffsets": '{"a.1": true}'}, "offset by log"),
        ({"streams": "a", "startingOffsets": '{"a.1": -3}'}, "offset by log"),
        ({"streams": "a", "startingOffsets": '{"b.1": 3}'}, "does not read"),
        ({"streams": "a", "startingOffsets": "latest", "startingTimestamp": "0"}, "exclude"),
        ({"streams": "a", "startingTimestamp": "2026-03-01T12:00:00"}, "zone"),
        ({"streams": "a", "startingTimestamp": "yesterday"}, "milliseconds"),
        ({"streams": "a", "endingOffsets": "earliest"}, "latest"),
    ],
)
def test_mistakes_are_named(given: dict[str, str], told: str) -> None:
    with pytest.raises(SourceOptionError) as error:
        parse_options(given)
    assert told in str(error.value)


def test_edges_are_words_offsets_or_times() -> None:
    def starting(**given: str) -> Edge:
        return parse_options({"streams": "a"} | given).starting

    assert starting() == starting(startingOffsets="Earliest") == Edge(EARLIEST)
    assert starting(startingOffsets="latest") == Edge(LATEST)
    assert starting(startingOffsets='{"a.1": 7, "a.2/3": -1}') == Edge(EARLIEST, {"a.1": 7, "a.2/3": -1})
    noon = Edge(EARLIEST, timestamp_ms=1772366400000)
    assert starting(startingTimestamp="2026-03-01T12:00:00Z") == starting(startingTimestamp="1772366400000") == noon
    assert starting(startingTimestamp="2026-03-01T14:00:00+02:00") == noon
    assert parse_options({"streams": "a", "endingTimestamp": "5"}).ending == Edge(LATEST, timestamp_ms=5)


def test_a_streaming_query_has_no_end() -> None:
    parse_options({"streams": "a", "endingOffsets": "latest"}).check_streaming()
    with pytest.raises(SourceOptionError, match="batch reads"):
        parse_options({"streams": "a", "endingOffsets": '{"a.1": 3}'}).check_streaming()


def test_every_option_is_described() -> None:
    described = re.findall(r"^``(\w+)``", options.__doc__ or "", re.MULTILINE)
    with pytest.raises(SourceOptionError) as error:
        parse_options({"zzz": ""})
    assert error.value.hint == f"valid: {', '.join(described)}"


def test_held_logs_have_the_offset_that_they_wait_for_or_none() -> None:
    found = parse_options({"streams": "containers", "held": '{"containers.1": 12, "containers.2": null}'})
    assert found.held == {"containers.1": 12, "containers.2": None}
    for wrong in ("[]", "{", '{"containers.1": "12"}', '{"containers.1": true}'):
        with pytest.raises(SourceOptionError, match="'held'"):
            parse_options({"streams": "containers", "held": wrong})
