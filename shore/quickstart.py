"""What makes local Spark sessions start in about half the time: an archive of loaded classes, and PySpark unzipped.

The archive (AppCDS): measured on two cores, a session and its first Delta commit take 8 s instead of 14 s, with a MERGE
and a query 16 s instead of 24 s. The archive belongs to one build of Java and one set of jars, and its name contains a
key of both. A throw-away session creates it once. If that fails, Spark starts without it. An archive takes 200 MB.
Only those that were used last are kept: a few environments may take turns, and updates do not fill the disk.

PySpark: Spark's Python processes import it from ``python/lib/pyspark.zip`` of Spark's home, if that exists, and else
from the installed package. The zip has no compiled modules, so each process compiles what it imports: 0.75 CPU-s before
its first row, instead of 0.15. A first fill of the tables starts some 15 such processes (PySpark 4.2.0).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pyspark
from filelock import FileLock, Timeout

from fairlead import home
from fairlead.jars.java import class_archive_key

_SECONDS: Final = 180.0  # limit for creating it, which takes some 40 on a quiet machine with two cores
_KEPT: Final = 3  # archives
DUMP: Final = "FAIRLEAD_SPARK_ARCHIVE"  # tells the throw-away session where to write the archive


def archive_option(java: Path, jars: Sequence[Path]) -> str:
    """Return the JVM option that uses the archive, or creates it in the throw-away session; empty without an archive.

    Several processes may call this at once: one creates the archive, the others start without it. After a failure, no
    process tries again.
    """
    if target := os.environ.get(DUMP):
        return f"-XX:ArchiveClassesAtExit={target}"
    with contextlib.suppress(OSError, subprocess.SubprocessError, Timeout):
        own = sorted(_home().glob("jars/*.jar"))
        archive = home.cache() / "cds" / f"spark-{class_archive_key(java, (*own, *jars))}.jsa"
        if not archive.exists():
            archive.parent.mkdir(parents=True, exist_ok=True)
            failed = archive.with_suffix(".failed")
            with FileLock(archive.parent / ".spark.lock", timeout=0):
                if not archive.exists() and not failed.exists():
                    try:
                        _make(archive)
                        _forget_old(archive.parent)
                    except (OSError, subprocess.SubprocessError):
                        failed.touch()
                        raise
        if archive.exists():
            os.utime(archive)  # used now
            return f"-XX:SharedArchiveFile={archive}"
    return ""


@contextlib.contextmanager
def unzipped() -> Iterator[None]:
    """Let a Spark that is launched within the block run PySpark's installed package. A ``SPARK_HOME`` that somebody has
    set stays."""
    if "SPARK_HOME" in os.environ:
        yield
        return
    os.environ["SPARK_HOME"] = str(_home())
    try:
        yield
    finally:
        del os.environ["SPARK_HOME"]


def _home() -> Path:
    """Return a home of Spark without PySpark's zip: a folder in the cache with links to the programs and jars of the
    installed package. That package itself, where the folder cannot be made."""
    package = Path(pyspark.__file__).resolve().parent
    links = home.cache() / "spark" / hashlib.sha256(str(package).encode()).hexdigest()[:16]
    try:
        links.mkdir(parents=True, exist_ok=True)
        for name in ("bin", "jars"):
            with contextlib.suppress(FileExistsError):
                (links / name).symlink_to(package / name)
    except OSError:
        return package
    return links


def _make(archive: Path) -> None:
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix=".making-") as folder:
        new = Path(folder) / "spark.jsa"
        subprocess.run(  # noqa: S603  # the module that starts sessions, by this Python
            [sys.executable, "-m", "shore.session", folder],
            env={**os.environ, DUMP: str(new)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS,
            check=True,
        )
        new.replace(archive)


def _forget_old(folder: Path) -> None:
    """Delete all archives but those that were used last."""
    archives = sorted(folder.glob("spark-*.jsa"), key=lambda each: each.stat().st_mtime_ns)
    for old in archives[:-_KEPT]:
        old.unlink()  # a JVM that has it open goes on
