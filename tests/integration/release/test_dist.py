"""What is built installs, holds what is read at run time and nothing else, and is the same bytes each time."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from shutil import copytree

from tests.integration.release.conftest import EPOCH
from tools.release import dist
from tools.release.locks import ROOT

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES = [name.rstrip("*") for name in SETTINGS["tool"]["setuptools"]["packages"]["find"]["include"]]


def of_the_packages(source: Path) -> set[str]:
    return {str(file.relative_to(source)) for name in PACKAGES for file in (source / name).rglob("*") if file.is_file()}


def test_the_wheel_has_every_file_of_the_packages_and_no_other(released: dist.Dist, source: Path) -> None:
    with zipfile.ZipFile(released.wheel) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        about = {name.partition(".dist-info/")[2] for name in wheel.namelist()} - {""}
    assert names == of_the_packages(source)
    assert {"licenses/LICENSE", "licenses/NOTICE", "licenses/THIRD-PARTY-NOTICES.md", "entry_points.txt"} <= about


def test_check_wheel_contents_has_nothing_to_say(released: dist.Dist) -> None:
    command = [
        sys.executable,
        "-m",
        "check_wheel_contents",
        "--config",
        str(ROOT / "pyproject.toml"),
        str(released.wheel),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_sdist_has_what_the_wheel_needs_and_neither_tests_nor_tools(released: dist.Dist, source: Path) -> None:
    with tarfile.open(released.sdist) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames() if sdist.getmember(name).isfile()}
    texts = {"pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "NOTICE", "THIRD-PARTY-NOTICES.md"}
    assert of_the_packages(source) | texts | {"requirements-run.lock"} <= names
    assert not {name for name in names if name.startswith(("tests/", "benchmarks/", "tools/"))}


def test_the_same_source_gives_the_same_bytes_from_tree_and_sdist(
    released: dist.Dist, source: Path, tmp_path: Path
) -> None:
    """The fixture's wheel comes from its sdist, this one from the tree; and time has passed."""
    elsewhere = copytree(source, tmp_path / "elsewhere", copy_function=shutil.copyfile)
    again = dist.build(elsewhere, tmp_path / "dist", EPOCH, wheel_from_sdist=False)
    assert again.wheel.name == released.wheel.name and again.wheel.read_bytes() == released.wheel.read_bytes()
    assert again.sdist.name == released.sdist.name and again.sdist.read_bytes() == released.sdist.read_bytes()


def test_what_somebody_set_on_this_machine_is_never_packed(source: Path, tmp_path: Path) -> None:
    source = copytree(source, tmp_path / "source")
    (source / "topologies/big-blue.local.yaml").write_text("password: hunter2\n")
    built = dist.build(source, tmp_path / "dist", EPOCH)
    with zipfile.ZipFile(built.wheel) as wheel, tarfile.open(built.sdist) as sdist:
        assert not [name for name in (*wheel.namelist(), *sdist.getnames()) if "local.yaml" in name]
