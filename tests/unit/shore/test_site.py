"""Where shore runs, what its site lacks after a move, and who may write at two sites at once."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.cli.app import run
from fairlead.errors import ConfigurationError, UnavailableError
from shore.delta.lease import Lease, only_one
from shore.errors import AlreadyRunningError, LeaseLostError, ShoreMovedError
from shore.jobs.status import JobStatus, write_status
from shore.paths import TablePaths
from shore.sink.exactly_once import FeedSink
from shore.site import (
    HeldLog,
    SiteRecord,
    check_is_here,
    check_may_run,
    cut_off,
    first_difference,
    lacking,
    read_site,
    site_now,
    write_site,
)
from shore.storage import Storage
from topologies.loader.load import load

AT = dt.datetime(2026, 3, 1, 12, 0, tzinfo=dt.UTC)
HERE = load("two-headquarters")

positions = st.dictionaries(st.sampled_from("abcde"), st.integers(0, 9))


@given(positions, positions)
def test_a_log_is_held_where_shore_has_read_what_the_site_does_not_have(read: Any, ends: Any) -> None:
    found = lacking(read, ends)
    assert found == {log: HeldLog(ends.get(log, 0), at) for log, at in read.items() if ends.get(log, 0) < at}


def test_a_log_is_held_where_it_was_seized_below_what_shore_has_read() -> None:
    seizures = [("a", 5), ("a", 3), ("b", 9), ("c", 1)]
    assert cut_off({"a": 9, "b": 9}, seizures) == {"a": HeldLog(3, 9)}


records = st.dictionaries(st.integers(0, 20), st.one_of(st.none(), st.binary(max_size=1)))


@given(records, records)
def test_records_are_the_same_if_the_tables_have_each_of_them(there: Any, stored: Any) -> None:
    found = first_difference(sorted(there.items()), stored)
    wrong = sorted(at for at, value in there.items() if at not in stored or stored[at] != value)
    assert found == (wrong[0] if wrong else None)


def test_the_record_is_read_back_and_names_what_has_parted(tmp_path: Path) -> None:
    paths = TablePaths.of(tmp_path)
    assert read_site(paths) is None
    assert site_now(HERE, paths) == "los-angeles"
    held = {"readings": {"a.1": HeldLog(3, 9, 4), "a.2": HeldLog(0, 2)}, "alerts": {"a.1": HeldLog(3, 9, 4)}}
    moved = SiteRecord("los-angeles", "los-angeles").moved("tokyo", held, AT)
    write_site(paths, moved)
    assert read_site(paths) == moved
    assert site_now(HERE, paths) == "tokyo"
    assert (moved.generation, moved.moved_from, moved.feeds_at) == (2, "los-angeles", "los-angeles")
    assert moved.parted() == ["a.1 has other records at tokyo from offset 4 on than shore has read"]
    check_is_here(paths, "tokyo")
    with pytest.raises(ShoreMovedError, match="shore is at tokyo since 2026-03-01 12:00 UTC, and not at los-angeles"):
        check_is_here(paths, "los-angeles")
    (tmp_path / "site.json").write_text("{")
    with pytest.raises(ConfigurationError, match="does not say where shore runs"):
        read_site(paths)


def test_shore_runs_only_where_the_topology_lets_it() -> None:
    check_may_run(HERE, "tokyo")
    with pytest.raises(ConfigurationError, match="may not run at singapore") as caught:
        check_may_run(HERE, "singapore")
    assert "it may run at los-angeles, tokyo" in str(caught.value)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    monkeypatch.setenv("FAIRLEAD_TOPOLOGY", "two-headquarters")
    found = tmp_path / "two-headquarters"
    (found / "run").mkdir(parents=True)
    return found


def test_commands_follow_shore_to_its_new_site(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After a move, a run without --site is refused and says where shore is; status names what waits and what has
    parted, and fails its check."""
    held = {"readings": {"containers.BIGU0000016": HeldLog(3, 9, 4), "containers.BIGU0000021": HeldLog(1, 2)}}
    write_site(TablePaths.of(folder), SiteRecord("los-angeles", "los-angeles").moved("tokyo", held, AT))
    write_status(folder, {"readings": JobStatus("readings", "done")})
    assert run(["shore", "status", "--check"]) == 1
    told = capsys.readouterr().out
    assert "shore is at tokyo, moved from los-angeles at 2026-03-01 12:00:00 UTC" in told
    assert "containers.BIGU0000016 has other records at tokyo from offset 4 on" in told
    assert "containers.BIGU0000021 was read up to 2, and tokyo had it up to 1: it waits for the rest" in told
    assert run(["shore", "run", "--once", "--site", "singapore"]) == 3
    assert "may run at los-angeles, tokyo" in capsys.readouterr().err
    assert run(["shore", "verify", "--site", "duck-star"]) == 3


def test_the_second_of_two_sites_is_refused_and_told_who_writes(tmp_path: Path) -> None:
    paths = TablePaths(f"file://{tmp_path}/storage")
    first = Lease(paths.base, str(tmp_path / "one"), site="los-angeles", beat_seconds=0.1)
    first.acquire()
    try:
        with (
            pytest.raises(AlreadyRunningError, match=r"process \d+ of .+, for site los-angeles, writes to"),
            only_one(tmp_path / "two", paths, "tokyo"),
        ):
            pass
    finally:
        first.release()


def test_a_driver_that_is_cut_off_from_the_storage_gives_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must know that it still holds the right to write before it appends to a feed, not only before it commits."""
    paths = TablePaths(f"file://{tmp_path}/storage")
    sink = FeedSink(paths, cast(Any, None), {}, 0, frozenset())
    lease = Lease(paths.base, "/one", site="los-angeles", beat_seconds=3600, dead_seconds=2, host="one")
    lease.acquire()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(Storage, "files", cut := _unavailable)
            patch.setattr(Storage, "names", cut)
            lease._beaten -= 60  # noqa: SLF001  # it has not reached the storage for a minute
            with pytest.raises(UnavailableError, match="does not answer"):
                sink.append(cast(Any, None))
        other = Lease(paths.base, "/two", site="tokyo", beat_seconds=3600, dead_seconds=0.1, host="two")
        other.acquire()  # Tokyo takes over meanwhile
        lease._beaten -= 60  # noqa: SLF001
        with pytest.raises(LeaseLostError, match="for site tokyo, has taken over"):
            lease.check()
        other.release()
        with pytest.raises(LeaseLostError):
            sink.append(cast(Any, None))
    finally:
        lease.release()


def _unavailable(*_: object) -> list[str]:
    raise UnavailableError("the storage does not answer")
