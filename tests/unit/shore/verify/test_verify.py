"""Comparing tables with what they must hold: digests by log, rows of one log, rows by key, and what may be compared."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.dataset as pads
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.kafka.client.reader import OffsetRange
from shore.jobs.runner import JOBS
from shore.tables import TABLES
from shore.tables.catalogue import KEPT_BY
from shore.verify.catalogue import DERIVED, FROM_LOGS, OWN_WAY, REFERENCE
from shore.verify.compare import (
    Digest,
    ExpectedDigests,
    Limits,
    LogRows,
    RowsDigest,
    Shape,
    compare,
    connection,
    reader,
    rows_digests,
)
from shore.verify.logs import scope_of
from tests.support.examples import examples

ROWS = pa.schema([("log", pa.string()), ("log_offset", pa.int64()), ("payload", pa.binary())])


SHAPE = Shape("readings", ROWS.names)


def given_rows(log: str, *rows: tuple[int, bytes | None]) -> pa.Table:
    return pa.Table.from_pylist(
        [{"log": log, "log_offset": offset, "payload": payload} for offset, payload in rows], schema=ROWS
    )


def dataset(*rows: tuple[str, int, bytes | None]) -> pads.Dataset:
    return pads.dataset(pa.Table.from_pylist([dict(zip(ROWS.names, row, strict=True)) for row in rows], schema=ROWS))


def digests(log: str, expected: pa.Table, rows: pads.Dataset, limits: Limits) -> tuple[Digest, RowsDigest]:
    with connection() as opened:
        taken = ExpectedDigests(opened)
        taken.add(SHAPE, expected)
        found = rows_digests(opened, reader(rows, SHAPE), SHAPE, {log: limits}).get(log, RowsDigest())
        return taken.found.get(log, Digest()), found


def test_the_catalogue_names_the_tables_that_each_job_keeps() -> None:
    assert {job: set(tables) for job, tables in KEPT_BY.items()} == {
        name: set(job.tables) for name, job in JOBS.items()
    }


def test_every_table_can_be_verified_in_one_way() -> None:
    ways = [
        *(name for entry in FROM_LOGS for name in entry.tables),
        *(entry.table for entry in DERIVED),
        *OWN_WAY,
        *REFERENCE,
    ]
    assert len(ways) == len(set(ways))
    kept = {table for job in JOBS.values() for table in job.tables}
    assert kept <= set(ways) == set(TABLES)


payloads = st.one_of(st.none(), st.binary(max_size=8))
contents = st.dictionaries(st.integers(0, 50), payloads, max_size=20)


@settings(max_examples=examples(20))
@given(contents, st.randoms(use_true_random=False))
def test_order_does_not_matter(content: dict[int, bytes | None], random: object) -> None:
    rows = [("a.b", offset, payload) for offset, payload in content.items()]
    random.shuffle(rows)  # type: ignore[attr-defined]
    expected, found = digests("a.b", given_rows("a.b", *content.items()), dataset(*rows), Limits(0, 60, 60))
    assert found == RowsDigest(expected)
    assert expected.records == len(content)


@settings(max_examples=examples(40))
@given(contents.filter(bool), st.data())
def test_any_single_difference_shows(content: dict[int, bytes | None], data: st.DataObject) -> None:
    offset = data.draw(st.sampled_from(sorted(content)))
    rows = [("a.b", *each) for each in content.items()]
    odd = data.draw(st.sampled_from(["missing", "doubled", "changed", "moved"]))
    rows.remove(("a.b", offset, content[offset]))
    more: dict[str, list[tuple[str, int, bytes | None]]] = {
        "missing": [],
        "doubled": [("a.b", offset, content[offset])] * 2,
        "changed": [("a.b", offset, (content[offset] or b"") + b"!")],
        "moved": [("a.b", 55, content[offset])],
    }
    rows += more[odd]
    expected, found = digests("a.b", given_rows("a.b", *content.items()), dataset(*rows), Limits(0, 60, 60))
    assert found.inside != expected


def test_limits_say_what_is_compared() -> None:
    rows = dataset(*[("a.b", offset, b"x") for offset in (1, 2, 5, 6, 8, 9)], ("a.c", 1, b"x"))
    with connection() as opened:
        found = rows_digests(opened, reader(rows, SHAPE), SHAPE, {"a.b": Limits(start=2, stop=6, ahead=9)})
        taken = ExpectedDigests(opened)
        taken.add(SHAPE, given_rows("a.b", (2, b"x"), (5, b"x")))
        assert found["a.b"] == RowsDigest(taken.found["a.b"], before=1, beyond=1)
    assert found["a.c"].beyond == 1  # no row may be of a log that was never read


def test_where_a_job_stands() -> None:
    takes = {
        "a.full": OffsetRange(0, 9),
        "a.cut": OffsetRange(4, 9),
        "a.short": OffsetRange(0, 3),
        "a.new": OffsetRange(2, 5),
    }
    positions = {"a.full": 9, "a.cut": 6, "a.short": 7, "a.gone": 5, "a.deaf": 5}
    scope = scope_of(positions, {**positions, "a.cut": 8, "a.first": 2}, takes, {"a.deaf": "NOT_LEADER"})
    assert scope.limits == {
        "a.full": Limits(0, 9, 9),
        "a.cut": Limits(4, 6, 8),
        "a.short": Limits(0, 7, 7),
        "a.gone": Limits(5, 5, 5),
        "a.deaf": Limits(5, 5, 5),
        "a.first": Limits(0, 0, 2),
    }
    assert scope.behind == 3 + 3  # of a.cut and a.new
    gone, deaf, short = scope.notes
    assert gone == "logs that are no more there: a.gone"
    assert deaf == "logs that cannot be read: a.deaf (NOT_LEADER)"
    assert short == "logs that were truncated or made anew: a.short ends at 3 and was read up to 7"


def test_one_log_row_by_row() -> None:
    good = dataset(("a.b", 2, b"x"), ("a.b", 3, b"changed"), ("a.b", 4, b"x"), ("a.b", 4, b"x"), ("a.c", 9, b"x"))
    rejected = dataset(("a.b", 0, b"before"), ("a.b", 5, None), ("a.b", 6, b"extra"), ("a.b", 8, b"in flight"))
    shapes = {name: Shape(name, ROWS.names) for name in ("readings", "readings_rejected")}
    with connection() as opened:
        rows = LogRows(opened, shapes)
        rows.add("readings", given_rows("a.b", (1, b"x"), (2, b"x"), (3, b"x")))
        rows.add("readings", given_rows("a.b", (4, b"x")))
        rows.add("readings_rejected", given_rows("a.b", (5, None)))
        odd = rows.odd({"readings": good, "readings_rejected": rejected}, "a.b", Limits(1, 8, 9), explained=9)
    assert [tuple(each) for each in odd] == [
        (1, "missing", "readings", {}, {}),
        (3, "changed", "readings", {"payload": "changed"}, {"payload": "x"}),
        (4, "doubled", "readings", {}, {}),
        (6, "extra", "readings_rejected", {}, {}),
    ]


def test_a_row_in_the_wrong_one_of_two_tables_is_changed() -> None:
    shapes = {name: Shape(name, ROWS.names) for name in ("readings", "readings_rejected")}
    shapes["readings_rejected"] = Shape("readings_rejected", [*ROWS.names, "reason"])
    rejected = given_rows("a.b", (1, b"x")).append_column("reason", pa.array(["no device"]))
    with connection() as opened:
        rows = LogRows(opened, shapes)
        rows.add("readings_rejected", rejected)
        tables = {"readings": dataset(("a.b", 1, b"x")), "readings_rejected": pads.dataset(rejected.slice(0, 0))}
        (odd,) = rows.odd(tables, "a.b", Limits(0, 2, 2), explained=1)
    assert tuple(odd) == (1, "changed", "readings", {"reason": None}, {"reason": "no device"})


def test_a_column_that_the_table_lacks_counts_as_null() -> None:
    shape = Shape("readings", [*ROWS.names, "origin"])
    expected = given_rows("a.b", (1, b"x"))
    with connection() as opened:
        for origin, alike in ((None, True), ("a.c@1", False)):
            taken = ExpectedDigests(opened)
            taken.add(shape, expected.append_column("origin", pa.array([origin], pa.string())))
            found = rows_digests(opened, reader(dataset(("a.b", 1, b"x")), shape), shape, {"a.b": Limits(0, 9, 9)})
            assert (found["a.b"].inside == taken.found["a.b"]) is alike


VALUES = pa.schema([("box", pa.string()), ("n", pa.int64()), ("mean", pa.float64()), ("who", pa.string())])


def values(*rows: tuple[str | None, int, float | None, str | None]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(VALUES.names, row, strict=True)) for row in rows], schema=VALUES)


def test_rows_by_key() -> None:
    there = values(
        ("a", 1, 1.0 + 1e-12, None), ("a", 2, None, "x"), ("b", 1, 2.5, "x"), (None, 1, 0.0, "x"), ("c", 1, 1.0, "x"),
        ("d", 1, 1.0, "x"), ("d", 1, 1.0, "x"),
    )  # fmt: skip
    must = values(
        ("a", 1, 1.0, None), ("a", 2, 1.0, "x"), ("b", 1, 2.6, "y"), (None, 1, 1e-11, "x"), ("e", 1, 1.0, "x"),
        ("d", 1, 1.0, "x"),
    )  # fmt: skip
    with connection() as opened:
        found = compare(opened, "t", pads.dataset(there), must, ("box", "n"), tolerance=1e-9)
        assert compare(opened, "t", pads.dataset(must), must, ("box", "n"), tolerance=0.0).differing == 0
    assert (found.rows, found.expected, found.differing) == (7, 6, 5)
    assert [(each.key["box"], each.key["n"], each.what, each.columns) for each in found.differences] == [
        ("a", 2, "changed", ("mean",)),
        ("b", 1, "changed", ("mean", "who")),
        ("c", 1, "extra", ()),
        ("d", 1, "doubled", ()),
        ("e", 1, "missing", ()),
    ]


def test_a_column_that_nothing_fills_must_be_null() -> None:
    there = values(("a", 1, 1.0, "x"), ("b", 1, 1.0, None))
    with connection() as opened:
        found = compare(opened, "t", pads.dataset(there), there.drop_columns(["who"]), ("box", "n"), tolerance=0.0)
    assert [(each.key["box"], each.columns) for each in found.differences] == [("a", ("who",))]


@pytest.mark.parametrize("count", [0, 3])
def test_a_thousand_logs(count: int) -> None:
    logs = [f"a.{n}" for n in range(1000)]
    with connection() as opened:
        taken = ExpectedDigests(opened)
        for log in logs:
            taken.add(SHAPE, given_rows(log, *[(n, b"x") for n in range(count)]))
        rows = dataset(*[(log, n, b"x") for n in range(count) for log in logs])
        found = rows_digests(opened, reader(rows, SHAPE), SHAPE, dict.fromkeys(logs, Limits(0, 9, 9)))
        assert {log: each.inside for log, each in found.items()} == taken.found
    assert len(found) == (1000 if count else 0)
