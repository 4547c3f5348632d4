"""The notices of what Fairlead uses: a table that is kept in the repository, and all licence texts in one file.

    .venv/bin/python -m tools.release.notices

writes ``THIRD-PARTY-NOTICES.md``, out of ``requirements-run.lock`` and ``jars.lock``; ``make lock`` does so too. The
texts are for ``dist/`` only: whoever passes on an image with these packages in it needs them.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fairlead.jars import ensure_jars
from fairlead.jars.lock import Jar, read_lock
from tools.release import licences, locks

FILE = locks.ROOT / "THIRD-PARTY-NOTICES.md"
JAR_SETS = ("kafka", "delta")  # what runs Fairlead; "mirrormaker" is for the comparison in benchmarks/
_HEAD = """# Third-party notices

What Fairlead uses at run time, at the versions that were tested. None of it is part of Fairlead's wheel or sdist:
packages are installed beside it, jars are fetched at first use. Whoever passes on an image with them in it passes on
their licences as well; a release has all texts in `third-party-licenses.txt`. Made by `python -m tools.release.notices`
out of `requirements-run.lock` and `fairlead/jars/jars.lock`.

Under the GNU Lesser General Public License, used as libraries, unchanged, and replaceable by whoever has the
environment: {lesser}.

## Python packages

| package | version | licence | where |
|---|---|---|---|
"""
_JARS = """
pyspark contains Apache Spark with several hundred jars, whose licences and notices are in its own `LICENSE`,
`NOTICE` and `licenses/`.

## Jars

| jar | version | licence |
|---|---|---|
"""


def jars() -> list[Jar]:
    """The jars that run Fairlead, each once."""
    sets = read_lock()
    return sorted({jar for name in JAR_SETS for jar in sets[name].jars})


def table(pins: list[locks.Pin]) -> str:
    """The text of ``THIRD-PARTY-NOTICES.md``."""
    lesser = [f"{pin.name} ({of})" for pin in pins if "LGPL" in (of := licences.of_package(pin))]
    rows = [f"| {pin.name} | {pin.version} | {licences.of_package(pin)} | {_where(pin)} |" for pin in pins]
    archives = [f"| {jar.organisation}:{jar.name} | {jar.revision} | {licences.of_jar(jar)} |" for jar in jars()]
    return _HEAD.format(lesser=", ".join(lesser)) + "\n".join(rows) + "\n" + _JARS + "\n".join(archives) + "\n"


def texts(pins: list[locks.Pin]) -> str:
    """Every licence and notice that the packages and jars bring themselves, one after the other.

    Packages for other machines are left out: they are not here, and not in an image that is made here.
    """
    parts = []
    for pin in pins:
        if pin.applies():
            found = list(licences.texts_of_package(pin.name))
            parts += _part(f"{pin.name} {pin.version}", licences.of_package(pin), found)
    files = {file.name: file for name in JAR_SETS for file in ensure_jars(name)}
    for jar in jars():
        found = list(licences.texts_of_jar(files[Path(jar.path).name]))
        parts += _part(jar.coordinates, licences.of_jar(jar), found)
    return "\n".join(parts)


def _part(what: str, licence: str, found: list[tuple[str, str]]) -> list[str]:
    parts = ["=" * 100, f"{what}   {licence}", "=" * 100]
    if not found:
        parts.append(f"(brings no text of its own: https://spdx.org/licenses/, {licence})\n")
    for name, text in found:
        parts += [f"--- {name}", text.strip() + "\n"]
    return parts


def _where(pin: locks.Pin) -> str:
    return f"where `{pin.marker}`".replace("|", "\\|") if pin.marker else "everywhere"


def main() -> int:
    try:
        FILE.write_text(table(locks.read()), encoding="utf-8")
    except licences.UnknownLicenceError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
