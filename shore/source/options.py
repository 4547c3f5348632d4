"""Options of the source ``fairlead``, checked once. Pure.

========================  ===========================================================================================
``site``                  the site whose Kafka is read: one of the endpoints given to ``shore.datasource.register``.
                          Needed when there is more than one.
``streams``               names of streams, comma separated: every log ``<stream>.<key>`` is read
``pattern``               instead: a regular expression that a topic's whole name must match
``rows``                  ``raw`` (default): what Kafka has; ``readings``: parsed, the columns of tables ``readings``
                          and ``readings_rejected``; rows with a ``reason`` belong to the latter
``tasks``                 the most tasks that read a batch; default 2. A log that is longer than a task's share is read
                          by several.
``keepLogsWhole``         ``true``: one task reads all of a log's records in a batch, in order; default ``false``
``maxRecordsPerTrigger``  the largest number of offsets in one micro-batch; default 500000
``maxBytesPerTrigger``    the approximate bytes of keys, values and headers in one micro-batch; default: no limit.
                          Sizes are not known before reading, so they are estimated (``shore.source.stream``).
``startingOffsets``       where a new query begins in the logs that exist then: ``earliest`` (default), ``latest``,
                          or JSON by log, ``{"containers.MSKU1234565": 1200, "events.tokyo": -1}``: an offset, -1 for
                          latest, -2 for earliest; logs not named begin at their first record. A log that appears
                          later is always read from its first record. A checkpoint overrides this option.
``startingTimestamp``     instead: begin in each log at its first record of that time or later (the record's own time;
                          where there is none, at its end). ISO 8601 with a zone, or milliseconds since 1970 UTC.
``endingOffsets``         for batch reads: ``latest`` (default) or JSON by log; logs not named are read to their end
``endingTimestamp``       for batch reads, instead: end before each log's first record of that time or later
``failOnDataLoss``        ``true`` (default, as with Spark's own Kafka source): fail when records are lost before they
                          could be read; ``false``: go on, and report it in the log and in the query's progress
``losses``                ``<folder>/losses/<name>``, a path or a URL: where each loss is noted
                          (``shore.source.losses``); default: nowhere. A query with such a folder skips losses that are
                          acknowledged there, and goes on where a log was truncated without losing a record.
``held``                  JSON by log: the offset up to which a log was read at another site, or null where this site
                          has other records. Such a log is not read on (``shore.site``).
========================  ===========================================================================================

There is no option for a password: options are shown in query plans.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, cast

from fairlead.errors import nearest
from fairlead.names import STREAM_NAME, parse_log
from shore.errors import SourceOptionError
from shore.source.offsets import parse_partition_id

_SPARKS: Final = frozenset({"path", "checkpointlocation", "queryname"})  # Spark passes its own options on, too


def _known_options(given: Mapping[str, str]) -> dict[str, str]:
    """Return the given options by their documented names. Names are compared without case, as everywhere in Spark.

    Raises:
        SourceOptionError: an option is neither one of ``_NAMES`` nor one of Spark's own.
    """
    known = {name.lower(): name for name in _NAMES}
    options: dict[str, str] = {}
    for key, value in given.items():
        name = known.get(key.lower())
        if name is not None:
            options[name] = value
        elif key.lower() not in _SPARKS:
            near = nearest(key.lower(), known)
            raise SourceOptionError(
                f"the source fairlead has no option {key!r}",
                hint=(f"did you mean {known[near]!r}? " if near else "") + f"valid: {', '.join(_NAMES)}",
            )
    return options


def _one_of(options: Mapping[str, str], name: str, valid: Sequence[str]) -> str:
    """Return an option in lower case; without it the first of ``valid``. Raise SourceOptionError for other values."""
    value = options.get(name, valid[0]).lower()
    if value not in valid:
        raise SourceOptionError(f"option {name!r} is {value!r}", hint=f"valid: {', '.join(valid)}")
    return value


def _positive(options: Mapping[str, str], name: str, default: int) -> int:
    """Return an option that is a whole number above 0, or ``default`` without it. Raise SourceOptionError for other
    values."""
    text = options.get(name, str(default))
    if not text.isdecimal() or int(text) == 0:
        raise SourceOptionError(f"option {name!r} is {text!r}", hint="expected a whole number above 0")
    return int(text)


Rows = Literal["raw", "readings"]
EARLIEST = -2
LATEST = -1
_NAMES = (
    "site",
    "streams",
    "pattern",
    "rows",
    "tasks",
    "keepLogsWhole",
    "maxRecordsPerTrigger",
    "maxBytesPerTrigger",
    "startingOffsets",
    "startingTimestamp",
    "endingOffsets",
    "endingTimestamp",
    "failOnDataLoss",
    "losses",
    "held",
)


@dataclass(frozen=True, slots=True)
class Edge:
    """Where reading begins or ends.

    Args:
        usual: ``EARLIEST`` or ``LATEST``, for logs that ``by_log`` does not name.
        by_log: An offset, ``EARLIEST`` or ``LATEST``, by log partition (``shore.source.offsets``).
        timestamp_ms: When given, the edge of all logs instead: their first record of that time or later.
    """

    usual: int
    by_log: Mapping[str, int] = field(default_factory=dict)
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options with their types. Exactly one of ``streams`` and ``pattern`` is set."""

    site: str | None
    streams: frozenset[str]
    pattern: str
    rows: Rows
    tasks: int
    keep_logs_whole: bool
    max_records: int
    max_bytes: int | None
    starting: Edge
    ending: Edge
    fail_on_data_loss: bool
    losses: str = ""
    held: Mapping[str, int | None] = field(default_factory=dict)

    def takes(self, topic: str) -> bool:
        """Return whether a topic is one of the logs to read. Kafka's own topics (``__...``) never are."""
        if topic.startswith("__"):
            return False
        if self.pattern:
            return re.fullmatch(self.pattern, topic) is not None
        log = parse_log(topic)
        return log is not None and log.stream in self.streams

    def check_streaming(self) -> None:
        """Refuse options that make no sense in a streaming query, which has no end.

        Raises:
            SourceOptionError: the query has an option for an end.
        """
        if self.ending != Edge(LATEST):
            raise SourceOptionError(
                "options 'endingOffsets' and 'endingTimestamp' are for batch reads; a streaming query has no end",
                hint="use spark.read instead of spark.readStream, or leave the option out",
            )


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """Return the checked options of one ``load()``. Names are compared without case, as everywhere in Spark.

    Raises:
        SourceOptionError: an option is wrong; the error says which, its value and what is valid.
    """
    options = _known_options(given)
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
    found = SourceOptions(
        site=options.get("site"),
        streams=streams,
        pattern=pattern,
        rows=cast(Rows, _one_of(options, "rows", ("raw", "readings"))),
        tasks=_positive(options, "tasks", 2),
        keep_logs_whole=_one_of(options, "keepLogsWhole", ("false", "true")) == "true",
        max_records=_positive(options, "maxRecordsPerTrigger", 500_000),
        max_bytes=_positive(options, "maxBytesPerTrigger", 1) if "maxBytesPerTrigger" in options else None,
        starting=_edge(options, "starting", EARLIEST),
        ending=_edge(options, "ending", LATEST),
        fail_on_data_loss=_one_of(options, "failOnDataLoss", ("true", "false")) == "true",
        losses=options.get("losses", "").rstrip("/"),
        held=_held(options.get("held", "{}")),
    )
    for name, edge in (("startingOffsets", found.starting), ("endingOffsets", found.ending)):
        for log in edge.by_log:
            if not found.takes(parse_partition_id(log)[0]):
                raise SourceOptionError(
                    f"option {name!r} names log {log!r}, which the query does not read",
                    hint="name logs that 'streams' or 'pattern' selects",
                )
    return found


def _edge(options: Mapping[str, str], which: str, usual: int) -> Edge:
    offsets, timestamp = f"{which}Offsets", f"{which}Timestamp"
    if offsets in options and timestamp in options:
        raise SourceOptionError(f"options {offsets!r} and {timestamp!r} exclude each other", hint="give one of them")
    if timestamp in options:
        return Edge(usual, timestamp_ms=_milliseconds(timestamp, options[timestamp]))
    words = {"earliest": EARLIEST, "latest": LATEST} if which == "starting" else {"latest": LATEST}
    text = options.get(offsets, "").strip()
    if not text:
        return Edge(usual)
    if text.lower() in words:
        return Edge(words[text.lower()])
    try:
        by_log = json.loads(text)
    except ValueError:
        by_log = None
    if not isinstance(by_log, dict) or not all(type(value) is int and value >= EARLIEST for value in by_log.values()):
        raise SourceOptionError(
            f"option {offsets!r} is {text[:100]!r}",
            hint=f"valid: {', '.join(words)}, or JSON such as "
            '{"events.tokyo": 1200}: an offset by log, -1 for latest, -2 for earliest',
        )
    return Edge(usual, by_log=by_log)


def _held(text: str) -> Mapping[str, int | None]:
    try:
        held = json.loads(text)
    except ValueError:
        held = None
    if not isinstance(held, dict) or not all(value is None or type(value) is int for value in held.values()):
        raise SourceOptionError(f"option 'held' is {text[:100]!r}", hint="expected JSON: an offset or null by log")
    return held


def _milliseconds(name: str, text: str) -> int:
    if text.isdecimal():
        return int(text)
    try:
        time = dt.datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None or time.timestamp() < 0:
        raise SourceOptionError(
            f"option {name!r} is {text!r}",
            hint="expected a time with its zone, such as 2026-03-01T12:00:00Z, or milliseconds since 1970 UTC",
        )
    return int(time.timestamp() * 1000)
