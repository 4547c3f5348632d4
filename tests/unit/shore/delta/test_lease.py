"""Where other machines reach the tables, one of them writes; a state folder needs only its own lock."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from shore.delta import lease
from shore.delta.lease import Lease, only_one
from shore.errors import AlreadyRunningError
from shore.paths import TablePaths
from tests.support.waits import PATIENCE


def test_two_machines_do_not_write_to_one_shared_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "Lease", partial(Lease, beat_seconds=0.05, dead_seconds=PATIENCE))
    shared = TablePaths.of(tmp_path / "one", str(tmp_path / "lake"))
    with only_one(tmp_path / "one", shared) as first:
        assert first is not None
        with pytest.raises(AlreadyRunningError, match="writes to"), only_one(tmp_path / "two", shared):
            pass
    with only_one(tmp_path / "two", shared) as second:  # at once: the first has released it
        assert second is not None
        assert second.term == first.term + 1


def test_another_machine_of_the_same_name_does_not_take_the_place_of_one_that_writes(tmp_path: Path) -> None:
    """Machines made from one image may have one name, and their state folders one path."""
    both = partial(Lease, str(tmp_path), "/var/lib/fairlead", host="ubuntu", beat_seconds=0.05, dead_seconds=PATIENCE)
    first, other, again = both(machine="one"), both(machine="two"), both(machine="one")
    first.acquire()
    with pytest.raises(AlreadyRunningError, match="writes to"):
        other.acquire()
    again.acquire()  # at once: a machine knows by its folder's lock that its earlier process is dead
    assert again.term == first.term + 1
    for each in (again, first):
        each.release()


def test_tables_in_the_state_folder_have_its_lock_only(tmp_path: Path) -> None:
    for paths in (TablePaths.of(tmp_path), TablePaths.of(tmp_path, str(tmp_path))):
        with only_one(tmp_path, paths) as held:
            assert held is None
    assert not (tmp_path / "lock").exists()
