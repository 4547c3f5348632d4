"""The pure parts of the audits, compared with plain models of what they must find."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fairlead.errors import ConfigurationError
from fairlead.kafka.protocol.types import TopicPartition
from replication.audit.marks import Marks, mark_file
from replication.audit.ranges import Common, LogExtent, carried, overlap
from replication.audit.records import Chunks
from replication.audit.result import SeenRecord, shown
from replication.audit.side_by_side import RecordPair, pairs
from replication.link.byte_budget import ReadPace
from topologies.loader.load import load

BYTES = st.none() | st.binary(max_size=3)
RECORDS = st.builds(
    SeenRecord, st.integers(-1, 2), BYTES, BYTES, st.lists(st.tuples(st.text(max_size=2), BYTES), max_size=2).map(tuple)
)
LOGS = st.dictionaries(st.integers(0, 60), RECORDS, max_size=30)


@st.composite
def twins(draw: st.DrawFn) -> tuple[dict[int, SeenRecord], dict[int, SeenRecord]]:
    """Draw a log and a copy that differs from it in a few offsets, or in none."""
    one = draw(LOGS)
    other = dict(one)
    for offset in draw(st.lists(st.integers(0, 60), max_size=2)):
        changed = draw(st.none() | RECORDS)
        if changed is None:
            other.pop(offset, None)
        else:
            other[offset] = changed
    return one, other


def first(one: dict[int, SeenRecord], other: dict[int, SeenRecord]) -> int | None:
    return min((n for n in one.keys() | other.keys() if one.get(n) != other.get(n)), default=None)


def in_order(log: dict[int, SeenRecord]) -> Iterator[tuple[int, SeenRecord]]:
    return iter(sorted(log.items()))


@given(logs=twins(), size=st.integers(1, 70), start=st.integers(0, 30), sides=st.lists(st.booleans(), max_size=80))
def test_digests_tell_the_chunk_of_the_first_difference(
    logs: tuple[dict[int, SeenRecord], dict[int, SeenRecord]], size: int, start: int, sides: list[bool]
) -> None:
    """Comparing digests chunk by chunk finds the chunk of the first difference."""
    both = [{n: r for n, r in log.items() if n >= start} for log in logs]
    chunks = Chunks(start, 61, size)
    waiting = [list(in_order(log)) for log in both]
    ended = [False, False]
    wanted = first(*both)
    for side in map(int, itertools.chain(sides, [False] * 62, [True] * 62)):  # the two sides answer in any order
        if ended[side] or chunks.finished:
            continue
        if waiting[side]:
            chunks.add(side, *waiting[side].pop(0))
        else:
            ended[side] = True
            chunks.reach(side)
        assert wanted is None or chunks.compared_to <= wanted
    assert chunks.finished
    if wanted is None:
        assert chunks.differs is None
        assert chunks.compared_to == 61
        assert chunks.records == len(both[0])
    else:
        assert chunks.differs is not None
        low, high = chunks.differs
        assert low <= wanted < high <= low + size
        assert high <= 61
        assert chunks.records == sum(n < low for n in both[0])


def test_a_side_that_runs_ahead_is_known_and_costs_a_digest_a_chunk() -> None:
    """If one side is read faster, the audit knows it and keeps one digest per chunk."""
    chunks = Chunks(0, 1000, 10)
    record = SeenRecord(1, b"k", b"v" * 1000, ())
    finished = [chunks.add(0, n, record) for n in range(100)]
    assert [n for n, done in enumerate(finished) if done] == list(range(0, 100, 10))
    assert (chunks.ahead(0), chunks.ahead(1)) == (9, -9)
    assert not chunks.finished
    for n in range(60):
        chunks.add(1, n, record)
    assert (chunks.ahead(0), chunks.compared_to) == (4, 50)


@given(logs=twins())
def test_side_by_side_every_offset_comes_once(logs: tuple[dict[int, SeenRecord], dict[int, SeenRecord]]) -> None:
    """Reading two sides in step yields every offset once."""
    one, other = logs
    assert list(pairs(in_order(one), in_order(other))) == [
        RecordPair(n, one.get(n), other.get(n)) for n in sorted(one.keys() | other.keys())
    ]


@given(one=BYTES | st.binary(min_size=300, max_size=500), other=BYTES | st.binary(min_size=300, max_size=500))
def test_different_bytes_never_look_the_same(one: bytes | None, other: bytes | None) -> None:
    """Different bytes are never printed alike."""
    assume(one != other)
    assert shown(one) != shown(other)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (None, None),
        (b"", ""),
        (b"Singapore", "Singapore"),
        ("Göteborg".encode(), "Göteborg"),
        (b"\x00\x01", "0x0001"),
        (b"two\nlines", "0x74776f0a6c696e6573"),
        (b"0x00", "0x30783030"),  # text that looks like hexadecimal is written as hexadecimal
    ],
)
def test_bytes_are_shown_as_text_where_they_are_text(data: bytes | None, text: str | None) -> None:
    assert shown(data) == text


def test_long_values_are_cut_and_still_differ() -> None:
    """Long values are cut, but still printed so that they differ."""
    one, other = shown(b"a" * 10_000), shown(b"a" * 9_999 + b"b")
    assert one is not None and other is not None
    assert len(one) < 600
    assert one != other
    assert "(10000 bytes, SHA-256 " in one


EXTENTS = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["s.a", "s.b"]), st.integers(0, 3)),
    st.tuples(st.integers(0, 5), st.integers(0, 5)).map(lambda each: LogExtent(min(each), max(each))),
)


def test_the_logs_that_links_carry_to_a_site() -> None:
    """What a site writes itself, what only comes with custody, and what no link takes there is not missing."""
    topology, box = load("big-blue", env={}), "containers.BIGU1000010"
    own = ["custody.duck-star", "custody.singapore", "custody.tokyo"]
    logs = [TopicPartition(topic) for topic in (box, *own, "other.x")]

    def names(source: str, target: str) -> list[str]:
        return [tp.topic for tp in carried(topology, source, target, logs)]

    assert names("tokyo", "singapore") == [box, "custody.duck-star", "custody.tokyo"]
    assert names("tokyo", "duck-star") == ["custody.singapore", "custody.tokyo"]  # of containers those aboard
    assert names("duck-star", "tokyo") == ["custody.duck-star"]  # and of its boxes those that it was given
    assert names("tokyo", "ducks-hq") == []


@given(a=EXTENTS, b=EXTENTS)
def test_the_offsets_that_both_have(a: dict[TopicPartition, LogExtent], b: dict[TopicPartition, LogExtent]) -> None:
    """Only the offsets that both sites have are compared."""
    plan = overlap(a, b)
    named = [log.tp for log in plan.common] + [*plan.apart, *plan.only_a, *plan.only_b]
    assert sorted(named) == sorted(a.keys() | b.keys())  # each log once
    assert set(plan.only_a) == a.keys() - b.keys()
    for log in plan.common:
        both = set(range(*a[log.tp][:2])) & set(range(*b[log.tp][:2]))
        assert set(range(log.start, log.stop)) == both
        assert both or a[log.tp].end == b[log.tp].end == 0
    for tp in plan.apart:
        assert not set(range(*a[tp][:2])) & set(range(*b[tp][:2]))
    assert plan.behind == sum(a[tp].end != b[tp].end for tp in a.keys() & b.keys())


@given(
    rate=st.integers(1_000, 10_000_000),
    sizes=st.lists(st.integers(1, 100_000), min_size=1, max_size=30),
)
def test_reading_keeps_to_its_rate(rate: int, sizes: list[int]) -> None:
    """Reading keeps to the audit's rate."""
    now = 0.0
    pace = ReadPace(rate, clock=lambda: now)
    assert pace.allowance(1) == 1
    for size in sizes:
        now += pace.wait()
        assert 1 <= pace.allowance(1 << 20) <= max(rate, 1)
        pace.charge(size)
    assert sum(sizes[:-1]) <= rate * now + rate / 2 + 1


def test_without_a_rate_nothing_waits() -> None:
    """Without a rate, reading never waits."""
    pace = ReadPace(None)
    pace.charge(1 << 40)
    assert (pace.wait(), pace.allowance(77)) == (0.0, 77)


LOG = Common(TopicPartition("s.a", 2), 5, 100, ("at tokyo", "at sydney"))


def audit(file: Path, *, resume: bool = True, mode: str = "full", a: str = "tokyo", b: str = "sydney") -> Marks:
    marks = Marks(file)
    marks.load(mode, a, b, resume=resume)
    return marks


def marked(folder: Path, to: int) -> Path:
    file = mark_file(folder, "full", "tokyo", "sydney")
    first_audit = audit(file, resume=False)
    first_audit.mark_equal(LOG, to)
    first_audit.save()
    return file


def test_what_was_the_same_is_left_out(tmp_path: Path) -> None:
    """With ``--resume``, offsets that an earlier audit found equal are skipped."""
    file = marked(tmp_path, 60)
    marks = audit(file)
    assert marks.resumed(LOG) == LOG._replace(start=60)
    assert marks.resumed(LOG._replace(start=70)) == LOG._replace(start=70)  # retention has deleted more
    assert marks.resumed(LOG._replace(stop=60)) == LOG._replace(start=60, stop=60)  # everything was compared
    assert marks.resumed(LOG._replace(tp=TopicPartition("s.a"))).start == 5  # another partition
    assert audit(file, resume=False).resumed(LOG) == LOG
    assert list(file.parent.iterdir()) == [file]  # no temporary file remains beside it


def test_sites_may_be_named_the_other_way_round(tmp_path: Path) -> None:
    """The progress of an earlier audit counts even if the two sites are named in the other order."""
    marks = audit(marked(tmp_path, 60), a="sydney", b="tokyo")
    assert mark_file(tmp_path, "full", "sydney", "tokyo") == mark_file(tmp_path, "full", "tokyo", "sydney")
    assert marks.resumed(LOG._replace(ids=("at sydney", "at tokyo"))).start == 60
    assert marks.resumed(LOG).start == 5


@pytest.mark.parametrize(
    "now", [LOG._replace(ids=("made anew", "at sydney")), LOG._replace(ids=("at tokyo", "")), LOG._replace(stop=59)]
)
def test_a_log_made_anew_or_shortened_is_compared_anew(tmp_path: Path, now: Common) -> None:
    """A log that was recreated or is shorter than before is compared from its start."""
    assert audit(marked(tmp_path, 60)).resumed(now) == now


def test_there_need_not_be_anything_to_go_on_from(tmp_path: Path) -> None:
    """Resuming without any saved progress starts at the beginning."""
    assert audit(tmp_path / "none").resumed(LOG) == LOG
    nowhere = Marks()
    nowhere.load("full", "a", "b", resume=True)
    nowhere.mark_equal(LOG, 60)
    nowhere.save()
    assert nowhere.resumed(LOG).start == 60


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"format": 9, "mode": "full", "sites": [], "logs": {}}'])
def test_another_file_is_named(tmp_path: Path, content: bytes) -> None:
    """A file that is no saved progress is an error that names it."""
    file = tmp_path / "marks"
    file.write_bytes(content)
    with pytest.raises(ConfigurationError, match="cannot continue") as raised:
        audit(file)
    assert "--resume" in raised.value.hint


def test_marks_of_other_sites_are_no_marks(tmp_path: Path) -> None:
    """Progress of other sites is not used."""
    file = marked(tmp_path, 60)
    with pytest.raises(ConfigurationError, match="full audit of sydney and tokyo"):
        audit(file, mode="quick")
    with pytest.raises(ConfigurationError, match="full audit of sydney and tokyo"):
        audit(file, b="singapore")


def test_marks_are_written_from_time_to_time(tmp_path: Path) -> None:
    """Progress is saved at intervals."""
    now = 0.0
    file = tmp_path / "run" / "marks"
    marks = Marks(file, clock=lambda: now)
    marks.load("full", "tokyo", "sydney", resume=False)
    marks.mark_equal(LOG, 10)
    assert not file.exists()
    now = 10.0
    marks.mark_equal(LOG, 20)
    assert audit(file).resumed(LOG).start == 20


@given(notes=st.lists(st.tuples(st.integers(0, 3), st.integers(5, 100)), max_size=8))
def test_the_newest_mark_of_each_log_counts(tmp_path_factory: Any, notes: list[tuple[int, int]]) -> None:
    """Of several saved positions of a log, the newest one counts."""
    file = tmp_path_factory.mktemp("marks") / "marks"
    before = audit(file, resume=False)
    logs = [LOG._replace(tp=TopicPartition("s.a", n)) for n in range(4)]
    for n, to in notes:
        before.mark_equal(logs[n], to)
    before.save()
    after = audit(file)
    newest = dict(notes)
    for n, log in enumerate(logs):
        assert after.resumed(log).start == max(5, newest.get(n, 5))
