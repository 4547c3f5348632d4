"""The part of ``docs/tables-reference.md`` that follows from the code: every table with its promises and columns.

``python -m shore.tables.document docs/tables-reference.md`` writes it anew between the file's two marks.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa

from shore.places import CUSTOMERS
from shore.tables import TABLES, Table
from shore.tables.customer_feed import CUSTOMER_FEED

BEGIN = "<!-- written by python -m shore.tables.document -->"
END = "<!-- end of what is written by it -->"


def markdown() -> str:
    """All tables, in the order of ``TABLES``, and that of a customer."""
    named = [*TABLES.items(), (f"{CUSTOMERS}<customer>", CUSTOMER_FEED)]
    return "\n\n".join(_section(name, table) for name, table in named)


def renewed(text: str) -> str:
    """A document with the part between its marks replaced."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n\n{markdown()}\n\n{END}{tail}"


def _section(name: str, table: Table) -> str:
    promises = (
        ("One row", table.grain),
        ("Key", ", ".join(f"`{column}`" for column in table.key)),
        ("Late data", table.late),
        ("Layout", table.layout),
        ("Retention", table.retention),
    )
    lines = [f"### `{name}`: {table.title}", "", *(f"- **{promise}**: {text}" for promise, text in promises), ""]
    lines += ["| column | type | meaning | unit |", "|---|---|---|---|"]
    for column in table.columns:
        meaning = column.comment.replace("<", "&lt;").replace("|", "\\|")
        lines.append(f"| `{column.name}` | {_type(column.type)} | {meaning} | {column.unit} |")
    return "\n".join(lines)


def _type(arrow: pa.DataType) -> str:
    """The type's name in SQL, for Markdown."""
    if pa.types.is_list(arrow):
        return f"array&lt;{_type(arrow.value_type)}>"
    if pa.types.is_struct(arrow):
        return f"struct&lt;{', '.join(f'{field.name}: {_type(field.type)}' for field in arrow)}>"
    names = {"int64": "bigint", "int32": "int", "bool": "boolean"}
    return names.get(str(arrow), "timestamp" if pa.types.is_timestamp(arrow) else str(arrow))


if __name__ == "__main__":
    document = Path(sys.argv[1])
    document.write_text(renewed(document.read_text(encoding="utf-8")), encoding="utf-8")
