"""Options of the source ``fairlead``, checked once. Pure.

========================  ===========================================================================================
``site``                  whose Kafka; must be one of the endpoints the source was registered with. Needed when there
                          is more than one.
``streams``               names of streams, comma separated: every log ``<stream>.<key>`` is read
``pattern``               instead: a regular expression that a topic's whole name must match
``rows``                  ``raw`` (default): what Kafka has; ``readings``: the columns of table ``readings``, parsed
``tasks``                 into how many tasks the logs are packed; default 2
``maxRecordsPerTrigger``  at most so many offsets in one micro-batch; default 500000
``failOnDataLoss``        ``true``: fail when records are gone before they could be read; default ``false``: go on and
                          say so in the log and in the query's progress
========================  ===========================================================================================

There is no option for a password: options are shown in query plans.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

from fairlead.errors import nearest
from fairlead.names import STREAM_NAME, parse_log
from shore.source.errors import SourceOptionError

Rows = Literal["raw", "readings"]
_NAMES = ("site", "streams", "pattern", "rows", "tasks", "maxRecordsPerTrigger", "failOnDataLoss")


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options with their types. Exactly one of ``streams`` and ``pattern`` is set."""

    site: str | None
    streams: frozenset[str]
    pattern: str
    rows: Rows
    tasks: int
    max_records: int
    fail_on_data_loss: bool

    def takes(self, topic: str) -> bool:
        """Whether a topic is one of the logs to read. Kafka's own topics (``__...``) never are."""
        if topic.startswith("__"):
            return False
        if self.pattern:
            return re.fullmatch(self.pattern, topic) is not None
        log = parse_log(topic)
        return log is not None and log.stream in self.streams


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """Check the options of one ``load()``. Names are compared without case, as everywhere in Spark.

    Raises:
        SourceOptionError: says which option, what it is and what is possible.
    """
    known = {name.lower(): name for name in _NAMES}
    options: dict[str, str] = {}
    for key, value in given.items():
        name = known.get(key.lower())
        if name is None:
            near = nearest(key.lower(), known)
            raise SourceOptionError(
                f"the source fairlead has no option {key!r}",
                hint=(f"did you mean {known[near]!r}? " if near else "") + f"valid: {', '.join(_NAMES)}",
            )
        options[name] = value
    streams = frozenset(part.strip() for part in options.get("streams", "").split(",") if part.strip())
    pattern = options.get("pattern", "")
    if bool(streams) == bool(pattern):
        raise SourceOptionError(
            "the source fairlead needs either option 'streams' or option 'pattern'",
            hint="for example .option('streams', 'containers,yellow')",
        )
    for stream in streams:
        if not STREAM_NAME.fullmatch(stream):
            raise SourceOptionError(
                f"option 'streams' names {stream!r}, which cannot be a stream", hint="e.g. containers"
            )
    try:
        re.compile(pattern)
    except re.error as error:
        raise SourceOptionError(f"option 'pattern' is no regular expression: {error}") from error
    return SourceOptions(
        site=options.get("site"),
        streams=streams,
        pattern=pattern,
        rows=cast(Rows, _one_of(options, "rows", ("raw", "readings"))),
        tasks=_positive(options, "tasks", 2),
        max_records=_positive(options, "maxRecordsPerTrigger", 500_000),
        fail_on_data_loss=_one_of(options, "failOnDataLoss", ("false", "true")) == "true",
    )


def _one_of(options: Mapping[str, str], name: str, valid: tuple[str, ...]) -> str:
    value = options.get(name, valid[0]).lower()
    if value not in valid:
        raise SourceOptionError(f"option {name!r} is {value!r}", hint=f"valid: {', '.join(valid)}")
    return value


def _positive(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name, str(default))
    if not text.isdecimal() or int(text) == 0:
        raise SourceOptionError(f"option {name!r} is {text!r}", hint="expected a whole number above 0")
    return int(text)
