"""Takes out of an environment of Python what the image fairlead-shore does not need: ``slim.py SITE-PACKAGES``.

``slim.toml`` beside it says what, and why. Of the standard library only: it runs while the image is built.
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

LIST: Final = Path(__file__).with_name("slim.toml")
_NATIVE: Final = re.compile(r"\.(so|dll|dylib|jnilib)(\.\d+)*$")
_PROCESSORS: Final = {"x86_64": r"linux[/_-]?(x86_64|x86-64|amd64|64)", "aarch64": r"linux[/_-]?(64/)?aarch64"}


class Stale(Exception):
    """The list does not fit what is installed."""


def plan(site: Path, listed: dict[str, Any]) -> list[Path]:
    """What goes. Raises :class:`Stale` for a pattern that finds nothing, or that takes what must stay."""
    jars = site / "pyspark" / "jars"
    goes = [path for entry in listed["jars"] for path in _found(jars, entry["names"])]
    goes += [path for entry in listed["packages"] for path in _found(site, entry["names"])]
    gone = set(goes)
    needed = _found(jars, listed["stays"]["jars"]) + _found(site, listed["stays"]["packages"])
    taken = sorted(str(path.relative_to(site)) for path in needed if gone & {path, *path.parents})
    if taken:
        raise Stale(f"these must stay, and a pattern takes them: {', '.join(taken)}")
    return sorted(gone)


def foreign(name: str, machine: str) -> bool:
    """Whether a file in a jar is a native library of another system or processor (or of another C library)."""
    lower = name.lower()
    return bool(_NATIVE.search(lower)) and ("musl" in lower or not re.search(_PROCESSORS[machine], lower))


def keep_own_natives(jar: Path, machine: str) -> None:
    """Write a jar again, without the natives of others. Raises :class:`Stale` when none would be left."""
    with zipfile.ZipFile(jar) as before:
        entries = [entry for entry in before.infolist() if not foreign(entry.filename, machine)]
        if not any(_NATIVE.search(entry.filename.lower()) for entry in entries):
            raise Stale(f"{jar.name} would be left without a native library for {machine}")
        with zipfile.ZipFile(jar.with_suffix(".new"), "w", zipfile.ZIP_DEFLATED) as after:
            for entry in entries:
                after.writestr(entry, before.read(entry), compress_type=zipfile.ZIP_DEFLATED, compresslevel=9)
    jar.with_suffix(".new").replace(jar)


def one_copy(folder: Path) -> None:
    """Make links of libraries that a wheel, which cannot hold links, has several times: ``x.so``, ``x.so.1``."""
    for path in sorted(folder.glob("*.so")):
        for longer in sorted(folder.glob(f"{path.name}.*")):
            other = folder / path.name
            if not longer.is_symlink() and other != longer and other.read_bytes() == longer.read_bytes():
                longer.unlink()
                longer.symlink_to(other.name)


def slim(site: Path, listed: dict[str, Any], machine: str) -> None:
    """Do all of it."""
    goes = plan(site, listed)
    for path in goes:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    for jar in _found(site / "pyspark" / "jars", listed["natives"]["jars"]):
        keep_own_natives(jar, machine)
    one_copy(site / "pyarrow")
    libraries = [path for path in _found(site, listed["strip"]["names"]) if not path.is_symlink()]
    subprocess.run(["strip", "--strip-unneeded", *map(str, libraries)], check=True)  # noqa: S603, S607


def _found(folder: Path, names: Iterable[str]) -> list[Path]:
    found: list[Path] = []
    for name in names:
        some = sorted(folder.glob(name))
        if not some:
            raise Stale(f"{name} finds nothing in {folder.name}: is it called otherwise now?")
        found += some
    return found


if __name__ == "__main__":
    slim(Path(sys.argv[1]), tomllib.loads(LIST.read_text(encoding="utf-8")), platform.machine())
