"""Options of the sink ``fairlead``, checked once. Pure.

====================  ===============================================================================================
``app``               names this sequence of batches in the logs' records. Another name for each query and for each
                      new checkpoint of a query: what a log has of batch 7 of ``app`` is taken for batch 7 of this
                      query. A streaming query that has a name (``queryName``) may leave it out; a batch write without
                      it cannot be repeated safely.
``log``               the log that all rows go to; without it they need a column ``topic``
``site``              whose Kafka; must be one of the endpoints the source was registered with. Needed when there is
                      more than one.
``createLogs``        ``true``: make logs that are not there, with Fairlead's usual settings; default ``false``: fail
``maxBytesPerBatch``  at most so many bytes of keys, values and headers in one batch; default 134217728 (128 MiB). They
                      pass through the driver.
====================  ===============================================================================================

There is no option for a password: options are shown in query plans.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from fairlead.names import MAX_TOPIC_LENGTH, parse_log
from shore.options import known_options, one_of, positive
from shore.sink.errors import SinkOptionError

APP = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_NAMES = ("app", "log", "site", "createLogs", "maxBytesPerBatch")
_MAX_BYTES = 128 << 20
_TOPIC = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options with their types. ``app`` is None only for a batch write."""

    app: str | None
    log: str | None
    site: str | None
    create_logs: bool
    max_bytes: int


def parse_sink_options(given: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """Check the options of one ``start()`` or ``save()``. Names are compared without case, as everywhere in Spark.

    Raises:
        SinkOptionError: says which option, what it is and what is possible.
    """
    options = known_options(given, _NAMES, "the sink fairlead", SinkOptionError)
    names = {key.lower(): value for key, value in given.items()}
    app = options.get("app") or names.get("queryname")
    if app is None and streaming:
        raise SinkOptionError(
            "the sink fairlead needs option 'app' or a query name",
            hint="for example .option('app', 'arrivals-2026'); another one for each new checkpoint",
        )
    if app is not None and not APP.fullmatch(app):
        raise SinkOptionError(
            f"option 'app' is {app!r}", hint="expected up to 100 letters, digits, dots, hyphens and underscores"
        )
    log = options.get("log")
    if log is not None and not is_log(log):
        raise SinkOptionError(f"option 'log' is {log!r}", hint="expected a log's name, <stream>.<key>")
    create = one_of(options, "createLogs", ("false", "true"), SinkOptionError) == "true"
    size = positive(options, "maxBytesPerBatch", _MAX_BYTES, SinkOptionError)
    return SinkOptions(app, log, options.get("site"), create, size)


def is_log(topic: str) -> bool:
    """Whether a topic may be a log that the sink writes."""
    return len(topic) <= MAX_TOPIC_LENGTH and bool(_TOPIC.fullmatch(topic)) and parse_log(topic) is not None
