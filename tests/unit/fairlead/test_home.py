"""State is in folders of their owner alone, whoever makes them first."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import shore.session
from edge.metrics import write_snapshot
from fairlead.cli.commands import bridge
from fairlead.errors import UnavailableError
from fairlead.home import cache, home, private_folder, purge_command, replace_file
from fairlead.local.files import write_file
from fairlead.local.state import locked
from shore.delta.lease import only_one
from shore.paths import TablePaths
from topologies.context import Context, open_topology, running_kafka
from topologies.endpoints import write_address_overrides


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def _shore(folder: Path) -> None:
    with only_one(folder, TablePaths.of(folder)):
        pass


def _up(folder: Path) -> None:
    with locked(folder / "deeper", lambda: None):
        pass


def _bridge(folder: Path) -> None:
    with bridge._only_one(cast(Context, SimpleNamespace(folder=folder)), "tokyo"):  # noqa: SLF001
        pass


def _spark(folder: Path) -> None:
    class NotStartedError(Exception):
        pass

    def refuse(*_: Any, **__: Any) -> dict[str, str]:
        raise NotStartedError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "environ", dict(os.environ))
        patch.setattr(shore.session, "settings", refuse)
        with pytest.raises(NotStartedError):
            shore.session.spark(folder)


WRITERS: dict[str, Callable[[Path], object]] = {
    "a folder": private_folder,
    "shore run": _shore,
    "a Spark session": _spark,
    "the bridge's status": lambda folder: write_snapshot(folder / "run" / "bridge.tokyo.json", {}),
    "the bridge's lock": _bridge,
    "a status": lambda folder: replace_file(folder / "run" / "r.json", b"{}"),
    "address overrides": lambda folder: write_address_overrides(folder / "run" / "address-overrides.json", {}),
    "up": _up,
    "a file": lambda folder: write_file(folder / "sites" / "tokyo" / "file", "x"),
}


@pytest.mark.parametrize("who", WRITERS)
def test_every_folder_of_state_is_its_owners_alone(who: str, tmp_path: Path) -> None:
    folder = tmp_path / "home" / "minimal"
    WRITERS[who](folder)
    made = [tmp_path / "home", folder, *(each for each in folder.rglob("*") if each.is_dir())]
    assert {str(each.relative_to(tmp_path)): oct(each.stat().st_mode & 0o777) for each in made} == {
        str(each.relative_to(tmp_path)): "0o700" for each in made
    }


def test_a_folder_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    assert private_folder(shared / "own").stat().st_mode & 0o777 == 0o700
    assert shared.stat().st_mode & 0o777 == 0o755


def test_relative_folders_are_those_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FAIRLEAD_HOME", "state")
    monkeypatch.setenv("FAIRLEAD_CACHE", "cache")
    assert (home(), cache()) == (tmp_path / "state", tmp_path / "cache")
    assert TablePaths.of(Path("state")).table("readings") == str(tmp_path / "state/delta/readings")


def test_the_command_that_deletes_data_names_the_topology() -> None:
    assert purge_command(Path("/state/minimal")) == "fairlead down --topology minimal --purge"
    assert purge_command(Path("/state/minimal"), "tokyo") == "fairlead down tokyo --topology minimal --purge"


def test_hints_name_the_file_of_a_users_own_topology(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path / "home"))
    file = tmp_path / "of mine.yaml"
    file.write_text("name: my-fleet\nsites:\n  quay: {kind: port, unlocode: JPTYO}\n")
    own, usual = open_topology(str(file)), open_topology()
    assert purge_command(own.folder, "quay") == f"fairlead down quay --topology '{file}' --purge"
    for ask in (partial(own.local.kafka, "quay", "admin"), partial(running_kafka(own, started=False), "quay")):
        with pytest.raises(UnavailableError) as error:
            ask()
        assert f"fairlead up quay --topology '{file}'" in str(error.value.hint)
    with pytest.raises(UnavailableError) as error:
        usual.local.kafka("tokyo", "admin")
    assert "--topology" not in str(error.value.hint)
    assert purge_command(usual.folder) == "fairlead down --topology big-blue --purge"
