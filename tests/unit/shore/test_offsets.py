"""Positions, admission and packing: nothing is admitted twice or lost, and no log is held up by another."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shore.source.offsets import Range, admit, pack, parse_partition_id, partition_id, ranges, restore, store

names = st.sampled_from([f"containers.BIGU{i:07d}" for i in range(12)] + ["events.tokyo", "foreign", "foreign/3"])
positions = st.dictionaries(names, st.integers(0, 5_000))


@given(positions)
def test_stored_positions_come_back(given_positions: dict[str, int]) -> None:
    kept = {log: position for log, position in given_positions.items() if position}
    assert restore(store(given_positions)) == kept


def test_equal_positions_are_stored_as_equal_text() -> None:
    assert list(store({"a.2": 1, "a.1": 2})["a"]) == list(store({"a.1": 2, "a.2": 1})["a"])


def test_partition_zero_is_the_topic_itself() -> None:
    assert partition_id("t.x", 0) == "t.x"
    assert parse_partition_id(partition_id("t.x", 12)) == ("t.x", 12)


@given(start=positions, end=positions, limit=st.integers(0, 20_000))
def test_admission_keeps_its_bounds(start: dict[str, int], end: dict[str, int], limit: int) -> None:
    stop = admit(start, end, limit)
    assert stop.keys() == start.keys() | end.keys()
    for log, position in stop.items():
        begin = start.get(log, 0)
        assert begin <= position <= max(begin, end.get(log, 0))
    lag = sum(max(0, end[log] - start.get(log, 0)) for log in end)
    assert sum(stop[log] - start.get(log, 0) for log in stop) == min(lag, limit)


@given(start=positions, end=positions, limit=st.integers(1, 500))
def test_admission_reaches_the_end_and_then_stays(start: dict[str, int], end: dict[str, int], limit: int) -> None:
    position, lag = admit(start, end, 0), sum(max(0, end[log] - start.get(log, 0)) for log in end)
    for _ in range(-(-lag // limit)):
        position = admit(position, end, limit)
    assert position == admit(position, end, limit) == admit(start, end, None)


def test_a_long_backlog_holds_no_other_log_up() -> None:
    end = {"a.long": 10_000_000} | {f"a.{i}": 10 for i in range(999)}
    stop = admit({}, end, 20_000)
    assert all(stop[f"a.{i}"] == 10 for i in range(999))
    assert stop["a.long"] == 20_000 - 9_990


def test_equal_backlogs_get_equal_shares() -> None:
    assert admit({"a.1": 5}, {"a.1": 105, "a.2": 100, "a.3": 1}, 21) == {"a.1": 15, "a.2": 10, "a.3": 1}


def test_a_log_that_shrank_or_vanished_keeps_its_position() -> None:
    assert admit({"a.1": 50, "a.2": 7}, {"a.1": 20}, None) == {"a.1": 50, "a.2": 7}
    assert ranges({"a.1": 50, "a.2": 7}, {"a.1": 50, "a.2": 7}) == []


work = st.lists(
    st.builds(lambda i, start, span: Range(f"a.{i}", 0, start, start + span), st.integers(0, 999), st.integers(0, 99),
              st.integers(1, 50_000)),
    max_size=60, unique_by=lambda r: r.topic,
)  # fmt: skip


@given(work, st.integers(1, 8))
def test_packing_covers_everything_once_and_is_balanced(given_work: list[Range], tasks: int) -> None:
    packed = pack(given_work, tasks)
    assert sorted(item for task in packed for item in task) == sorted(given_work)
    assert len(packed) <= tasks
    assert all(packed)
    loads = [sum(item.span for item in task) for task in packed]
    if loads:
        assert max(loads) - min(loads) <= max(item.span for item in given_work)


def test_thousands_of_logs_make_few_tasks_and_little_work_makes_one() -> None:
    logs = [Range(f"a.{i}", 0, 0, 100) for i in range(10_000)]
    assert [len(task) for task in pack(logs, 2)] == [5_000, 5_000]
    assert len(pack(logs[:50], 2)) == 1
