"""``make release``: everything in one folder, with sums that are right, the same bytes each time."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from shutil import copytree

import pytest

from tests.integration.release.conftest import EPOCH
from tools.release.__main__ import NotReadyError, check, release


def made(source: Path, folder: Path) -> dict[str, bytes]:
    out = folder / "dist"
    out.mkdir(parents=True)
    release(copytree(source, folder / "source"), out, "abc", EPOCH)
    return {file.name: file.read_bytes() for file in out.iterdir()}


def test_a_release_is_whole_and_the_same_twice(source: Path, tmp_path: Path) -> None:
    one, two = made(source, tmp_path / "one"), made(source, tmp_path / "two")
    version = check(source)
    assert set(one) == {
        f"fairlead-{version}.tar.gz",
        f"fairlead-{version}-py3-none-any.whl",
        f"fairlead-{version}.cdx.json",
        "THIRD-PARTY-NOTICES.md",
        "third-party-licenses.txt",
        "requirements-run.lock",
        "SHA256SUMS",
    }
    assert [name for name in one if one[name] != two[name]] == []
    sums = dict(line.split("  ")[::-1] for line in one["SHA256SUMS"].decode().splitlines())
    assert sums == {name: hashlib.sha256(data).hexdigest() for name, data in one.items() if name != "SHA256SUMS"}
    assert json.loads(one[f"fairlead-{version}.cdx.json"])["metadata"]["component"]["version"] == version


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("CHANGELOG.md", "## [0.", "## [9.", "has no section for"),
        ("THIRD-PARTY-NOTICES.md", "| rich |", "| poor |", "not what the locks say"),
        ("requirements-run.lock", "rich==15", "rich==14", "not what the locks say"),
    ],
)
def test_a_source_that_does_not_fit_is_not_released(
    source: Path, tmp_path: Path, file: str, old: str, new: str, said: str
) -> None:
    changed = copytree(source, tmp_path / "source")
    text = (changed / file).read_text(encoding="utf-8")
    assert old in text
    (changed / file).write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(NotReadyError, match=said):
        check(changed)
