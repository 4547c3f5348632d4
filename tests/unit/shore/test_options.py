"""Options of the source: what is wrong is named, with what is possible."""

from __future__ import annotations

import pytest

from shore.source.errors import SourceOptionError
from shore.source.options import parse_options


def test_usual_options() -> None:
    options = parse_options({"STREAMS": "containers, yellow", "maxrecordspertrigger": "10"})
    assert options.streams == {"containers", "yellow"}
    assert (options.rows, options.tasks, options.max_records, options.fail_on_data_loss) == ("raw", 2, 10, False)


@pytest.mark.parametrize(
    ("topic", "taken"),
    [
        ("containers.BIGU0000013", True),
        ("containers", False),
        ("containersx.BIGU0000013", False),
        ("secret.containers.1", False),
        ("__consumer_offsets", False),
    ],
)
def test_streams_select_their_own_logs_only(topic: str, taken: bool) -> None:
    assert parse_options({"streams": "containers"}).takes(topic) is taken


def test_a_pattern_must_match_the_whole_name() -> None:
    options = parse_options({"pattern": r"events\..+|__.*"})
    assert options.takes("events.tokyo")
    assert not options.takes("secret.events.tokyo")
    assert not options.takes("__consumer_offsets")


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
    ],
)
def test_mistakes_are_named(given: dict[str, str], told: str) -> None:
    with pytest.raises(SourceOptionError) as error:
        parse_options(given)
    assert told in str(error.value)
