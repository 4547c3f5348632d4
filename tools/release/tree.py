"""The source that a release is made of: the files that version control has or would take, as they are now.

What it ignores (caches, ``*.local.yaml`` with passwords) is never in it.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tools.release.locks import ROOT


def _git(*arguments: str) -> str:
    # S603, S607: git from the search path, the arguments are ours.
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603, S607
    return done.stdout


def changed() -> list[str]:
    """Files that differ from the last commit, or are not in it; a release is made when there are none."""
    return _git("status", "--porcelain").splitlines()


def commit() -> tuple[str, int]:
    """The last commit and when it was made, in seconds: the date of everything in a release."""
    name, _, seconds = _git("log", "-1", "--format=%H %ct").strip().partition(" ")
    return name, int(seconds)


def files(*under: str) -> list[str]:
    """The files of the source, below some folders or all of it."""
    listed = _git("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *under).split("\0")
    return sorted({name for name in listed if name and (ROOT / name).is_file()})


def export(folder: Path) -> Path:
    """Copy the source into ``folder``, readable by all, whatever this machine's umask is."""
    for name in files():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target)
        target.chmod(0o755 if (ROOT / name).stat().st_mode & 0o100 else 0o644)
    return folder
