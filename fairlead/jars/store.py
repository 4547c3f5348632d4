"""The store of jars in the user's cache: each artifact is downloaded once, verified, and then only read.

A jar is renamed into the store after its SHA-256 was checked, so no process sees a half-written one. Later runs compare
size and modification time with those recorded then, and read the whole file again only when these differ.
"""

from __future__ import annotations

import functools
import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from filelock import FileLock

from fairlead import home
from fairlead.errors import UnavailableError
from fairlead.jars import ivy
from fairlead.jars.lock import Jar, JarSet, jar_set, parse_coordinates

Stamp = tuple[int, int, str]  # size, modification time in ns, SHA-256


Retrieve = Callable[[Iterable[Jar], Path], dict[Path, Jar]]


def ensure_jars(
    wanted: str | JarSet, *, on_progress: Callable[[str], None] | None = None, retrieve: Retrieve = ivy.retrieve
) -> tuple[Path, ...]:
    """Return the files of a locked set of jars, all present and verified; download missing ones.

    Safe to call from several processes at once: one downloads, the others wait for it.

    Args:
        wanted: The name of a set of the shipped lock file, ``kafka`` or ``delta``, or a set of another lock file.
        on_progress: Receives a sentence when a download begins.
        retrieve: Downloads the jars; replaced in tests.

    Raises:
        UnavailableError: a download failed, a file does not match the lock file, or the cache cannot be written.
    """
    store = home.cache() / "jars"
    chosen = jar_set(wanted) if isinstance(wanted, str) else wanted
    jars = chosen.jars
    files = tuple(store / jar.path for jar in jars)
    if not _missing(store, jars, _read_stamps(store)):
        return files
    tell = on_progress or (lambda _: None)
    try:
        store.mkdir(parents=True, exist_ok=True)
        with FileLock(store / ".lock"):
            stamps = _read_stamps(store)  # another process may have fetched them while this one waited
            missing = [jar for jar in _missing(store, jars, stamps) if not _verify_again(store, jar, stamps)]
            if missing:
                tell(f"fetching {len(missing)} {chosen.name} jars")
                _fetch(store, missing, stamps, retrieve)
            _write_stamps(store, stamps)
    except OSError as error:
        raise UnavailableError(
            f"jars cannot be kept in {store}: {error.strerror or error}",
            hint="make room there, or set FAIRLEAD_CACHE to a folder that can be written",
            path=str(store),
        ) from error
    return files


_RETRIEVE_ALL: Final = functools.partial(ivy.retrieve, transitive=True)


def ensure_packages(coordinates: Iterable[str], *, retrieve: Retrieve = _RETRIEVE_ALL) -> tuple[Path, ...]:
    """Return the files of some Maven packages and their dependencies; download them the first time.

    They are in no lock file: whoever names them trusts Maven Central. Safe to call from several processes at once.

    Args:
        coordinates: ``organisation:name:revision`` of each.
        retrieve: Downloads the jars and their dependencies; replaced in tests.

    Raises:
        ConfigurationError: coordinates of another form.
        UnavailableError: a download failed, or the cache cannot be written.
    """
    wanted = sorted(map(parse_coordinates, set(coordinates)))
    if not wanted:
        return ()
    name = hashlib.sha256(" ".join(jar.coordinates for jar in wanted).encode()).hexdigest()[:16]
    store = home.cache() / "packages"
    folder = store / name
    if folder.exists():
        return tuple(sorted(folder.glob("*.jar")))
    try:
        store.mkdir(parents=True, exist_ok=True)
        with FileLock(store / ".lock"):
            if not folder.exists():
                with tempfile.TemporaryDirectory(dir=store, prefix=".download-") as making:
                    new = Path(making) / "jars"
                    new.mkdir()
                    for file, jar in retrieve(wanted, Path(making)).items():
                        file.rename(new / f"{jar.organisation}.{jar.name}-{jar.revision}.jar")
                    new.rename(folder)
    except OSError as error:
        raise UnavailableError(
            f"packages cannot be kept in {store}: {error.strerror or error}",
            hint="make room there, or set FAIRLEAD_CACHE to a folder that can be written",
            path=str(store),
        ) from error
    return tuple(sorted(folder.glob("*.jar")))


def missing_jars(name: str) -> tuple[Jar, ...]:
    """Return the jars of a locked set that are not in the store, or not verified. Changes nothing."""
    store = home.cache() / "jars"
    return tuple(_missing(store, jar_set(name).jars, _read_stamps(store)))


def sha256_of(file: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _missing(store: Path, jars: Iterable[Jar], stamps: dict[str, Stamp]) -> list[Jar]:
    return [jar for jar in jars if _stamp(store / jar.path, jar) != stamps.get(jar.path)]


def _stamp(file: Path, jar: Jar) -> Stamp:
    try:
        stat = file.stat()
    except OSError:
        return (-1, -1, "")
    return (stat.st_size, stat.st_mtime_ns, jar.sha256)


def _verify_again(store: Path, jar: Jar, stamps: dict[str, Stamp]) -> bool:
    """Verify a file whose stamp differs: accept it if its SHA-256 is right (a copied cache), else delete it."""
    file = store / jar.path
    if not file.exists():
        return False
    if sha256_of(file) == jar.sha256:
        stamps[jar.path] = _stamp(file, jar)
        return True
    file.unlink()
    return False


def _fetch(store: Path, missing: list[Jar], stamps: dict[str, Stamp], retrieve: Retrieve) -> None:
    expected = {jar.coordinates: jar for jar in missing}
    # A folder inside the store, so that the last step is a rename within one file system.
    with tempfile.TemporaryDirectory(dir=store, prefix=".download-") as folder:
        for file, found in retrieve(missing, Path(folder)).items():
            jar = expected.pop(found.coordinates, None)
            if jar is None:
                continue
            digest = sha256_of(file)
            if digest != jar.sha256:
                raise UnavailableError(
                    f"{jar.coordinates} was downloaded and is not what jars.lock says: "
                    f"SHA-256 {digest} instead of {jar.sha256}; it was thrown away",
                    hint="something between here and the repository changed it: try another network, and do not use it",
                    jar=jar.coordinates,
                )
            target = store / jar.path
            target.parent.mkdir(parents=True, exist_ok=True)
            file.replace(target)
            stamps[jar.path] = _stamp(target, jar)
            _write_stamps(store, stamps)
    if expected:
        raise UnavailableError(
            f"these jars were asked for and did not come: {', '.join(sorted(expected))}",
            hint="run the same command again; if it stays so, jars.lock names something that is no longer there",
        )


def _read_stamps(store: Path) -> dict[str, Stamp]:
    try:
        data = json.loads((store / "verified.json").read_text(encoding="utf-8"))
        return {path: (int(size), int(mtime), str(digest)) for path, (size, mtime, digest) in data.items()}
    except (OSError, ValueError):
        return {}  # all files are then verified again


def _write_stamps(store: Path, stamps: dict[str, Stamp]) -> None:
    new = store / ".verified.json.new"
    new.write_text(json.dumps(stamps, indent=1, sort_keys=True), encoding="utf-8")
    new.replace(store / "verified.json")
