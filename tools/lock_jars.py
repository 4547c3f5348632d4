"""Renew the lock files of jars: resolve the requests of each set, download the jars, record their SHA-256.

``fairlead/jars/jars.lock`` is the product's. ``tests/support/kafka_releases.lock`` has other releases of Kafka, for
tests.

    .venv/bin/python tools/lock_jars.py [SET …]

Run it after changing `requested` in a lock file. It renews the named sets, or all sets without a name. A new set
begins with its `requested` and `transitive` and an empty table of jars. Fairlead trusts the new checksums from then on,
so review the diff.
"""

from __future__ import annotations

import dataclasses
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from fairlead.errors import FairleadError, UnknownNameError
from fairlead.jars import ivy
from fairlead.jars.lock import LOCK_FILE, JarSet, parse_coordinates, parse_lock
from fairlead.jars.store import sha256_of


def format_lock(sets: Mapping[str, JarSet]) -> str:
    """Write the text of a lock file, sorted, so that a renewed one differs only where a jar does."""
    lines = ["# Java artifacts, exact and verified. Written by tools/lock_jars.py; edit only `requested`."]
    for jar_set in sets.values():
        requested = "".join(f'    "{coordinates}",\n' for coordinates in jar_set.requested)
        lines += ["", f"[{jar_set.name}]", f"requested = [\n{requested}]"]
        lines += [f"transitive = {str(jar_set.transitive).lower()}", "", f"[{jar_set.name}.jars]"]
        lines += [f'"{jar.coordinates}" = "{jar.sha256}"' for jar in sorted(jar_set.jars)]
    return "\n".join(lines) + "\n"


def renewed(jar_set: JarSet) -> JarSet:
    """Return the set with the jars that its requested coordinates resolve to now."""
    wanted = [parse_coordinates(text) for text in jar_set.requested]
    with tempfile.TemporaryDirectory() as folder:
        found = ivy.retrieve(wanted, Path(folder), transitive=jar_set.transitive)
        jars = tuple(dataclasses.replace(jar, sha256=sha256_of(file)) for file, jar in found.items())
    return dataclasses.replace(jar_set, jars=jars)


LOCK_FILES: Final = (LOCK_FILE, Path(__file__).parents[1] / "tests" / "support" / "kafka_releases.lock")


def main() -> int:
    try:
        files = {file: parse_lock(file.read_text(encoding="utf-8")) for file in LOCK_FILES}
        known = [name for sets in files.values() for name in sets]
        for name in sys.argv[1:]:
            if name not in known:
                raise UnknownNameError("set of jars", name, known)
        for sets in files.values():
            sets.update({name: renewed(sets[name]) for name in sys.argv[1:] or list(sets) if name in sets})
    except FairleadError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    for file, sets in files.items():
        file.write_text(format_lock(sets), encoding="utf-8")
        sys.stderr.write(f"{file.name}: {', '.join(f'{name}: {len(body.jars)} jars' for name, body in sets.items())}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
