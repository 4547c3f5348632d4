"""The wheel contains every file of the packages and no local settings, and runs without a checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES = [name.rstrip("*") for name in SETTINGS["tool"]["setuptools"]["packages"]["find"]["include"]]
SECRETS = "topologies/big-blue.local.yaml"
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the files that version control has or would add, and one file with passwords."""
    folder = tmp_path_factory.mktemp("wheel") / "source"
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")  # noqa: S603
    for name in names:
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    (folder / SECRETS).write_text("password: hunter2\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def files(source: Path) -> set[str]:
    """Return the files of the packages, without build products and files that only a checkout needs."""
    deployed = {source / "compose" / "Dockerfile", *(source / "compose" / "kubernetes").rglob("*")}
    return {
        str(each.relative_to(source))
        for name in PACKAGES
        for each in (source / name).rglob("*")
        if each.is_file() and each not in deployed
    }


@pytest.fixture(scope="module")
def wheel(source: Path, files: set[str]) -> Path:
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(source.parent), str(source)]
    subprocess.run(command, capture_output=True, check=True)  # noqa: S603
    (built,) = source.parent.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a function that runs ``python`` or ``fairlead`` of an environment with the wheel, in an empty folder."""
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)  # noqa: S603
    # The other packages are this environment's. Its editable Fairlead is not among them: a .pth file counts only in an
    # environment's own folder.
    (site,) = (folder / "venv").glob("lib/python*/site-packages")
    (site / "others.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "venv/bin/python"), "-q", "install"]
    subprocess.run([*pip, "--no-index", "--no-deps", "--ignore-installed", str(wheel)], check=True)  # noqa: S603
    empty = folder / "empty"
    empty.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "FAIRLEAD_"))}
    environment = {**kept, "FAIRLEAD_HOME": str(folder / "home")}

    def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(folder / "venv/bin" / program), *arguments]
        return subprocess.run(command, cwd=empty, env=environment, capture_output=True, text=True, check=False)  # noqa: S603

    return run


def test_it_has_every_file_of_the_packages_except_local_settings(wheel: Path, files: set[str]) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == files - {SECRETS}


def test_it_is_not_the_checkout_that_runs(installed: Run) -> None:
    done = installed("python", "-c", "import fairlead, topologies; print(fairlead.__file__, topologies.__file__)")
    assert all("installed" in file and "site-packages" in file for file in done.stdout.split()), done.stderr


@pytest.mark.parametrize(
    "command",
    [
        "--version",
        "topology check big-blue",
        "voyage list",
        "voyage size 10 minimal",
        "acl explain ducks containers.BIGU1000010",
        "compose render here",
        "shore --help",
        "status -t minimal",
    ],
)
def test_commands_need_no_checkout(installed: Run, command: str) -> None:
    done = installed("fairlead", *command.split())
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip()
