"""Renew ``THIRD-PARTY-NOTICES.md`` from ``requirements-run.lock``, ``jars.lock`` and ``package-lock.json``.

``make lock`` and ``make vendor`` call it.

    .venv/bin/python -m tools.notices

A licence comes from the installed package's metadata if that has an SPDX expression, else from the current row of the
file; that of an npm package from its lock. For a package or jar with neither, read its licence and write its row into
the file by hand.
"""

from __future__ import annotations

import json
import re
import sys
from importlib import metadata
from pathlib import Path

from fairlead.jars.lock import Jar, read_lock

ROOT = Path(__file__).parents[1]
FILE = ROOT / "THIRD-PARTY-NOTICES.md"
LOCK = ROOT / "requirements-run.lock"
BROWSER_LOCK = ROOT / "board" / "static" / "package-lock.json"
JAR_SETS = ("kafka", "delta")  # the sets that Fairlead needs at run time
_HEAD = """# Third-party notices

What Fairlead uses at run time, at the versions that were tested. Of it, only the JavaScript and map data are part of
Fairlead's wheel and sdist, each with its licence beside it: packages are installed beside Fairlead, jars are
downloaded at first use. Whoever passes on an image with them in it passes on their licences as well: the texts are in
the packages' `*.dist-info` folders and in the jars, or at https://spdx.org/licenses/. `python -m tools.notices`
makes this file from `requirements-run.lock`, `fairlead/jars/jars.lock` and `board/static/package-lock.json`.

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
_BROWSER = """
## JavaScript and map data

In `board/static/vendor`. The land of world-atlas is Natural Earth's, made simpler; Natural Earth is in the public
domain.

| npm package | version | licence |
|---|---|---|
"""


class UnknownLicenceError(Exception):
    """The licence of a locked package or jar is unknown."""


def jars() -> list[Jar]:
    """Return the jars that Fairlead needs at run time, each once."""
    sets = read_lock()
    return sorted({jar for name in JAR_SETS for jar in sets[name].jars})


def notices() -> str:
    """Return the complete text of the file.

    Raises:
        UnknownLicenceError: somebody must write the row of a package or jar by hand.
    """
    known = dict(re.findall(r"^\| (\S+) \| \S+ \| (.+?) \|", FILE.read_text(encoding="utf-8"), re.MULTILINE))
    locked = re.findall(r"^([a-z0-9-]+)==(\S+)(?: ; (.+?))? \\$", LOCK.read_text(encoding="utf-8"), re.MULTILINE)
    packages = [
        (
            name,
            version,
            _licence(name, known),
            f"where `{marker.replace(chr(39), chr(34))}`" if marker else "everywhere",
        )
        for name, version, marker in locked
    ]
    archives = []
    for jar in jars():
        name = f"{jar.organisation}:{jar.name}"
        if name not in known:
            raise UnknownLicenceError(name)
        archives.append(f"| {name} | {jar.revision} | {known[name]} |\n")
    lesser = ", ".join(f"{name} ({licence})" for name, _, licence, _ in packages if "LGPL" in licence)
    rows = "".join(f"| {' | '.join(row)} |\n" for row in packages)
    return _HEAD.format(lesser=lesser) + rows + _JARS + "".join(archives) + _BROWSER + _browser_rows()


def _browser_rows() -> str:
    packages = json.loads(BROWSER_LOCK.read_text(encoding="utf-8"))["packages"]
    shipped = {name.rpartition("/")[2]: each for name, each in packages.items() if name and not each.get("dev")}
    return "".join(f"| {name} | {each['version']} | {each['license']} |\n" for name, each in shipped.items())


def _licence(package: str, known: dict[str, str]) -> str:
    try:
        licence = metadata.metadata(package)["License-Expression"] or known.get(package)
    except metadata.PackageNotFoundError:  # locked for other platforms only
        licence = known.get(package)
    if licence is None:
        raise UnknownLicenceError(package)
    return licence


def main() -> int:
    try:
        FILE.write_text(notices(), encoding="utf-8")
    except UnknownLicenceError as error:
        sys.stderr.write(f"error: {error}: read its licence and write its row into {FILE.name}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
