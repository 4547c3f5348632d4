"""Finding Java: the right one of several, and a clear word when there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.errors import UnavailableError
from fairlead.jars import java


def install(folder: Path, version: str) -> Path:
    """A Java home as far as looking at it goes."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    (folder / "release").write_text(f'IMPLEMENTOR="Test"\nJAVA_VERSION="{version}"\n')
    return program


@pytest.fixture(autouse=True)
def nothing_in_the_usual_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_USUAL_PLACES", ())


def test_java_home_wins(tmp_path: Path) -> None:
    install(tmp_path / "on-path", "21.0.2")
    wanted = install(tmp_path / "home", "17.0.15")
    env = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "on-path" / "bin")}
    assert java.find_java(env) == wanted


def test_an_old_java_home_is_passed_over(tmp_path: Path) -> None:
    install(tmp_path / "home", "1.8.0_402")
    wanted = install(tmp_path / "on-path", "21")
    env = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "on-path" / "bin")}
    assert java.find_java(env) == wanted


def test_the_newest_of_the_usual_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "jvm-17", "17.0.1")
    wanted = install(tmp_path / "jvm-21", "21.0.1")
    monkeypatch.setattr(java, "_USUAL_PLACES", (f"{tmp_path}/jvm-*/bin/java",))
    assert java.find_java({"PATH": ""}) == wanted


def test_without_java_the_packages_are_named(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError) as caught:
        java.find_java({"PATH": str(tmp_path)})
    assert "Java 17 or later; none was found" in caught.value.what
    for system in ("Debian", "apt install openjdk-", "Fedora", "dnf install java-", "macOS", "brew install openjdk"):
        assert system in caught.value.hint


def test_an_old_java_is_named_with_its_version(tmp_path: Path) -> None:
    install(tmp_path, "11.0.22")
    with pytest.raises(UnavailableError, match=r"bin/java \(version 11\)"):
        java.find_java({"PATH": str(tmp_path / "bin")})


def test_a_java_that_does_not_run_is_no_java(tmp_path: Path) -> None:
    install(tmp_path, "17.0.1")
    (tmp_path / "release").unlink()  # the program itself is asked then
    with pytest.raises(UnavailableError, match="does not run"):
        java.find_java({"PATH": str(tmp_path / "bin")})


def test_an_update_is_another_build(tmp_path: Path) -> None:
    program = install(tmp_path, "17.0.1")
    before = java.java_build(program)
    (tmp_path / "release").write_text('JAVA_VERSION="17.0.15"\n')
    assert java.java_build(program) != before
