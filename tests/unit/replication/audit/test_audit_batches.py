"""Comparing stored batches: which ones prove equality, and which offsets the audit must compare record by record."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.kafka.protocol.batch import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, BatchHeader
from replication.audit import stored as module
from replication.audit.stored import AuditedBatch, BatchComparison

END = 40


def header(base: int, count: int, *, attributes: int = 0, held: int | None = None) -> BatchHeader:
    held = count if held is None else held
    return BatchHeader(base, 49, 0, 2, 0, attributes, count - 1, 1, 1, 7, 0, 0, held)


def batch(base: int, stop: int, content: int = 0, *, void: bool = False) -> AuditedBatch:
    return AuditedBatch.of(header(base, stop - base), content, aborted=void)


@pytest.fixture(autouse=True)
def ranges_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NEAR", 0)


def compared(a: list[AuditedBatch], b: list[AuditedBatch], *, start: int = 0, stop: int = END) -> BatchComparison:
    made = BatchComparison(start, stop)
    for side, of_side in enumerate((a, b)):
        for each in of_side:
            made.add(side, each)
        made.reach(side, stop)
    made.compare()
    assert made.finished
    return made


@st.composite
def copies(draw: st.DrawFn) -> list[list[AuditedBatch]]:
    """Draw two copies of offsets 0 to END - 1 made of batches and gaps; equal numbers stand for equal content."""
    out = []
    for _ in range(2):
        cuts = sorted(draw(st.sets(st.integers(1, END - 1), max_size=12)) | {0, END})
        tiles = []
        for base, stop in itertools.pairwise(cuts):
            kind = draw(st.sampled_from("ddddvg"))
            if kind != "g":
                tiles.append(batch(base, stop, draw(st.integers(0, 1)), void=kind == "v"))
        out.append(tiles)
    same = draw(st.sampled_from([0, 1, 2]))
    return [out[0], out[0]] if same == 0 else out


def contents(tiles: list[AuditedBatch]) -> dict[int, tuple[int, int, int]]:
    """Return the content at each offset; none where there is no record."""
    return {n: tile[:3] for tile in tiles if not tile.void for n in range(tile.base, tile.stop)}


@given(
    tiles=copies(),
    sides=st.lists(st.integers(0, 1), max_size=60),
    window=st.tuples(st.integers(0, 15), st.integers(25, END)),
)
def test_every_offset_that_may_differ_is_left_to_the_records(
    tiles: list[list[AuditedBatch]], sides: list[int], window: tuple[int, int]
) -> None:
    """Every offset that may differ is compared record by record."""
    start, stop = window
    made = BatchComparison(start, stop)
    waiting = [list(each) for each in tiles]
    here, there = (contents(each) for each in tiles)
    differing = [n for n in range(start, stop) if here.get(n) != there.get(n)]
    for side in itertools.chain(sides, [0] * 20, [1] * 20):
        if waiting[side]:
            made.add(side, waiting[side].pop(0))
        else:
            made.reach(side, stop)
        made.compare()
        assert not differing or made.compared_to <= differing[0]
    assert made.finished
    gathered = {n for low, high in made.ranges for n in range(low, high)}
    assert gathered >= set(differing)
    if tiles[0] == tiles[1]:
        assert not gathered
    assert all(start <= low < high <= stop for low, high in made.ranges)
    assert all(here.get(low) != there.get(low) for low, _ in made.ranges)
    assert made.compared_to == (made.ranges[0][0] if made.ranges else stop)


def test_only_what_differs_is_left_to_the_records() -> None:
    """Only batches that differ are compared record by record."""
    a = [batch(0, 10), batch(10, 20), batch(20, 30), batch(30, 40)]
    b = [batch(0, 10), batch(10, 20, 1), batch(20, 30), batch(30, 40, 1)]
    made = compared(a, b)
    assert made.ranges == [[10, 20], [30, 40]]
    assert (made.unlike, made.batches, made.records) == (2, 4, 40)
    assert [pair.a.base for pair in made.strict] == [10, 30]  # same bounds and plain: one must hold fillers


def test_batches_are_compared_again_where_both_begin_again() -> None:
    """After different batch boundaries, batch comparison resumes where a batch starts at both sites."""
    split = [batch(0, 10), batch(10, 14), batch(14, 20), batch(20, 30), batch(30, 40)]
    made = compared([batch(0, 10), batch(10, 20), batch(20, 30), batch(30, 40)], split)
    assert made.ranges == [[10, 20]]
    assert made.strict == []
    made = compared([batch(0, 10), batch(10, 25), batch(25, 30), batch(30, 40)], split)
    assert made.ranges == [[10, 30]]


def test_near_ranges_are_read_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges close to each other are read as one."""
    monkeypatch.setattr(module, "NEAR", 11)
    a = [batch(n, n + 5) for n in range(0, 40, 5)]
    b = [batch(n, n + 5, n in (5, 20)) for n in range(0, 40, 5)]
    made = compared(a, b)
    assert made.ranges == [[5, 25]]
    assert made.unlike == 2


def test_nothing_equals_nothing() -> None:
    """Offsets without records are equal, whatever batches cover them."""
    a = [batch(0, 10), batch(10, 20, void=True), batch(20, 21, void=True), batch(30, 40)]
    b = [batch(0, 10), batch(15, 25, 9, void=True), batch(30, 40)]
    assert compared(a, b).ranges == []
    assert compared(a, []).ranges == [[0, 10], [30, 40]]
    data = [batch(0, 10), batch(10, 20), batch(30, 40)]
    assert compared(a, data).ranges == [[10, 20]]  # aborted at one site, copied as data to the other


def test_a_batch_that_reaches_beyond_what_is_compared() -> None:
    """A batch that extends beyond the compared range is compared within it only."""
    a = [batch(0, 10), batch(10, 20)]
    assert compared(a, a, start=5, stop=15).ranges == []
    assert compared(a, [batch(0, 10, 1), batch(10, 20, 1)], start=5, stop=15).ranges == [[5, 10], [10, 15]]
    assert compared(a, [batch(5, 10), batch(10, 20)], start=5, stop=15).ranges == [[5, 10]]


@pytest.mark.parametrize(
    ("made", "plain", "void"),
    [
        (header(0, 5), True, False),
        (header(0, 5, held=3), False, False),
        (header(0, 5, held=0), False, True),
        (header(0, 5, attributes=LOG_APPEND_TIME), False, False),
        (header(0, 5, attributes=TRANSACTIONAL), False, False),
        (header(0, 1, attributes=TRANSACTIONAL | CONTROL), False, True),
    ],
)
def test_what_a_batch_counts_for(made: BatchHeader, plain: bool, void: bool) -> None:
    """Batch headers decide whether a batch can be compared as a whole, and whether it has no visible records."""
    found = AuditedBatch.of(made, 1, aborted=False)
    assert (found.plain, found.void) == (plain, void)
    assert AuditedBatch.of(made, 1, aborted=True).void


def test_who_is_ahead_is_known() -> None:
    """The comparison knows which side has been read further."""
    made = BatchComparison(0, END)
    for n in range(4):
        made.add(0, batch(n * 10, n * 10 + 10))
    made.compare()
    assert (made.ahead(0), made.known_to(0), made.known_to(1), made.finished) == (4, 40, 0, False)
    made.add(1, batch(0, 10))
    made.compare()
    assert (made.ahead(0), made.compared_to) == (3, 10)
