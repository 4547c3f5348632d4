"""Parse JSON payloads into Arrow arrays, by the JSON paths of a table's columns. Pure.

``FastReader`` parses many values at once with Arrow's JSON reader (some 3 microseconds each on one core), and refuses
them if any has an unexpected form. ``read_strict`` decodes each value into its msgspec type (about 10 microseconds
each) and reports each value's problem. ``TolerantReader`` does the same, but reads an optional field of another type,
as a newer writer may send it, as null.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Hashable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from fairlead.records import UNREADABLE, Decoder
from shore.tables.model import TIME, Column

_encoder = msgspec.json.Encoder()
_NOT_HELD = (pa.ArrowException, OverflowError, ValueError)


class Parsed(NamedTuple):
    """One array for each column, in order, and for each value why it could not be read (null when it could)."""

    arrays: list[pa.Array]
    problems: pa.Array


@lru_cache(maxsize=256)
def _attributes(kind: Hashable) -> dict[str, str]:
    """Return a struct's attribute names by JSON name."""
    info = msgspec.structs.fields(kind)  # type: ignore[arg-type]  # lru_cache wants a hashable, a class is one
    return {field.encode_name: field.name for field in info}


def value_at(record: Any, path: str) -> Any:
    """Return a decoded record's value at a JSON path; None where a part of the path is absent. Lists become JSON text.

    A tagged record is one of several kinds. Its tag is a value like others; fields of the other kinds are None.
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


def read_strict(values: Sequence[bytes | None], columns: Sequence[Column], decoder: Decoder) -> Parsed:
    """Decode each value on its own. An unreadable value has nulls in all columns and a problem."""
    problems: list[str | None] = []
    rows: list[Any] = []
    for value in values:
        try:
            if value is None:
                raise msgspec.DecodeError("the record has no value")
            rows.append(decoder.decode(value))
            problems.append(None)
        except UNREADABLE as error:
            rows.append(None)
            problems.append(str(error))
    try:
        arrays = [_array(rows, column) for column in columns]
    except _NOT_HELD:
        for place, row in enumerate(rows):
            if row is not None and (wrong := _not_held(row, columns)):
                rows[place], problems[place] = None, wrong
        arrays = [_array(rows, column) for column in columns]
    return Parsed(arrays, pa.array(problems, pa.string()))


def _array(rows: Sequence[Any], column: Column) -> pa.Array:
    """Return a column's values. A list of structs, whose names are the attributes of the records in it, keeps its form.

    Raises one of ``_NOT_HELD``.
    """
    if not pa.types.is_list(column.type):
        return pa.array([value_at(row, column.path) for row in rows], column.type)
    lists = (None if row is None else getattr(row, column.path) for row in rows)
    return pa.array([each and [*map(msgspec.structs.asdict, each)] for each in lists], column.type)


def _not_held(row: Any, columns: Sequence[Column]) -> str:
    """Return why the columns cannot hold a payload (a number is too large, for example); empty when they can."""
    for column in columns:
        try:
            _array([row], column)
        except _NOT_HELD as error:
            return f"{column.path}: {error}"
    return ""


MOST_BYTES: Final = 500_000
"""A longer JSON value is unreadable. A bridge takes half of it, but another writer may put longer ones into a log,
compressed. A feed must have room for the value, and for names from it in key and headers."""
TOO_LONG: Final = f"it has more than {MOST_BYTES:,} bytes"


def without(parsed: Parsed, wrong: pa.Array, why: pa.Array | str) -> Parsed:
    """Return parsed values without those that are wrong: these have nulls in all columns, and a problem."""
    wrong = pc.fill_null(wrong, False)
    if not pc.any(wrong).as_py():
        return parsed
    arrays = [pc.if_else(wrong, pa.scalar(None, each.type), each) for each in parsed.arrays]
    return Parsed(arrays, pc.if_else(wrong, why, parsed.problems))


def too_long(values: pa.Array) -> pa.Array:
    """Return which of these values are longer than ``MOST_BYTES``."""
    return pc.greater(pc.binary_length(values), MOST_BYTES)


_PLAIN_TIME: Final = r"^(19|2\d)\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)$"


class FastReader:
    """Arrow's JSON reader for one kind of payload. It takes only what a strict reader reads in the same way: Arrow
    itself takes times without a zone, years that Python does not know, and text that is no UTF-8.

    Args:
        columns: The columns to read; ``Column.path`` has one or two parts.
        required: Paths that every payload must have. Their numbers count from 0, and all times are among them.
        defaults: Values of fields that writers leave out, by path. The default of a field in an object counts where the
            object is present or has a default itself.
    """

    def __init__(self, columns: Sequence[Column], required: Iterable[str], defaults: dict[str, Any]) -> None:
        self._columns = tuple(columns)
        self._required = frozenset(required)
        self._defaults = defaults
        tree: dict[str, pa.DataType | dict[str, pa.DataType]] = {}
        types = {path: pa.string() for path in self._required} | {c.path: c.type for c in columns if c.type != TIME}
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

    def read(self, text: pa.Buffer, rows: int) -> Parsed | None:
        """Parse ``rows`` values at once, each a JSON object on one line. Return None when any value needs another
        reader, which then tells which value and why."""
        try:
            # One block for all: Arrow refuses a value that is longer than a block.
            table = pj.read_json(
                pa.BufferReader(text),
                read_options=pj.ReadOptions(use_threads=False, block_size=len(text) + 1),
                parse_options=self._parse,
            )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None
        if table.num_rows != rows:
            return None
        if any(self._at(table, path).null_count for path in self._required):
            return None
        try:
            arrays = [self._checked(self._with_default(table, c), c) for c in self._columns]
        except pa.ArrowInvalid:
            return None
        return Parsed(arrays, pa.nulls(rows, pa.string()))

    def _checked(self, array: pa.Array, column: Column) -> pa.Array:
        """Raise ArrowInvalid for a value that Arrow reads and a strict reader may not."""
        if column.type == TIME:
            if not pc.all(pc.match_substring_regex(array, _PLAIN_TIME)).as_py():
                raise pa.ArrowInvalid("a time of another form")
            return array.cast(TIME)
        if pa.types.is_string(column.type):
            array.validate(full=True)  # UTF-8
        elif column.path in self._required and pc.any(pc.less(array, 0)).as_py():
            raise pa.ArrowInvalid("a count below 0")
        return array

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
        if dot and head in self._defaults:  # an absent object means its default
            return filled
        if dot:
            present = pc.is_valid(self._at(table, head))
            return pc.if_else(present, filled, pa.scalar(None, column.type))
        return filled


_PYTHON = {"string": str, "int64": int, "double": float, "bool": bool}


class TolerantReader:
    """Decodes values one by one. Optional fields that it cannot read become null; null itself means the default.

    Args:
        columns: The columns to read; ``Column.path`` has one or two parts.
        whole: Decodes a complete, correct record.
        needed: Decodes only the required fields. A value that it refuses has nulls in all columns and a problem.
        required: Paths of the fields that ``needed`` decodes.
        defaults: As for ``FastReader``.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        whole: msgspec.json.Decoder[Any],
        needed: msgspec.json.Decoder[Any],
        required: Iterable[str],
        defaults: dict[str, Any],
    ) -> None:
        self._columns = tuple(columns)
        self._whole = whole
        self._needed = needed
        self._required = frozenset(required)
        self._defaults = defaults
        self._heads = dict.fromkeys(column.path.partition(".")[0] for column in self._columns)
        fields = [(head, msgspec.Raw, msgspec.Raw(b"null")) for head in self._heads]
        self._parts = msgspec.json.Decoder(msgspec.defstruct("Parts", fields))

    def read(self, values: Sequence[bytes | None]) -> Parsed:
        """Read the values, one row for each."""
        problems: list[str | None] = []
        rows: list[list[Any]] = []
        for value in values:
            try:
                rows.append(self._row(value))
                problems.append(None)
            except UNREADABLE as error:
                rows.append([None] * len(self._columns))
                problems.append(str(error))
        read = problems.count(None)
        arrays = [self._array(number, rows, problems) for number in range(len(self._columns))]
        if problems.count(None) < read:  # some problems show only when the column is built
            rows = [[None] * len(row) if problem else row for row, problem in zip(rows, problems, strict=True)]
            arrays = [self._array(number, rows, problems) for number in range(len(self._columns))]
        return Parsed(arrays, pa.array(problems, pa.string()))

    def _row(self, value: bytes | None) -> list[Any]:
        if value is None:
            raise msgspec.DecodeError("the record has no value")
        try:
            record = self._whole.decode(value)
        except UNREADABLE:
            self._needed.decode(value)  # raises where a required field cannot be read
            parts = self._parts.decode(value)  # others need not be readable, nor does the fast reader look at them
            loose = {head: msgspec.json.decode(getattr(parts, head)) for head in self._heads}
            return [self._loose(loose, column) for column in self._columns]
        return [self._strict(record, column.path) for column in self._columns]

    def _strict(self, record: Any, path: str) -> Any:
        value = value_at(record, path)
        return self._defaults.get(path) if value is None and "." not in path else value

    def _loose(self, record: dict[str, Any], column: Column) -> Any:
        head, dot, tail = column.path.partition(".")
        value = record.get(head)
        if value is None:  # null is as absent, as for the fast reader
            value = self._defaults.get(head)
        if dot and isinstance(value, dict):
            value = value.get(tail)
            if value is None:
                value = self._defaults.get(column.path)
        elif dot:
            return None  # absent, or not an object
        kind = dt.datetime if pa.types.is_timestamp(column.type) else _PYTHON[str(column.type)]
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError:
            return None

    def _array(self, number: int, rows: Sequence[list[Any]], problems: list[str | None]) -> pa.Array:
        column = self._columns[number]
        values = [row[number] for row in rows]
        try:
            return pa.array(values, column.type)
        except _TOO_MUCH:
            for place, value in enumerate(values):  # numbers beyond 64 bits, lone surrogates
                try:
                    pa.scalar(value, column.type)
                except _TOO_MUCH:
                    values[place] = rows[place][number] = None
                    if column.path in self._required:
                        problems[place] = f"the value cannot be stored - at `$.{column.path}`"
        return pa.array(values, column.type)


_TOO_MUCH = (OverflowError, UnicodeError, pa.ArrowInvalid)
