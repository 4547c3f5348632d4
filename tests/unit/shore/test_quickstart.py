"""The archive of Spark's classes is made once for a Java and its jars; Spark starts without it as well. A local Spark's
Python processes import the installed PySpark, not its zip."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyspark
import pytest
from filelock import FileLock

from fairlead import home
from fairlead.jars import java
from shore.quickstart import DUMP, archive_option, unzipped

JAVA = Path("java")


@pytest.fixture
def jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a jar; the archives are in a folder of the test's own."""
    monkeypatch.setenv("FAIRLEAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(DUMP, raising=False)
    monkeypatch.setattr(java, "java_build", lambda _: "17")
    found = tmp_path / "delta.jar"
    found.write_bytes(b"one")
    return found


def _runs(monkeypatch: pytest.MonkeyPatch, *, works: bool) -> list[str]:
    """Replace the session that makes the archive; return the files that it is asked to write."""
    asked: list[str] = []

    def run(command: Sequence[str], *, env: Mapping[str, str], **_: Any) -> None:
        asked.append(env[DUMP])
        if not works:
            raise subprocess.CalledProcessError(1, list(command))
        Path(env[DUMP]).write_bytes(b"classes")

    monkeypatch.setattr(subprocess, "run", run)
    return asked


def test_it_is_made_once_and_again_for_other_jars(jar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _runs(monkeypatch, works=True)
    first = archive_option(JAVA, [jar])
    assert first.startswith("-XX:SharedArchiveFile=")
    assert Path(first.partition("=")[2]).read_bytes() == b"classes"
    assert archive_option(JAVA, [jar]) == first
    assert len(asked) == 1
    jar.write_bytes(b"another")
    assert archive_option(JAVA, [jar]) != first
    assert len(asked) == 2


def test_those_that_were_used_last_are_kept(jar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _runs(monkeypatch, works=True)
    jars = [jar.with_name(f"{nth}.jar") for nth in range(4)]
    for each in jars:
        each.write_bytes(b"classes")

    def archive(nth: int) -> Path:
        return Path(archive_option(JAVA, [jars[nth]]).partition("=")[2])

    first, second, third = made = [archive(nth) for nth in range(3)]
    for nth, each in enumerate(made):
        os.utime(each, ns=(nth, nth))
    assert archive(0) == first  # used again
    fourth = archive(3)
    assert [each.exists() for each in (first, second, third, fourth)] == [True, False, True, True]


def test_spark_starts_without_it_where_it_cannot_be_made(jar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _runs(monkeypatch, works=False)
    assert archive_option(JAVA, [jar]) == ""
    assert archive_option(JAVA, [jar]) == ""
    assert len(asked) == 1  # a failure is not tried again


def test_one_that_was_interrupted_is_made_the_next_time(jar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        archive_option(JAVA, [jar])
    asked = _runs(monkeypatch, works=True)
    assert archive_option(JAVA, [jar]).startswith("-XX:SharedArchiveFile=")
    assert len(asked) == 1


def test_nobody_waits_for_another_process_that_makes_it(jar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _runs(monkeypatch, works=True)
    folder = home.cache() / "cds"
    folder.mkdir(parents=True)
    with FileLock(folder / ".spark.lock"):
        assert archive_option(JAVA, [jar]) == ""
    assert not asked


def test_the_session_that_makes_it_writes_it_when_it_ends(jar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _runs(monkeypatch, works=True)
    monkeypatch.setenv(DUMP, "new.jsa")
    assert archive_option(JAVA, [jar]) == "-XX:ArchiveClassesAtExit=new.jsa"
    assert not asked


def test_sparks_home_has_its_programs_and_jars_and_no_zip_of_pyspark(
    jar: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    package = Path(pyspark.__file__).parent
    for _ in range(2):  # it is made once
        with unzipped():
            links = Path(os.environ["SPARK_HOME"])
            assert (links / "bin" / "spark-submit").samefile(package / "bin" / "spark-submit")
            assert (links / "jars").samefile(package / "jars")
            assert not (links / "python").exists()
    assert "SPARK_HOME" not in os.environ


def test_a_home_of_spark_that_somebody_has_set_stays(jar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "theirs")
    with unzipped():
        assert os.environ["SPARK_HOME"] == "theirs"


def test_where_the_cache_cannot_be_written_pysparks_package_is_the_home(
    jar: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("FAIRLEAD_CACHE", str(jar / "below a file"))
    with unzipped():
        assert Path(os.environ["SPARK_HOME"]).samefile(Path(pyspark.__file__).parent)
