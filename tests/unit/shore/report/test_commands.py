"""``fairlead report`` as a person or a program calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fairlead.cli.app import run
from tests.support import port_story
from tests.support.port_story import ON_DOCK, WARM


def test_container(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", "container", ON_DOCK.lower(), "--since", "2026-03-04T01:00", "--until", "2026-03-05"]) == 0
    told = capsys.readouterr().out
    page = folder / "reports" / ON_DOCK / f"{ON_DOCK}.html"
    assert "36 readings, 0 excursions, 0 alerts" in told
    assert f"page: {page}" in told
    assert page.exists()
    out = folder / "elsewhere"
    assert run(["report", "container", WARM, "--out", str(out), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["figures"]["records"], answer["folder"]) == (210, str(out))
    assert answer["excursions"][0]["start_date_time"] == "2026-03-03T02:00:00Z"


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["BIGU1000011"], 3, "check digit must be 0"),
        ([WARM, "--since", "yesterday"], 2, "this is no time"),
        ([WARM, "--since", "2026-03-02", "--until", "2026-03-02T00:00Z"], 2, "--since is not before --until"),
    ],
)
def test_container_with_wrong_options(
    arguments: list[str], code: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", "container", *arguments]) == code
    assert told in capsys.readouterr().err


def test_port(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", "port", "JPTYO", "--for", "authority"]) == 0
    told = capsys.readouterr().out
    assert "MV Duck Star: about 2026-03-" in told
    assert "3 boxes, 2 for here, 2 with something wrong" in " ".join(told.split())
    assert "ducks of wax" not in (folder / "reports" / "JPTYO-authority.html").read_text(encoding="utf-8")
    assert run(["report", "port", "JPTYO", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["arriving"][0]["boxes"][0]["cargo"]["commodity"] == "toy ducks of wax"
    assert not (folder / "reports" / "JPTYO-operator.html").exists()
    assert run(["report", "port", "JPTYX"]) == 3
    assert "did you mean JPTYO" in capsys.readouterr().err


def test_before_shore_ever_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    for arguments in (["container", port_story.WARM], ["port", "JPTYO"]):
        assert run(["report", *arguments, "--topology", "minimal"]) == 4
        assert "fairlead shore run" in capsys.readouterr().err


@pytest.mark.parametrize(("number", "told"), [("XX", "no container number"), ("BIGU1000011", "check digit must be 0")])
def test_a_wrong_number_is_told_also_before_shore_ever_ran(
    number: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    assert run(["report", "container", number, "--topology", "minimal"]) == 3
    assert told in capsys.readouterr().err
