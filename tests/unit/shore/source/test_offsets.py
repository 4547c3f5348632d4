"""Positions, admission and packing: nothing is admitted twice or lost, and no log waits for another."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shore.source.offsets import (
    Range,
    admit,
    pack,
    parse_partition_id,
    partition_id,
    ranges,
    restore,
    restore_begin,
    store,
)

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
def test_packing_whole_logs_covers_everything_once_and_is_balanced(given_work: list[Range], tasks: int) -> None:
    packed = pack(given_work, tasks, keep_whole=True)
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


@given(positions, positions, st.booleans())
def test_where_a_batch_begins_stands_in_its_own_offset(
    given_positions: dict[str, int], begin: dict[str, int], begun: bool
) -> None:
    stored = store(given_positions, begin, begun=begun)
    assert restore(stored) == {log: position for log, position in given_positions.items() if position}
    assert restore_begin(stored) == {log: position for log, position in begin.items() if position}
    assert bool(stored) or not begun


sizes = st.dictionaries(names, st.integers(1, 3_000))


@given(start=positions, end=positions, limit=st.none() | st.integers(1, 900), budget=st.integers(1, 50_000), size=sizes)
def test_admission_by_bytes_keeps_both_bounds(
    start: dict[str, int], end: dict[str, int], limit: int | None, budget: int, size: dict[str, int]
) -> None:
    def of(log: str) -> int:
        return size.get(log, 100)

    stop = admit(start, end, limit, limit_bytes=budget, size=of)
    taken = {log: stop[log] - start.get(log, 0) for log in stop}
    lag = sum(max(0, end[log] - start.get(log, 0)) for log in end)
    assert all(0 <= count <= max(0, end.get(log, 0) - start.get(log, 0)) for log, count in taken.items())
    assert sum(taken.values()) <= (lag if limit is None else limit)
    assert sum(count * of(log) for log, count in taken.items()) <= budget or sum(taken.values()) == 1
    assert (sum(taken.values()) > 0) == (lag > 0)  # at least one record where there is a lag
    generous = admit(start, end, limit, limit_bytes=10**9, size=of)
    assert generous == admit(start, end, limit)


@given(start=positions, end=positions, budget=st.integers(300_000, 2_000_000), size=sizes)
def test_admission_by_bytes_reaches_the_end(
    start: dict[str, int], end: dict[str, int], budget: int, size: dict[str, int]
) -> None:
    def of(log: str) -> int:
        return size.get(log, 100)

    position, goal = dict(start), admit(start, end, None)
    for _ in range(1_000):
        position = admit(position, end, None, limit_bytes=budget, size=of)
        if position == goal:
            break
    assert position == goal


def test_large_records_hold_small_ones_up_no_more_than_their_bytes() -> None:
    end = {"a.large": 1_000, "a.small": 1_000}
    stop = admit({}, end, None, limit_bytes=200_000, size=lambda log: 10_000 if log == "a.large" else 10)
    assert stop == {"a.small": 1_000, "a.large": 19}


@given(work, st.integers(1, 8), st.integers(1, 30_000))
def test_packing_cuts_long_ranges_and_covers_every_offset_once(
    given_work: list[Range], tasks: int, smallest: int
) -> None:
    packed = pack(given_work, tasks, smallest=smallest)
    assert len(packed) <= tasks
    assert all(packed)
    parts = sorted(item for task in packed for item in task)
    joined: list[Range] = []
    for part in parts:
        if joined and joined[-1].topic == part.topic:
            assert joined[-1].stop == part.start
            joined[-1] = joined[-1]._replace(stop=part.stop)
        else:
            joined.append(part)
    assert joined == sorted(given_work)
    for task in packed:  # adjacent parts of a log are one range
        assert not {(item.topic, item.stop) for item in task} & {(item.topic, item.start) for item in task}
    if packed:
        loads = [sum(item.span for item in task) for task in packed]
        assert max(loads) <= 2 * -(-sum(loads) // len(loads))


def test_one_log_of_ten_million_among_small_ones_is_read_by_all_tasks() -> None:
    logs = [Range("a.long", 0, 0, 10_000_000), *(Range(f"a.{i}", 0, 0, 10) for i in range(9_999))]
    loads = [sum(item.span for item in task) for task in pack(logs, 4)]
    assert len(loads) == 4
    assert max(loads) - min(loads) <= 10
    whole = pack(logs, 4, keep_whole=True)
    assert sorted(item for task in whole for item in task) == sorted(logs)


def test_many_logs_with_one_record_each_are_work_for_more_than_one_task() -> None:
    each = [Range(f"containers.{number}", 0, 7, 8) for number in range(10_000)]
    assert [len(task) for task in pack(each, 2)] == [5_000, 5_000]
    assert [len(task) for task in pack(each[:1_000], 2)] == [1_000]
