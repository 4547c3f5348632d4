"""The run-time lock is a part of the whole lock, and holds what pyproject names and nothing of development."""

from __future__ import annotations

import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.release import locks

PROJECT = tomllib.loads((locks.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def named(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(each).name) for each in requirements}


def test_the_run_time_lock_is_a_part_of_the_lock_with_the_same_versions_and_hashes() -> None:
    everything = {(pin.name, pin.version): pin for pin in locks.read(locks.EVERYTHING)}
    for pin in locks.read(locks.RUN_TIME):
        assert pin.hashes == everything[pin.name, pin.version].hashes, pin.name


def test_both_locks_choose_the_same_version_on_every_machine() -> None:
    machines = [
        {"python_version": short, "python_full_version": full, "sys_platform": system}
        for short, full in (("3.11", "3.11.2"), ("3.11", "3.11.9"), ("3.12", "3.12.0"), ("3.13", "3.13.1"))
        for system in ("linux", "darwin")
    ]
    for machine in machines:
        everything = {pin.name: pin.version for pin in locks.read(locks.EVERYTHING) if pin.applies(machine)}
        run_time = {pin.name: pin.version for pin in locks.read(locks.RUN_TIME) if pin.applies(machine)}
        assert run_time.items() <= everything.items(), machine


def test_the_run_time_lock_has_every_dependency_and_none_of_development() -> None:
    locked = {pin.name for pin in locks.read(locks.RUN_TIME)}
    needed = named(PROJECT["dependencies"])
    assert needed <= locked
    assert not (named(PROJECT["optional-dependencies"]["dev"]) - needed) & locked


def test_the_versions_are_those_that_pyproject_allows() -> None:
    wanted = {str(canonicalize_name(Requirement(each).name)): Requirement(each) for each in PROJECT["dependencies"]}
    for pin in locks.read(locks.RUN_TIME):
        assert pin.name not in wanted or pin.version in wanted[pin.name].specifier, pin.name


def test_a_lock_is_read_with_markers_hashes_and_comments() -> None:
    text = "Ab_c==1.0 ; python_version < '3.12' \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n    # via x\n"
    text += "d==2 \\\n    --hash=sha256:cc\n    # via\n    #   fairlead (pyproject.toml)\n    #   Ab_c\n"
    pin, other = locks.parse(text)
    assert (pin.name, pin.version, sorted(pin.hashes)) == ("ab-c", "1.0", ["sha256:aa", "sha256:bb"])
    assert pin.applies({"python_version": "3.11"}) and not pin.applies({"python_version": "3.13"})
    assert (pin.needed_by, other.needed_by) == (("x",), ("fairlead", "ab-c"))


@pytest.mark.parametrize("line", ["loose>=1 --hash=sha256:aa", "bare==1.0"])
def test_what_is_not_locked_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="not locked"):
        locks.parse(line)
