"""The download's command line and messages, with a stand-in for Java."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from fairlead.errors import UnavailableError
from fairlead.jars import ivy
from fairlead.jars.lock import Jar

JAR = Jar("org.example", "thing_2.13", "1.0")
NO_NETWORK = """:::: WARNINGS
\tHost repository.example not found. url=https://repository.example/thing
\t\tmodule not found: org.example#thing_2.13;1.0
"""
UNTRUSTED = """\t\tmodule not found: org.example#thing_2.13;1.0
:::: ERRORS
\tServer access error at url https://repository.example/thing (SSLHandshakeException: PKIX path building failed: x)
"""


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for Java that notes its arguments and does what ``behaviour.py`` says."""
    program = tmp_path / "java"
    program.write_text(
        f"#!{sys.executable}\nimport json, pathlib, sys\n"
        f"pathlib.Path({str(tmp_path)!r}, 'arguments').write_text(json.dumps(sys.argv[1:]))\n"
        f"exec(pathlib.Path({str(tmp_path)!r}, 'behaviour.py').read_text())\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(ivy, "find_java", lambda: program)
    return tmp_path


def fails(java: Path, output: str) -> UnavailableError:
    (java / "behaviour.py").write_text(f"print({output!r}); sys.exit(1)")
    with pytest.raises(UnavailableError) as caught:
        ivy.retrieve([JAR], java)
    return caught.value


def test_what_came_is_named(java: Path) -> None:
    (java / "behaviour.py").write_text(
        f"out = pathlib.Path({str(java)!r}, 'out', 'org.example', 'thing_2.13'); out.mkdir(parents=True)\n"
        "(out / '1.0.jar').write_bytes(b'x')\n"
    )
    assert list(ivy.retrieve([JAR], java).values()) == [JAR]
    assert 'usepoms="false"' in (java / "ivysettings.xml").read_text()
    assert 'name="thing_2.13" rev="1.0" transitive="false"' in (java / "ivy.xml").read_text()


def test_no_network_is_said(java: Path) -> None:
    error = fails(java, NO_NETWORK)
    assert "org.example:thing_2.13:1.0" in error.what
    assert "Host repository.example not found" in error.what
    assert "check the network" in error.hint


def test_an_unknown_authority_is_said(java: Path) -> None:
    error = fails(java, UNTRUSTED)
    assert "PKIX" in error.what
    assert "update-ca-certificates" in error.hint


def test_a_download_without_end_is_ended(java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ivy, "_TIMEOUT", 1)
    (java / "behaviour.py").write_text("import time; time.sleep(60)")
    with pytest.raises(UnavailableError, match="took longer than 1 s"):
        ivy.retrieve([JAR], java)


def test_the_proxy_of_the_environment_is_used(java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    (java / "behaviour.py").write_text("")
    ivy.retrieve([JAR], java)
    arguments = json.loads((java / "arguments").read_text())
    assert "-Dhttps.proxyHost=proxy.example" in arguments and "-Dhttps.proxyPort=3128" in arguments
