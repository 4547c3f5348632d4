"""Every locked run-time package and jar has its licence in the notices; who has not been read stops a release."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.jars import ensure_jars
from fairlead.jars.lock import Jar, jar_set
from tools.release import licences, locks, notices

SHIPPED = notices.FILE.read_text(encoding="utf-8")
PINS = locks.read()


def test_the_notices_are_what_the_locks_say() -> None:
    assert notices.table(PINS) == SHIPPED, "python -m tools.release.notices"


def test_every_locked_package_and_jar_is_there() -> None:
    for pin in PINS:
        assert f"| {pin.name} | {pin.version} | " in SHIPPED
    for name in ("kafka", "delta"):
        for jar in jar_set(name).jars:
            assert f"| {jar.organisation}:{jar.name} | {jar.revision} | " in SHIPPED


def test_what_is_under_the_lesser_licence_is_said_apart() -> None:
    apart = SHIPPED.partition("Lesser General Public License")[2].partition("##")[0]
    assert "python-stdnum (LGPL-2.1-or-later)" in apart and "crc32c (LGPL-2.1-or-later)" in apart


def test_nothing_is_under_a_licence_that_would_bind_fairlead() -> None:
    said = {licences.of_package(pin) for pin in PINS} | {licences.of_jar(jar) for jar in notices.jars()}
    strong = [each for each in said if "GPL" in each and "LGPL" not in each]
    assert said and not strong


def test_a_package_that_nobody_has_read_stops_a_release() -> None:
    new = locks.Pin("newcomer", "1.0", "", frozenset())
    with pytest.raises(licences.UnknownLicenceError, match="newcomer"):
        notices.table([new])
    with pytest.raises(licences.UnknownLicenceError, match="newcomer:x:1"):
        licences.of_jar(Jar("org.newcomer", "x", "1"))


def test_what_was_read_is_what_the_metadata_say_where_they_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name leaves the list by hand when its metadata begin to say it: then both must be the same."""
    for pin in PINS:
        read = licences.of_package(pin)
        with monkeypatch.context() as without:
            without.setattr(licences, "_READ", {})
            try:
                said = licences.of_package(pin)
            except licences.UnknownLicenceError:
                continue
        assert read == said, pin.name


def test_jars_say_what_was_read() -> None:
    """Those that name a licence, which are most of them."""
    files = {file.name: file for name in notices.JAR_SETS for file in ensure_jars(name)}
    silent = []
    for jar in notices.jars():
        said = licences.said_by_jar(files[Path(jar.path).name])
        assert said <= set(licences.of_jar(jar).split(" OR ")), jar.coordinates
        silent += [] if said else [jar]
    assert len(silent) < len(files) / 2 + 5


def test_the_texts_of_what_is_here_are_all_in_one_file() -> None:
    text = notices.texts([pin for pin in PINS if pin.name in ("rich", "python-stdnum", "colorama")])
    assert "Textualize" not in text.partition("rich")[0]
    assert "Will McGugan" in text and "GNU LESSER GENERAL PUBLIC LICENSE" in text
    assert "colorama" not in text  # for Windows
    assert "org.apache.kafka:kafka-clients:4" in text and "This distribution has a binary dependency on jersey" in text
