"""The sdist and the wheel, the same bytes whenever and wherever they are built from the same source.

Wheels are so by ``SOURCE_DATE_EPOCH``; an sdist has its date, its owner and this machine's modes in it, so it is packed
again.
"""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import NamedTuple


class BuildError(Exception):
    """The build said no; what it said."""


class Dist(NamedTuple):
    """What was built."""

    sdist: Path
    wheel: Path


def build(source: Path, out: Path, epoch: int, *, wheel_from_sdist: bool = True) -> Dist:
    """Build sdist and wheel of ``source`` into the empty folder ``out``. Needs no network.

    Args:
        source: A folder of its own: the build leaves files in it.
        out: Where they go.
        epoch: The date of every file in them, in seconds.
        wheel_from_sdist: Build the wheel from the sdist, as whoever installs that does; otherwise from ``source``.

    Raises:
        BuildError: the build failed.
    """
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(source)]
    if not wheel_from_sdist:
        command += ["--sdist", "--wheel"]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, umask=0o022, check=False)  # noqa: S603
    if done.returncode:
        raise BuildError(f"building {source} failed:\n{done.stdout}{done.stderr}")
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    pack_again(sdist, epoch)
    return Dist(sdist, wheel)


def pack_again(sdist: Path, epoch: int) -> None:
    """Write an sdist again: sorted, everything of one date, of nobody, with the modes 644 and 755."""
    packed = io.BytesIO()
    with tarfile.open(sdist) as before, tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as after:
        for entry in sorted(before.getmembers(), key=lambda each: each.name):
            clean = tarfile.TarInfo(entry.name)
            clean.type, clean.size, clean.mtime = entry.type, entry.size, epoch
            clean.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
            after.addfile(clean, before.extractfile(entry) if entry.isfile() else None)
    sdist.write_bytes(gzip.compress(packed.getvalue(), 9, mtime=epoch))
