"""What is said of open files, memory maps, memory and disk, and that it grows with the logs and sites."""

from __future__ import annotations

import pytest

from fairlead.doctor import limits
from fairlead.doctor.limits import Disk
from fairlead.doctor.model import Needs, Verdict

GB = 1 << 30


def needs(*, logs: int = 1_000, stopped: int = 7) -> Needs:
    return Needs("big-blue", ("tokyo",) * 7, 7, stopped, logs)


@pytest.mark.parametrize(
    ("hard", "logs", "verdict"),
    [
        (limits.UNLIMITED, 10**6, Verdict.OK),
        (1_024, 500, Verdict.OK),
        (1_024, 800, Verdict.WARNING),  # 880 would be the end
        (1_024, 1_000, Verdict.FAILED),
        (20_000, 10_000, Verdict.OK),
        (20_000, 20_000, Verdict.FAILED),  # seen: no log beyond 18,400
    ],
)
def test_open_files(hard: int, logs: int, verdict: Verdict) -> None:
    assert limits.open_files(256, hard, needs(logs=logs)).verdict is verdict


def test_open_files_tells_how_many_logs_there_is_room_for() -> None:
    assert "at most 18,388 logs" in limits.open_files(1_024, 20_000, needs()).found


@pytest.mark.parametrize(
    ("limit", "logs", "verdict"),
    [
        (None, 10**6, Verdict.OK),
        (65_530, 20_000, Verdict.OK),
        (65_530, 30_000, Verdict.WARNING),
        (65_530, 40_000, Verdict.FAILED),
    ],
)
def test_memory_maps(limit: int | None, logs: int, verdict: Verdict) -> None:
    found = limits.memory_maps(limit, needs(logs=logs))
    assert found.verdict is verdict
    if limit is not None:
        assert "at most 32,599 logs" in found.found


def test_the_limit_of_maps_that_is_advised_is_enough() -> None:
    found = limits.memory_maps(65_530, needs(logs=200_000))
    advised = int(found.todo.partition("=")[2].partition(",")[0])
    assert limits.memory_maps(advised, needs(logs=200_000)).verdict is Verdict.OK


@pytest.mark.parametrize(
    ("available", "stopped", "verdict"),
    [(8 * GB, 7, Verdict.OK), (3 * GB, 7, Verdict.WARNING), (1 * GB, 7, Verdict.FAILED), (1 * GB, 0, Verdict.WARNING)],
)
def test_memory(available: int, stopped: int, verdict: Verdict) -> None:
    assert limits.memory(available, 16 * GB, needs(stopped=stopped)).verdict is verdict


@pytest.mark.parametrize(
    ("disk", "verdict", "said"),
    [
        (Disk("/x", 50 * GB, "ext4", 0.4), Verdict.OK, "ext4, 0.4 ms"),
        (Disk("/x", 50 * GB, "", 0.4), Verdict.OK, "unknown file system"),
        (Disk("/x", 50 * GB, "tmpfs", 0.001), Verdict.WARNING, "tmpfs"),
        (Disk("/x", 50 * GB, "nfs4", 0.4), Verdict.WARNING, "nfs4"),
        (Disk("/x", 50 * GB, "ext4", 12.0), Verdict.WARNING, "12 ms"),
        (Disk("/x", GB // 10, "ext4", 0.4), Verdict.FAILED, "102 MB free"),
        (Disk("/x", 50 * GB, "ext4", None, "cannot be written: Read-only file system"), Verdict.FAILED, "Read-only"),
    ],
)
def test_disk(disk: Disk, verdict: Verdict, said: str) -> None:
    found = limits.disk(disk, needs())
    assert found.verdict is verdict and said in found.found
    assert bool(found.todo) == (verdict is not Verdict.OK)


def test_more_sites_and_logs_need_more_disk_and_memory() -> None:
    tight = Disk("/x", GB, "ext4", 0.4)
    assert limits.disk(tight, needs(stopped=2)).verdict is Verdict.OK
    assert limits.disk(tight, needs(stopped=9)).verdict is Verdict.FAILED
    assert limits.memory(3 * GB, 4 * GB, needs(logs=10_000)).verdict is Verdict.FAILED
