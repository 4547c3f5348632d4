"""``fairlead acl`` and ``fairlead feed`` for people and for programs; no password is ever printed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest
from typer.testing import CliRunner

from acl.kafka import Client, NotAuthorised, WrongPassword
from acl.rules import Binding, Operation, Pattern, Resource, Rule
from fairlead.errors import ConfigurationError, ExitCode, UnavailableError, UnknownNameError
from tests.integration.acl.conftest import PORT, SHIP, Append, Run, World, app
from tests.support.access_rules import change
from tests.support.waits import PATIENCE

pytestmark = pytest.mark.integration

READING: dict[str, Any] = {
    "equipmentReference": "BIGU1234567",
    "device": {"deviceId": "d-1", "bootId": 1, "sequence": 7, "deviceDateTime": "2026-03-01T10:20:30Z"},
    "measurements": {"supplyTemperature": -18.25},
    "setpoints": {"temperature": -18.0},
    "geoLocation": {"latitude": 35.5, "longitude": 139.75},
}
WIDE = Binding.of(Rule("ducks", Resource.TOPIC, Pattern.PREFIXED, "containers.", Operation.READ))


def test_plan_apply_drift_and_again(world: World, run: Run) -> None:
    clean = run("acl", "drift")
    assert clean.exit_code == ExitCode.OK, clean.output
    with Client(world.kafka(PORT)) as client:
        change(client, [WIDE])
    plan = run("acl", "plan", "--site", PORT)
    assert plan.exit_code == ExitCode.OK
    assert "- ducks may READ topic containers.*" in plan.output
    assert "0 to add, 1 to remove" in plan.output
    body = json.loads(run("acl", "plan", "--json").stdout)
    assert body["sites"][0]["remove"][0]["name"] == "containers."
    assert len(body["plan"]) == 16
    drift = run("acl", "drift", "--json")
    assert drift.exit_code == ExitCode.FAILED
    assert json.loads(drift.stdout)["drift"] is True
    assert "not from the topology: ducks may READ topic containers.*" in run("acl", "drift").output
    shown = run("acl", "apply", "--dry-run")
    assert shown.exit_code == ExitCode.OK
    assert "- ducks may READ topic containers.*" in shown.output and "without --dry-run" in shown.output
    only = json.loads(run("acl", "apply", "--dry-run", "--json").stdout)
    assert (only["applied"], only["plan"]) == (False, body["plan"])
    asked = run("acl", "rotate", "ducks", "--site", PORT, "--dry-run")
    assert asked.exit_code == ExitCode.OK and "give ducks another password" in asked.output
    assert run("acl", "drift").exit_code == ExitCode.FAILED  # the command changed nothing
    applied = run("acl", "apply", "--yes", "--json")
    assert applied.exit_code == ExitCode.OK
    assert [(r["site"], r["removed"], r["error"]) for r in json.loads(applied.stdout)] == [
        (PORT, 1, None),
        (SHIP, 0, None),
    ]
    assert run("acl", "drift").exit_code == ExitCode.OK
    assert "done" in run("acl", "apply", "--yes").output


def test_explain(run: Run) -> None:
    allowed = run("acl", "explain", "red", "red.REDU1234567", "read", "--site", PORT)
    assert "red may READ red.REDU1234567 at port" in allowed.output
    assert "u:red & !g:suspended" in allowed.output
    assert "by rule red may READ topic red.*" in allowed.output
    answers = json.loads(run("acl", "explain", "ducks", "containers.X", "--json").stdout)
    assert {(a["site"], a["operation"], a["allowed"]) for a in answers} == {
        (site, operation, False) for site in (PORT, SHIP) for operation in ("READ", "WRITE")
    }
    assert isinstance(run("acl", "explain", "ducks", "x", "REED").exception, UnknownNameError)


def test_a_site_that_is_away_ends_with_unavailable(
    world: World, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """With a site away, the command ends with the exit code for "unavailable"."""
    text = world.file.read_text(encoding="utf-8")
    away = text.replace(
        f'{SHIP}: {{kind: ship, imo: "9074729"}}',
        f'{SHIP}: {{kind: ship, imo: "9074729", kafka: {{bootstrap: "127.0.0.1:1", security: SASL_PLAINTEXT}}}}',
    )
    assert away != text
    file = tmp_path / "away.yaml"
    file.write_text(away, encoding="utf-8")
    monkeypatch.setenv("FAIRLEAD_SECRET_SHIP_ADMIN", "not-the-password-4711")
    plan = CliRunner().invoke(app, ["acl", "plan", "--topology", str(file)])
    assert plan.exit_code == ExitCode.UNAVAILABLE
    assert "ship: skipped, site ship (127.0.0.1:1) does not answer" in plan.output
    applied = CliRunner().invoke(app, ["acl", "apply", "--yes", "--topology", str(file)])
    assert isinstance(applied.exception, UnavailableError)
    assert "port" in applied.output and "does not answer" in applied.output
    assert "not-the-password-4711" not in plan.output + applied.output + str(applied.exception)


def test_feed_shows_readings(run: Run, append: Append) -> None:
    append(PORT, "feeds.ducks", b"m", fairlead=b"marker")
    append(PORT, "feeds.ducks", json.dumps(READING).encode(), origin=b"containers.BIGU1234567@3")
    shown = run("feed", "ducks", "--once")
    assert shown.exit_code == ExitCode.OK, shown.output
    line = next(line for line in shown.output.splitlines() if "BIGU1234567" in line)
    assert "2026-03-01 10:20:30" in line and "-18.2" in line and "35.500 139.750" in line
    lines = [json.loads(text) for text in run("feed", "ducks", "--once", "--json").stdout.splitlines()]
    mine = [line for line in lines if line["value"] == READING]
    assert mine[0]["origin"] == "containers.BIGU1234567@3"
    assert mine[0]["topic"] == "feeds.ducks"
    assert len(run("feed", "ducks", "--once", "--json", "--max", "1").stdout.splitlines()) == 1
    assert run("feed", "ducks", "--once", "--json", "--from-end").stdout == ""


def test_feed_remembers_only_with_a_group(run: Run, append: Append) -> None:
    """``fairlead feed`` remembers its position only with a consumer group."""
    for number in range(3):
        append(PORT, "feeds.other", json.dumps({"n": number}).encode())
    first = run("feed", "other", "--once", "--json", "--group", "other.program").stdout.splitlines()
    assert len(first) >= 3
    assert run("feed", "other", "--once", "--json", "--group", "other.program").stdout == ""
    assert run("feed", "other", "--once", "--json").stdout.splitlines() == first
    again = run("feed", "other", "--once", "--json", "--group", "other.program", "--from-start")
    assert again.stdout.splitlines() == first


def test_feed_of_an_owner_without_a_feed_is_its_stream(run: Run, append: Append) -> None:
    """For an owner without a feed, ``fairlead feed`` shows the owner's stream."""
    append(PORT, "red.REDU1234567", b"no json at all")
    lines = [json.loads(text) for text in run("feed", "red", "--once", "--json").stdout.splitlines()]
    assert {line["topic"] for line in lines} == {"red.REDU1234567"}
    assert lines[-1]["value"] == "no json at all"
    assert "no json at all" in run("feed", "red", "--once").output


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (("duck",), UnknownNameError, "did you mean 'ducks'"),
        (("ducks", "--site", "prt"), UnknownNameError, "did you mean 'port'"),
        (("ducks", "--site", SHIP), UnknownNameError, "valid: port"),
        (("toyshop",), ConfigurationError, "reads nowhere yet"),
        (("ducks", "--group", "other.program"), ConfigurationError, "begin with 'ducks.'"),
    ],
)
def test_feed_says_what_is_wrong(run: Run, arguments: tuple[str, ...], error: type[Exception], text: str) -> None:
    """Mistakes in the options get an error that names them."""
    result = run("feed", *arguments)
    assert isinstance(result.exception, error)
    assert text in str(result.exception)


def test_feed_with_a_wrong_password(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLEAD_SECRET_PORT_DUCKS", "guessed-wrong-4711")
    result = run("feed", "ducks", "--once")
    assert isinstance(result.exception, WrongPassword)
    assert "guessed-wrong-4711" not in result.output + str(result.exception)


def test_feed_without_its_right(world: World, run: Run) -> None:
    """Without the ACL for it, ``fairlead feed`` reports missing access."""
    rule = Binding.of(Rule("ducks", Resource.TOPIC, Pattern.LITERAL, "feeds.ducks", Operation.READ))
    with Client(world.kafka(PORT)) as client:
        change(client, (), [rule])
    result = run("feed", "ducks", "--once")
    assert isinstance(result.exception, NotAuthorised)
    assert "fairlead acl explain" in str(result.exception)


PROGRAM = """
import typer
from fairlead.cli.commands import feed
app = typer.Typer(pretty_exceptions_enable=False)
app.command()(feed.feed)
app()
"""


def test_feed_follows_until_interrupted(world: World, append: Append) -> None:
    append(PORT, "feeds.ducks", b'{"n": 1}')
    environment = {**os.environ, "FAIRLEAD_HOME": str(world.local.folder.parent)}
    with subprocess.Popen(  # noqa: S603 our own interpreter and text
        [sys.executable, "-c", PROGRAM, "ducks", "--json", "--topology", str(world.file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as program:
        assert program.stdout is not None and program.stderr is not None
        try:
            before = program.stdout.readline()
            assert before, program.stderr.read()
            assert json.loads(before)["topic"] == "feeds.ducks"
            append(PORT, "feeds.ducks", b'{"late": true}')
            while json.loads(program.stdout.readline())["value"] != {"late": True}:
                pass
            program.send_signal(signal.SIGINT)
            _, problems = program.communicate(timeout=PATIENCE)
        finally:
            program.kill()
    assert program.returncode == ExitCode.INTERRUPTED
    assert "Traceback" not in problems
