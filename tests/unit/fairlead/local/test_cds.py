"""The throw-away broker that makes the archive of Java classes."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from fairlead.errors import UnavailableError
from fairlead.jars import java
from fairlead.local import cds, kafka, processes
from fairlead.local.state import SiteState


def test_nobody_can_know_the_super_user_of_the_throw_away_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It listens on a port of this machine for some seconds."""
    given: list[str] = []

    def write_files(_folder: Path, _site: SiteState, controller: SecretStr) -> None:
        given.append(controller.get_secret_value())
        raise UnavailableError("the disk is full")

    jar = tmp_path / "kafka.jar"
    jar.touch()
    monkeypatch.setattr(kafka, "write_files", write_files)
    monkeypatch.setattr(processes, "stop", lambda *_, **__: None)
    monkeypatch.setattr(java, "java_build", lambda _: "21")
    monkeypatch.setenv("FAIRLEAD_CACHE", str(tmp_path / "cache"))
    for _ in range(2):
        assert cds.archive_options(Path("java"), [jar]) == ()
    assert len(set(given)) == 2
    assert all(len(password) >= 32 for password in given)
