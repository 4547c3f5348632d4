"""Recordings are read back as written, and a broken file is refused before the voyage starts."""

from __future__ import annotations

import datetime as dt
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.errors import ExitCode, UnavailableError
from simulators.steps import (
    BarrierKind,
    LinkChange,
    MessageKind,
    Probes,
    Publish,
    ReadingId,
    ShipSeized,
    ShipSinks,
    Step,
    VoyageBarrier,
)
from simulators.voyage.recording import (
    BadRecording,
    RecordingEnd,
    RecordingWriter,
    ReplayedVoyage,
    header_of,
    read_steps,
    recording,
)
from simulators.voyage.truth import Truth
from simulators.voyage.voyage import Voyage
from tests.support.simulators.worlds import big_blue, ducks, small_plan, small_steps, transhipment, voyage
from topologies.loader.load import load as load_topology

times = st.datetimes(timezones=st.just(dt.UTC))
names = st.text(max_size=12)
numbers = st.floats(allow_nan=False, allow_infinity=False)
messages = st.builds(
    Publish,
    sim_time=times,
    site=names,
    topic=names,
    payload=st.binary(max_size=60) | st.text(max_size=30).map(str.encode),
    kind=st.sampled_from(MessageKind),
    key=names,
    log=st.none() | names,
    reading=st.none() | st.builds(ReadingId, names, names, st.integers(0, 2**31), st.integers(0, 2**31)),
    customer=st.none() | names,
    detail=names,
    probes=st.none() | st.builds(Probes, st.none() | numbers, st.none() | numbers, numbers, numbers, st.booleans()),
    place=st.none() | st.tuples(numbers, numbers),
    decides=st.booleans(),
    moves_log=st.none() | names,
)
barriers = st.builds(
    VoyageBarrier,
    sim_time=times,
    kind=st.sampled_from(BarrierKind),
    description=names,
    site=names,
    peer=names,
    containers=st.lists(names, max_size=3).map(tuple),
    log_ends=st.dictionaries(names, st.integers(0, 2**40), max_size=3),
)
changes = st.builds(LinkChange, sim_time=times, between=st.tuples(names, names), up=st.booleans())
losses = st.builds(ShipSinks, sim_time=times, ship=names) | st.builds(
    ShipSeized, sim_time=times, ship=names, port=names
)
steps = st.lists(messages | barriers | changes | losses, max_size=12)


def written(some: list[Step]) -> bytes:
    stream = io.BytesIO()
    writer = RecordingWriter(stream, header_of(small_plan(), with_bad=True))
    for step in some:
        writer.write(step)
    writer.finish()
    return stream.getvalue()


def read(content: bytes) -> list[Step | RecordingEnd]:
    return list(read_steps(io.BytesIO(content), "here"))


@given(steps)
@settings(deadline=None)
def test_every_step_is_read_as_it_was_written(some: list[Step]) -> None:
    *found, end = read(written(some))
    assert found == some
    assert isinstance(end, RecordingEnd)
    assert (end.steps, end.messages) == (len(some), sum(isinstance(step, Publish) for step in some))
    assert written(some) == written(some)


@given(steps, st.data())
@settings(deadline=None)
def test_a_file_that_is_cut_short_anywhere_is_refused(some: list[Step], data: st.DataObject) -> None:
    whole = written(some)
    kept = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(BadRecording, match=r"cut short|damaged"):
        read(whole[:kept])
    lines = gzip.decompress(whole).splitlines(keepends=True)
    fewer = data.draw(st.integers(1, len(lines) - 1))
    with pytest.raises(BadRecording, match="cut short"):
        read(gzip.compress(b"".join(lines[:fewer])))


@given(steps, st.data())
@settings(deadline=None)
def test_a_changed_byte_is_found(some: list[Step], data: st.DataObject) -> None:
    whole = bytearray(written(some))
    place = data.draw(st.integers(10, len(whole) - 1))  # the first ten are gzip's own: time, system
    whole[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(BadRecording):
        read(bytes(whole))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda lines: [*lines[:3], *lines[4:]], "has been changed"),
        (lambda lines: [*lines, lines[-1]], "goes on after its end"),
        (lambda lines: [*lines[:2], b"{}\n", *lines[2:]], "line 3, is no step"),
        (lambda lines: [*lines[:2], b'{"publish": 5}\n', *lines[2:]], "line 3, is no step"),
        (lambda lines: [*lines[:2], b"\xff\xfe\n", *lines[2:]], "line 3, is no step"),
        (lambda lines: [b"[]\n", *lines[1:]], "is no recording"),
        (lambda lines: [b"ships\n", *lines[1:]], "is no recording"),
        (lambda lines: [lines[0].replace(b'"', b'"\xff', 1), *lines[1:]], "is no recording"),
        (lambda lines: [b"[" * 100_000 + b"\n", *lines[1:]], "is no recording"),
        (lambda lines: [lines[0].replace(b'"version":1', b'"version":2'), *lines[1:]], "has version 2 of the format"),
    ],
)
def test_a_bad_recording_is_refused_with_the_reason(change: Callable[[list[bytes]], list[bytes]], says: str) -> None:
    lines = gzip.decompress(written(list(small_steps()[:20]))).splitlines(keepends=True)
    with pytest.raises(BadRecording, match=says):
        read(gzip.compress(b"".join(change(lines))))


def recorded(made: Voyage, path: Path) -> Path:
    with recording(made, path, with_bad=made.with_bad) as sailed:
        for _ in sailed.steps():
            pass
    return path


def test_a_recorded_voyage_is_the_voyage(tmp_path: Path) -> None:
    made = voyage(5, 12)
    replay = ReplayedVoyage(recorded(made, tmp_path / "voyage.gz"), big_blue())
    steps = list(made.steps())
    assert list(replay.steps()) == steps
    assert list(replay.steps()) == steps, "it can be sailed again"
    assert replay.expected_messages() == sum(isinstance(step, Publish) for step in steps)
    assert (replay.starts, replay.ends) == (made.starts, made.ends)
    truths = [Truth(made.plan), Truth(replay.plan)]
    for truth in truths:
        for step in steps:
            if isinstance(step, Publish):
                truth.record(step, step.sim_time)
    assert set(truths[0].published) == set(truths[1].published)


def test_the_same_voyage_makes_the_same_file(tmp_path: Path) -> None:
    one, other = (recorded(voyage(5, 12), tmp_path / name) for name in ("one", "other"))
    assert one.read_bytes() == other.read_bytes()
    header = json.loads(gzip.decompress(one.read_bytes()).splitlines()[0])
    assert header["scenario"]["reading_interval"] == "12h"
    assert header["containers"] == 12


def test_an_interrupted_voyage_leaves_no_file(tmp_path: Path) -> None:
    made = voyage(5, 12)
    with pytest.raises(KeyboardInterrupt), recording(made, tmp_path / "voyage", with_bad=False) as sailed:
        next(sailed.steps())
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_a_failure_after_the_last_message_keeps_the_recording(tmp_path: Path) -> None:
    made = voyage(5, 12)
    with pytest.raises(UnavailableError), recording(made, tmp_path / "voyage", with_bad=True) as sailed:
        steps = list(sailed.steps())
        raise UnavailableError("no report can be made")
    assert list(ReplayedVoyage(tmp_path / "voyage", big_blue()).steps()) == steps


def test_a_recording_of_another_topology_is_refused(tmp_path: Path) -> None:
    file = recorded(voyage(5, 12), tmp_path / "voyage")
    with pytest.raises(BadRecording, match="recorded on topology big-blue, not on minimal") as error:
        ReplayedVoyage(file, load_topology("minimal", env={}))
    assert "sydney (port there, none here)" in error.value.what
    assert f"fairlead voyage replay {file} big-blue" in error.value.hint
    assert error.value.exit_code == ExitCode.CONFIG


def test_a_recording_of_another_plan_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = recorded(voyage(5, 12), tmp_path / "voyage")
    monkeypatch.setattr(
        "simulators.voyage.recording.make_plan",
        lambda *_: Voyage(ducks().adjusted(containers=12), big_blue(), seed=6).plan,
    )
    with pytest.raises(BadRecording, match="plans that scenario differently"):
        ReplayedVoyage(file, big_blue())


def test_every_scenario_can_be_written_down(tmp_path: Path) -> None:
    made = Voyage(transhipment(), big_blue(), seed=1)
    assert ReplayedVoyage(recorded(made, tmp_path / "voyage"), big_blue()).plan.scenario == made.plan.scenario


def test_a_missing_file_and_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadRecording, match="cannot be read"):
        ReplayedVoyage(tmp_path / "none", big_blue())
    (tmp_path / "text").write_text("ships")
    with pytest.raises(BadRecording, match="no gzip file"):
        ReplayedVoyage(tmp_path / "text", big_blue())
    (tmp_path / "empty").touch()
    with pytest.raises(BadRecording, match="cut short"):
        ReplayedVoyage(tmp_path / "empty", big_blue())
