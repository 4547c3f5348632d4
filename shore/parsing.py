"""From payloads to columns: JSON values of records into Arrow arrays by the paths of a table's columns. Pure.

Two ways with one result. ``read_fast`` lets Arrow's JSON reader parse many values at once (some 3 microseconds each on
one core); it refuses whatever is not plain. ``read_strict`` decodes one value after the other into its msgspec type
(about 10 microseconds each) and says for each what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from shore.tables.model import Column

_encoder = msgspec.json.Encoder()


class Parsed(NamedTuple):
    """One array per column, in their order, and per value why it could not be read (null when it could)."""

    arrays: list[pa.Array]
    problems: pa.Array


@lru_cache(maxsize=256)
def _attributes(kind: Hashable) -> dict[str, str]:
    """JSON name to attribute name of a struct."""
    info = msgspec.structs.fields(kind)  # type: ignore[arg-type]  # lru_cache wants a hashable, a class is one
    return {field.encode_name: field.name for field in info}


def value_at(record: Any, path: str) -> Any:
    """The value of a decoded record at a JSON path; None where something on the way is not there. Lists become JSON.

    A tagged record may be one of several kinds: its tag is a value like the others, and what another kind has is None.
    """
    value = record
    for name in path.split("."):
        if value is None:
            return None
        kind = type(value)
        tag_field = kind.__struct_config__.tag_field
        if name == tag_field:
            return kind.__struct_config__.tag
        attributes = _attributes(cast("Hashable", kind))
        if tag_field is not None and name not in attributes:
            return None
        value = getattr(value, attributes[name])
    if isinstance(value, tuple | list):
        return _encoder.encode(value).decode()
    return value


def read_strict(
    values: Sequence[bytes | None], columns: Sequence[Column], decoder: msgspec.json.Decoder[Any]
) -> Parsed:
    """Decode every value on its own. An unreadable one has nulls in all columns and a problem."""
    problems: list[str | None] = []
    rows: list[Any] = []
    for value in values:
        try:
            if value is None:
                raise msgspec.DecodeError("the record has no value")
            rows.append(decoder.decode(value))
            problems.append(None)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            rows.append(None)
            problems.append(str(error))
    arrays = [pa.array([value_at(row, c.path) for row in rows], c.type) for c in columns]
    return Parsed(arrays, pa.array(problems, pa.string()))


class FastReader:
    """Arrow's JSON reader for one kind of payload.

    Args:
        columns: What to read; ``Column.path`` has one or two parts.
        required: Paths without which a payload is not readable.
        defaults: Values of fields that writers leave out, by path; one below an object holds where the object is.
    """

    def __init__(self, columns: Sequence[Column], required: Iterable[str], defaults: dict[str, Any]) -> None:
        self._columns = tuple(columns)
        self._required = frozenset(required)
        self._defaults = defaults
        tree: dict[str, pa.DataType | dict[str, pa.DataType]] = {}
        types = {path: pa.string() for path in self._required} | {c.path: c.type for c in columns}
        for path, kind in types.items():
            head, dot, tail = path.partition(".")
            if dot:
                branch = tree.setdefault(head, {})
                if isinstance(branch, dict):
                    branch[tail] = kind
            else:
                tree[head] = kind
        schema = pa.schema(
            [
                pa.field(name, pa.struct(list(kind.items())) if isinstance(kind, dict) else kind)
                for name, kind in tree.items()
            ]
        )
        self._parse = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")

    def read(self, values: Sequence[bytes | None]) -> Parsed | None:
        """Parse all values at once; None when any of them is not plain (then ``read_strict`` tells which and why)."""
        # One line each, one object on each: then the number of rows proves that none was skipped or split.
        if any(not value or value[:1] != b"{" or b"\n" in value or b"\r" in value for value in values):
            return None
        text = b"\n".join(values)  # type: ignore[arg-type]  # None was answered above
        try:
            # One block: a value longer than a block would be refused otherwise.
            table = pj.read_json(
                pa.BufferReader(text),
                read_options=pj.ReadOptions(use_threads=False, block_size=len(text) + 1),
                parse_options=self._parse,
            )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None
        if table.num_rows != len(values):
            return None
        for path in self._required:
            if self._at(table, path).null_count:
                return None
        arrays = [self._with_default(table, c) for c in self._columns]
        return Parsed(arrays, pa.nulls(len(values), pa.string()))

    @staticmethod
    def _at(table: pa.Table, path: str) -> pa.Array:
        head, dot, tail = path.partition(".")
        column = table.column(head).combine_chunks()
        array = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
        return pc.struct_field(array, tail) if dot else array

    def _with_default(self, table: pa.Table, column: Column) -> pa.Array:
        array = self._at(table, column.path)
        if column.path not in self._defaults or not array.null_count:
            return array
        head, dot, _ = column.path.partition(".")
        filled = pc.fill_null(array, pa.scalar(self._defaults[column.path], column.type))
        if dot and head in self._defaults:  # the object itself has a default: absent means default, too
            return filled
        if dot:
            present = pc.is_valid(self._at(table, head))
            return pc.if_else(present, filled, pa.scalar(None, column.type))
        return filled
