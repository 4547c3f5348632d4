"""Parse raw rows of the small streams into rows of their tables (``shore.tables.operations``).

Job ``operations`` parses on Spark's executors, which import this module and little else. ``shore.verify`` and repairs
use the same function.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from fairlead.records.alert import Alert
from fairlead.records.digest import Digest
from shore.source.parsing import TOO_LONG, Parsed, read_strict, too_long, without
from shore.tables.operations import OPERATIONS, LogTable

RAW_COLUMNS = ("topic", "offset", "term", "timestamp", "value")
"""The columns of the source's raw rows that the tables need."""
_BY_NAME = {operation.table.name: operation for operation in OPERATIONS}


def rows_of(operation: LogTable, raw: pa.Table) -> pa.Table:
    """Return the rows of one table, parsed from the source's raw rows. Rows of other tables are left out.

    Args:
        raw: Rows with ``RAW_COLUMNS``.
    """
    logs = [topic for topic in pc.unique(raw["topic"]).to_pylist() if re.fullmatch(operation.pattern, topic)]
    own = raw.filter(pc.is_in(raw["topic"], pa.array(logs, pa.string())))
    values = own["value"].to_pylist()
    parsed = read_strict(values, operation.payload_columns, operation.decoder)
    if operation.kind is not Digest:  # a large ship's digest is long, and none is in a feed as it is
        parsed = without(parsed, too_long(own["value"].combine_chunks()), TOO_LONG)
    if operation.kind is Alert:
        parsed = _without_forged(parsed, own["topic"].combine_chunks(), [c.name for c in operation.payload_columns])
    by_name: dict[str, pa.Array | pa.ChunkedArray] = {
        "log": own["topic"],
        "log_offset": own["offset"],
        "term": own["term"],
        "record_date_time": own["timestamp"],
        "problem": parsed.problems,
        "payload": own["value"],
    }
    by_name |= dict(zip((c.name for c in operation.payload_columns), parsed.arrays, strict=True))
    schema = operation.table.plain_schema
    return pa.table([by_name[name].cast(schema.field(name).type) for name in schema.names], schema=schema)


def _without_forged(parsed: Parsed, logs: pa.Array, names: list[str]) -> Parsed:
    """Return alerts without those that another site's log has in a site's name (``is_own_alert``): a problem each."""
    raised_at = parsed.arrays[names.index("raised_at")]
    forged = pc.not_equal(logs, pc.binary_join_element_wise("alerts", raised_at, "."))
    said = pc.binary_join_element_wise("raisedAt names ", raised_at, ", whose log this is not", "")
    return without(parsed, forged, said)


def parse_batches(table: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table from the raw batches of a Spark task (``DataFrame.mapInArrow``)."""
    for batch in batches:
        yield from rows_of(_BY_NAME[table], pa.Table.from_batches([batch])).to_batches()
