"""Small files, full disks and missing rights."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from fairlead.errors import RefusedError, UnavailableError
from fairlead.local.files import explained, require_room, tail, write_file


def test_written_whole_and_private(tmp_path: Path) -> None:
    file = tmp_path / "new" / "secrets.json"
    write_file(file, "one")
    write_file(file, b"two")
    assert file.read_text() == "two"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in file.parent.iterdir()] == ["secrets.json"]


def test_a_full_disk_keeps_the_old_content(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    write_file(file, "old")
    (tmp_path / ".state.json.new").symlink_to("/dev/full")
    with pytest.raises(UnavailableError, match="is full") as caught:
        write_file(file, "new")
    assert "make room" in caught.value.hint
    assert file.read_text() == "old"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_full_disk_and_full_quota_are_one_thing(number: int) -> None:
    with (
        pytest.raises(UnavailableError, match="disk or the quota under /somewhere is full"),
        explained(Path("/somewhere")),
    ):
        raise OSError(number, os.strerror(number))


def test_missing_rights_are_named() -> None:
    with (
        pytest.raises(RefusedError, match=r"/somewhere cannot be written: Permission denied"),
        explained(Path("/somewhere")),
    ):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def test_other_errors_pass() -> None:
    with pytest.raises(IsADirectoryError), explained(Path("/somewhere")):
        raise IsADirectoryError(errno.EISDIR, "x")


def test_too_little_room_says_how_much(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    require_room(tmp_path / "not" / "yet", free // 2)
    with pytest.raises(UnavailableError, match=rf"{free >> 20} MB free|MB are needed") as caught:
        require_room(tmp_path / "not" / "yet", 2 * free)
    assert caught.value.fields["needed_bytes"] == 2 * free


def test_the_tail_prefers_lines_that_matter(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("".join(f"INFO {n}\n" for n in range(50)) + "ERROR bind failed\nINFO bye\n")
    assert tail(log, 2) == "ERROR bind failed\nINFO bye"
    assert tail(log, 2, containing=("ERROR",)) == "ERROR bind failed"
    assert tail(tmp_path / "none.log") == ""
