"""A release, built once: out of the files under version control, as an sdist and a wheel made of it."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import pytest

from tools.release import dist, tree

EPOCH = 1_790_000_000
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source as it was at one moment. Builds leave files: copy it."""
    return tree.export(tmp_path_factory.mktemp("release") / "source")


@pytest.fixture(scope="session")
def released(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dist.Dist:
    folder = tmp_path_factory.mktemp("released")
    return dist.build(copytree(source, folder / "source"), folder / "dist", EPOCH)


@pytest.fixture(scope="session")
def installed(released: dist.Dist, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs a program of an environment that has the wheel, and of this one the other packages, in an empty folder."""
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)  # noqa: S603
    python = folder / "venv/bin/python"
    # Not by the checkout's editable install: .pth files are read in the environment's own folder only.
    (site,) = (folder / "venv").glob("lib/python*/site-packages")
    (site / "others.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "-q"]
    # Not by the version that the editable install has, which is the same: only what is in the new folder counts.
    pip += ["install", "--no-index", "--no-deps", "--ignore-installed", str(released.wheel)]
    subprocess.run(pip, check=True)  # noqa: S603
    empty = folder / "empty"
    empty.mkdir()
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "FAIRLEAD_", "VIRTUAL"))
    }

    def run(program: str, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        environment = {**kept, "FAIRLEAD_HOME": str(folder / "home"), "COLUMNS": "160", **more}
        command = [str(folder / "venv/bin" / program), *arguments]
        return subprocess.run(command, cwd=empty, env=environment, capture_output=True, text=True, check=False)  # noqa: S603

    return run
