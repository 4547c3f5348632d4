"""Make a release of the last commit in ``dist/``: ``python -m tools.release``, or ``make release``.

``dist/`` gets the sdist, the wheel built from it, the bill of materials (CycloneDX, JSON: every package of
``requirements-run.lock`` and every jar that Fairlead needs at run time), the notices, the lock and ``SHA256SUMS``. All
dates in the wheel and the bill are the commit's.

Refuses a working tree with changes, a version without its section in ``CHANGELOG.md``, and notices that do not match
the locks.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from tools import notices
from tools.notices import LOCK, ROOT

OUT = ROOT / "dist"


def _run(*command: str, **environment: str) -> str:
    merged = os.environ | environment
    return subprocess.run(command, cwd=ROOT, env=merged, stdout=subprocess.PIPE, text=True, check=True).stdout  # noqa: S603


def _module(name: str, *arguments: str, **environment: str) -> None:
    _run(sys.executable, "-m", name, *arguments, **environment)


def _check(version: str) -> None:
    """End the program if the working tree cannot be released."""
    if changed := _run("git", "status", "--porcelain"):
        raise SystemExit(f"error: files differ from the last commit; commit or remove them:\n{changed}")
    if f"\n## [{version}]" not in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"):
        raise SystemExit(f"error: CHANGELOG.md has no section for {version}")
    if notices.FILE.read_text(encoding="utf-8") != notices.notices():
        raise SystemExit(f"error: {notices.FILE.name} does not match the locks; run: python -m tools.notices")


def _add_jars(bill: Path) -> None:
    read = json.loads(bill.read_text(encoding="utf-8"))
    for jar in notices.jars():
        purl = f"pkg:maven/{jar.organisation}/{jar.name}@{jar.revision}"
        read["components"].append(
            {
                "type": "library",
                "bom-ref": purl,
                "group": jar.organisation,
                "name": jar.name,
                "version": jar.revision,
                "purl": purl,
                "hashes": [{"alg": "SHA-256", "content": jar.sha256}],
            }
        )
    bill.write_text(json.dumps(read, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    _check(version)
    shutil.rmtree(OUT, ignore_errors=True)
    epoch = _run("git", "log", "-1", "--format=%ct").strip()
    _module("build", "--no-isolation", SOURCE_DATE_EPOCH=epoch)
    _module("check_wheel_contents", *map(str, OUT.glob("*.whl")))
    bill = OUT / f"fairlead-{version}.cdx.json"
    command = ("cyclonedx_py", "requirements", "--output-reproducible", "--pyproject", "pyproject.toml")
    _module(*command, "--output-file", str(bill), str(LOCK), SOURCE_DATE_EPOCH=epoch)
    _add_jars(bill)
    for file in (notices.FILE, LOCK):
        shutil.copy(file, OUT)
    sums = "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in sorted(OUT.iterdir()))
    (OUT / "SHA256SUMS").write_text(sums, encoding="utf-8")
    sys.stdout.write(sums)


if __name__ == "__main__":
    main()
