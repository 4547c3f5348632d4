"""Makes a release in ``dist/``: ``python -m tools.release [--dirty] [--out FOLDER]``, or ``make release``.

Of the last commit, and of nothing else: files that were changed since stop it, unless ``--dirty`` says that this is a
trial. The same commit gives the same bytes again, on the same versions of Python and the build tools.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import sys
import tempfile
import tomllib
from pathlib import Path

from tools.release import dist, licences, locks, notices, sbom, tree

SUMS = "SHA256SUMS"


class NotReadyError(Exception):
    """The source is not fit for a release."""


def check(source: Path) -> str:
    """What must be right in a source before it is released; gives its version.

    Raises:
        NotReadyError: something is not.
    """
    version = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    if f"\n## [{version}]" not in (source / "CHANGELOG.md").read_text(encoding="utf-8"):
        raise NotReadyError(f"CHANGELOG.md has no section for {version}")
    if (source / notices.FILE.name).read_text(encoding="utf-8") != notices.table(_pins(source)):
        raise NotReadyError(f"{notices.FILE.name} is not what the locks say: python -m tools.release.notices")
    return str(version)


def release(source: Path, out: Path, commit: str, epoch: int) -> None:
    """Make everything of a release in the empty folder ``out``. The build leaves files in ``source``.

    Raises:
        NotReadyError, BuildError, UnknownLicenceError: it cannot be made; ``out`` may have half of it.
    """
    version = check(source)
    pins = _pins(source)
    dist.build(source, out, epoch)
    bill = sbom.bom(version, pins, commit, epoch)
    if wrong := sbom.mistakes(bill):
        raise NotReadyError(f"the bill of materials is not what its schema asks for: {wrong}")
    (out / f"fairlead-{version}.cdx.json").write_text(bill, encoding="utf-8")
    (out / "third-party-licenses.txt").write_text(notices.texts(pins), encoding="utf-8")
    for name in (notices.FILE.name, locks.RUN_TIME.name):
        shutil.copyfile(source / name, out / name)
    files = sorted(out.iterdir())
    sums = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (out / SUMS).write_text("".join(sums), encoding="utf-8")


def main() -> int:
    words = argparse.ArgumentParser(description="Make a release.")
    words.add_argument("--dirty", action="store_true", help="of files as they are now: a trial")
    words.add_argument("--out", type=Path, default=locks.ROOT / "dist", help="the folder; what is in it goes")
    chosen = words.parse_args()
    changed = tree.changed()
    if changed and not chosen.dirty:
        sys.stderr.write(f"error: {len(changed)} files are not as in the last commit, such as {changed[0]}\n")
        return 1
    commit, epoch = tree.commit()
    try:
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / "dist"
            made.mkdir()
            release(tree.export(Path(folder) / "source"), made, commit, epoch)
            shutil.rmtree(chosen.out, ignore_errors=True)
            shutil.copytree(made, chosen.out)
    except (NotReadyError, dist.BuildError, licences.UnknownLicenceError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stdout.write((chosen.out / SUMS).read_text(encoding="utf-8"))
    return 0


def _pins(source: Path) -> list[locks.Pin]:
    return locks.read(source / locks.RUN_TIME.name)


if __name__ == "__main__":
    sys.exit(main())
