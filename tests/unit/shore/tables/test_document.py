"""The pages of ``docs/tables/`` match the code, and the examples of ``docs/tables.md`` run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from shore.paths import TablePaths
from shore.tables import TABLES
from shore.tables.operations import OPERATIONS
from tests.support.delta_rs import create
from tools.table_reference import FOLDER, pages

DOCUMENT = Path(__file__).parents[4] / "docs" / "tables.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)


def test_the_reference_of_tables_is_up_to_date() -> None:
    written = {file.name: file.read_text(encoding="utf-8") for file in FOLDER.glob("*.md")}
    assert written == pages(), "run: python -m tools.table_reference"


@pytest.mark.parametrize("example", [example for example in EXAMPLES if "shore.session" not in example])
def test_examples_run(
    example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    paths = TablePaths.of(tmp_path / "big-blue")
    for table in TABLES.values():
        create(table, paths.table(table.name))
    exec(compile(example, str(DOCUMENT), "exec"), {})  # noqa: S102  # our own examples
    assert capsys.readouterr().out.strip() == "[]"


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_table_keeps_its_form(table: object) -> None:
    from shore.tables import Table

    assert isinstance(table, Table)
    names = [column.name for column in table.columns]
    assert len(set(names)) == len(names)
    assert set(table.key) <= set(names)
    assert all(column.comment for column in table.columns)
    # SQL must not need quotes for any column, in DuckDB or Spark.
    assert not {"offset", "order", "group", "timestamp", "user", "end", "window"} & set(names)


@pytest.mark.parametrize("operation", OPERATIONS, ids=[o.table.name for o in OPERATIONS])
def test_paths_of_columns_exist_in_the_payload(operation: object) -> None:
    from shore.tables.operations import LogTable

    assert isinstance(operation, LogTable)
    for column in operation.payload_columns:
        kinds = get_args(operation.kind) or (operation.kind,)
        assert any(_has(kind, column.path) for kind in kinds), column


def _has(kind: object, path: str) -> bool:
    import msgspec

    for name in path.split("."):
        fields = {f.encode_name: f.type for f in msgspec.structs.fields(kind)}  # type: ignore[arg-type]
        if name == kind.__struct_config__.tag_field:  # type: ignore[attr-defined]
            return True
        if name not in fields:
            return False
        kind = _struct_in(fields[name])
    return True


def _struct_in(kind: object) -> object:
    import msgspec

    found = [k for k in getattr(kind, "__args__", (kind,)) if isinstance(k, type) and issubclass(k, msgspec.Struct)]
    return found[0] if found else kind
