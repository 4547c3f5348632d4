"""Find Java 17 or later, in ``JAVA_HOME``, on the search path, or in the usual folders."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from fairlead.errors import UnavailableError

OLDEST = 17  # Kafka 4 brokers and Spark 4 both need 17
INSTALL = (
    "Debian/Ubuntu: apt install openjdk-21-jre-headless (Debian 12: openjdk-17-jre-headless); "
    "Fedora: dnf install java-21-openjdk-headless; macOS: brew install openjdk@21"
)
_USUAL_PLACES = (
    "/usr/lib/jvm/*/bin/java",
    "/usr/java/*/bin/java",
    "/opt/homebrew/opt/openjdk*/bin/java",
    "/usr/local/opt/openjdk*/bin/java",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java",
)
_VERSION = re.compile(r'"?(\d+)(?:\.(\d+))?[^"\s]*"?')


def find_java(env: Mapping[str, str] | None = None) -> Path:
    """Return the ``java`` program of a Java 17 or later.

    A good enough ``JAVA_HOME`` comes first, then the search path, then the newest in the usual places.

    Raises:
        UnavailableError: there is none; the error names those that are too old and the packages to install.
    """
    environment = os.environ if env is None else env
    too_old: list[str] = []
    for candidate in _candidates(environment):
        version = java_version(candidate)
        if version is not None and version >= OLDEST:
            return candidate
        too_old.append(f"{candidate} ({f'version {version}' if version else 'does not run'})")
    found = f"found only {', '.join(too_old)}" if too_old else "none was found"
    raise UnavailableError(
        f"Kafka and Spark need Java {OLDEST} or later; {found}",
        hint=f"install it, or set JAVA_HOME. {INSTALL}",
        oldest=OLDEST,
        rejected=too_old,
    )


@lru_cache(maxsize=64)
def java_version(java: Path) -> int | None:
    """Return the feature release of a ``java`` program (8, 17, 21 …), or None when it cannot be run."""
    text = _release_value(java, "JAVA_VERSION") or _asked(java)
    match = _VERSION.match(text) if text else None
    if match is None:
        return None
    first, second = int(match[1]), int(match[2] or 0)
    return second if first == 1 else first  # Java 8 reports 1.8


def java_build(java: Path) -> str:
    """Return an identity of a JDK build: its real path and its ``release`` file or, without one, its library.

    It changes with every update of the JDK.
    """
    home = java.resolve().parent.parent
    parts = [str(home)]
    for name in ("release", "lib/modules", "lib/server/libjvm.so", "lib/server/libjvm.dylib"):
        file = home / name
        if file.is_file():
            stat = file.stat()
            parts.append(f"{name}:{stat.st_size}:{stat.st_mtime_ns}")
    return "|".join(parts)


def class_archive_key(java: Path, jars: Iterable[Path]) -> str:
    """Return 16 hexadecimal digits that name an archive of classes (AppCDS) for a JDK build and these jars, in order.

    The JVM rejects an archive if a jar's path, size or time has changed since it was made.

    Raises:
        OSError: a jar is missing.
    """
    parts = [java_build(java)]
    parts += [f"{jar}:{stat.st_size}:{stat.st_mtime_ns}" for jar in jars for stat in (jar.stat(),)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _candidates(env: Mapping[str, str]) -> Iterator[Path]:
    seen: set[Path] = set()
    java_home = env.get("JAVA_HOME")
    first = [Path(java_home) / "bin" / "java"] if java_home else []
    on_path = shutil.which("java", path=env.get("PATH"))
    first += [Path(on_path)] if on_path else []
    # macOS ships a /usr/bin/java that only prints a download address: java_version() finds that it does not run.
    usual = [found for pattern in _USUAL_PLACES for found in Path("/").glob(pattern.lstrip("/"))]
    usual.sort(key=lambda path: java_version(path) or 0, reverse=True)
    for candidate in (*first, *usual):
        real = candidate.resolve()
        if real not in seen and candidate.is_file():
            seen.add(real)
            yield candidate


def _release_value(java: Path, key: str) -> str | None:
    try:
        text = (java.resolve().parent.parent / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = re.search(rf'^{key}="?([^"\n]+)"?$', text, re.MULTILINE)
    return match[1] if match else None


def _asked(java: Path) -> str | None:
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "([^"]+)"', answer.stderr + answer.stdout)
    return match[1] if match else None
