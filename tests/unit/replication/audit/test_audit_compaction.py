"""Which differences compaction explains and which it does not, against a model of Kafka's log cleaner."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from replication.audit.result import SeenRecord
from replication.audit.side_by_side import first_unexplained

KEYS = (b"a", b"b", b"c")


def record(key: bytes | None, value: bytes | None = b"v") -> SeenRecord:
    return SeenRecord(1, key, value, ())


HISTORIES = st.lists(
    st.tuples(st.sampled_from(KEYS), st.none() | st.integers(0, 9).map(lambda n: b"%d" % n)), min_size=1, max_size=25
).map(lambda each: {n: record(*one) for n, one in enumerate(each)})
Log = dict[int, SeenRecord]


def cleaned(log: Log, before: int, tombstones_before: int) -> Log:
    """Return a log after the cleaner's run over the offsets below ``before``; older tombstones have reached their
    deletion time.
    """
    last = {r.key: n for n, r in log.items() if n < before}
    kept = {n: r for n, r in log.items() if n >= before or last[r.key] == n}
    return {n: r for n, r in kept.items() if n >= min(before, tombstones_before) or r.value is not None}


def unexplained(one: Log, other: Log, stop: int) -> int | None:
    differs = [n for n in one.keys() | other.keys() if one.get(n) != other.get(n) and n < stop]
    if not differs:
        return None

    def read(log: Log, start: int, before: int = 1 << 60) -> Iterator[tuple[int, SeenRecord]]:
        return ((n, r) for n, r in sorted(log.items()) if start <= n < before)

    start = min(differs)
    return first_unexplained(
        read(one, start), read(other, start), stop, lambda side, before: read((one, other)[side], 0, before)
    )


RUNS = st.lists(st.tuples(st.integers(0, 26), st.integers(0, 26)), max_size=3)


@given(log=HISTORIES, ends=st.tuples(st.integers(1, 25), st.integers(1, 25)), runs=st.tuples(RUNS, RUNS))
def test_each_site_may_compact_its_own_copy(
    log: Log, ends: tuple[int, int], runs: tuple[list[tuple[int, int]], list[tuple[int, int]]]
) -> None:
    """Copies that each site has compacted by itself are accepted as equal."""
    common = min(*ends, len(log))
    copies = []
    for end, of_site in zip(ends, runs, strict=True):
        copy = {n: r for n, r in log.items() if n < end}
        for before, tombstones_before in of_site:
            # A tombstone that one site has removed before the other had it would be a loss.
            copy = cleaned(copy, before, min(tombstones_before, common))
        copies.append(copy)
    assert unexplained(copies[0], copies[1], common) is None


@given(log=HISTORIES, run=st.integers(0, 26), swap=st.booleans(), data=st.data())
def test_the_newest_record_of_a_key_must_be_there(log: Log, run: int, swap: bool, data: st.DataObject) -> None:
    """The newest record of each key must be at both sites."""
    one, other = dict(log), cleaned(log, run, 0)
    newest = {r.key: n for n, r in log.items()}
    alive = sorted(n for n in newest.values() if log[n].value is not None)
    assume(alive)
    lost = data.draw(st.sampled_from(alive))
    del (one if swap else other)[lost]
    assert unexplained(one, other, len(log)) == lost


@given(log=HISTORIES, run=st.integers(0, 26), data=st.data())
def test_other_content_is_never_explained(log: Log, run: int, data: st.DataObject) -> None:
    """Compaction never explains two different records at one offset."""
    one, other = dict(log), cleaned(log, run, 0)
    assume(other)
    changed = data.draw(st.sampled_from(sorted(other)))
    other[changed] = other[changed]._replace(timestamp=2)
    assert unexplained(one, other, len(log)) == changed


def test_a_lost_tombstone_would_bring_back_the_dead() -> None:
    """A missing tombstone is a difference: without it a deleted key would have a value again."""
    deleted = {0: record(b"a"), 1: record(b"b"), 2: record(b"a", None)}
    alive = {0: record(b"a"), 1: record(b"b")}
    assert unexplained(deleted, alive, 3) == 2
    assert unexplained(alive, deleted, 3) == 2
    assert unexplained({1: record(b"b"), 2: record(b"a", None)}, alive, 3) == 2  # one site has been compacted since
    assert unexplained(deleted, {1: record(b"b")}, 3) is None  # the other has, and its tombstone has expired
    assert unexplained(deleted | {3: record(b"a")}, alive | {3: record(b"a")}, 4) is None  # a later one counts


@pytest.mark.parametrize("value", [b"v", None])
def test_a_record_without_a_key_is_never_compacted_away(value: bytes | None) -> None:
    """Compaction never explains a missing record without a key."""
    assert unexplained({0: record(None, value), 1: record(None)}, {1: record(None)}, 2) == 0


def test_what_explains_may_come_after_what_is_compared() -> None:
    """A record beyond the compared range may explain a difference within it."""
    one = {0: record(b"a"), 1: record(b"b")}
    other = {1: record(b"b"), 7: record(b"a")}
    assert unexplained(one, other, 2) is None
    assert unexplained(one, {1: record(b"b")}, 2) == 0
