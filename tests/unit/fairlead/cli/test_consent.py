"""Every command that changes a cluster, files or custody asks first, and all do it in one way."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import socket
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest
import typer
from rich.console import Console

from acl.devices import device_book
from board.sharing.tokens import Tokens
from fairlead.cli import app as cli
from fairlead.cli import console
from fairlead.errors import ExitCode
from fairlead.home import topology_folder
from fairlead.local.certificates import Certificates
from tests.support.commands import commands, options

COMMANDS = {name: command for name, command in commands() if not hasattr(command, "commands")}
BOX = "BIGU1000010"
LINK = ["tokyo->singapore", "--topic", "orders.europe"]
CHANGING = {
    "down": ["--purge"],
    "bridge replay": ["--site", "tokyo"],
    "alert ack": [BOX, "--site", "tokyo"],
    "alert clear": [BOX, "--site", "tokyo", "--reason", "why"],
    **{f"link {verb}": LINK for verb in ("pause", "resume", "promote", "failover", "reverse", "restore")},
    "link resolve": ["orders.europe", "--site", "tokyo"],
    "stream set": ["containers", "--retention", "tokyo=90d"],
    "stream delete": ["orders"],
    "site distrust": ["duck-star", "--reason", "why"],
    "custody grant": [BOX, "--to", "sydney"],
    "custody seize": [BOX, "--site", "sydney", "--reason", "why"],
    "shore losses": ["--acknowledge"],
    "shore backfill": [],
    "shore rebuild": ["readings"],
    "shore compact": [],
    "shore vacuum": [],
    "acl apply": [],
    "acl rotate": ["ducks"],
    "acl offboard": ["beans"],
    "devices enrol": [BOX],
    "devices remove": [BOX],
    "certs init": [],
    "certs renew": [],
    "feed": ["ducks", "--client", "delta-sharing", "--revoke"],
}
# What these write is their answer (a page, a file that an option names), or what they run for: records, tables, sites.
OTHERS = {
    *("up", "status", "replicate", "tables", "sql", "board", "audit", "doctor"),
    *(f"voyage {verb}" for verb in ("run", "list", "pause", "resume", "size", "record", "replay")),
    *("report container", "report port", "alert list", "alert report", "alert rules", "link list", "link describe"),
    *("custody show", "custody list", "custody strays", "shore run", "shore status", "shore verify", "compose render"),
    *("stream list", "stream show", "stream usage", "notify run", "notify test", "notify list"),
    *("acl plan", "acl drift", "acl explain", "acl audit", "acl history", "devices list", "devices export"),
    *("certs issue", "certs show", "topology check", "topology show", "topology list"),
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder with a device and a site's data; whoever opens a connection fails."""
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    folder = topology_folder("big-blue")
    log = folder / "sites" / "tokyo" / "kafka-1" / "data" / "log"
    log.parent.mkdir(parents=True)
    log.write_bytes(b"readings")
    device_book(folder).enrol([BOX], "2026-03-01T00:00:00+00:00")

    def no_network(*_: Any) -> NoReturn:
        pytest.fail("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", no_network)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def terminal(monkeypatch: pytest.MonkeyPatch, answer: bool) -> list[str]:
    """A person at a terminal who answers so; the questions."""
    asked: list[str] = []
    monkeypatch.setattr(console, "errors", Console(stderr=True, force_terminal=True, highlight=False))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)

    def confirm(text: str, **_: Any) -> bool:
        asked.append(text)
        return answer

    monkeypatch.setattr(typer, "confirm", confirm)
    return asked


def test_each_command_is_known_to_change_something_or_not() -> None:
    assert set(COMMANDS) == {*CHANGING, *OTHERS}


@pytest.mark.parametrize(("name", "command"), COMMANDS.items(), ids=COMMANDS)
def test_commands_that_change_something_have_the_same_two_options(name: str, command: Any) -> None:
    has = options(command)
    if name not in CHANGING:
        assert "--yes" not in has
        return
    for text, help_ in (
        ("--yes", "Carry the plan out without asking."),
        ("--dry-run", "Show the plan; change nothing."),
    ):
        found = has[text]
        assert found.help == help_ and found.default is False


@pytest.mark.parametrize("further", [[], ["--json"]], ids=["person", "program"])
@pytest.mark.parametrize("name", CHANGING)
def test_without_a_terminal_and_without_yes_nothing_changes(
    name: str, further: list[str], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(home)
    assert cli.run([*name.split(), *CHANGING[name], *further]) == ExitCode.USAGE
    said = capsys.readouterr()
    assert "no terminal to ask at" in said.err and "--yes" in said.err and "--dry-run" in said.err
    assert said.out == ""
    assert contents(home) == before


def test_a_program_at_a_terminal_is_not_asked(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = terminal(monkeypatch, answer=True)
    assert cli.run(["devices", "remove", BOX, "--json"]) == ExitCode.USAGE
    assert "nobody is asked with --json" in capsys.readouterr().err
    assert not asked and BOX in device_book(home).read()


LOCAL = {
    "down": (["down", "--purge"], "delete everything in"),
    "one site": (["down", "tokyo", "--purge"], "its logs, and its ports and passwords"),
    "enrol": (["devices", "enrol", "BIGU1000026"], "give BIGU1000026 a password"),
    "another password": (["devices", "enrol", BOX, "--renew"], f"give {BOX} another password"),
    "remove": (["devices", "remove", BOX], f"forget {BOX}"),
    "authority": (["certs", "init"], "make an authority in"),
}


STARTS = {
    "up": (["up", "tokyo"], "start tokyo: Kafka and Mosquitto"),
    "run": (["voyage", "run", "minimal", "--interval", "12h"], "messages of scenario harbour"),
}


@pytest.mark.parametrize(("arguments", "plan"), (LOCAL | STARTS).values(), ids=LOCAL | STARTS)
def test_a_dry_run_shows_the_plan_and_changes_nothing(
    arguments: list[str], plan: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, yes = contents(home), ["--yes"] * (arguments[0] in ("down", "devices", "certs"))
    assert cli.run([*arguments, "--dry-run", *yes]) == ExitCode.OK
    said = " ".join(capsys.readouterr().out.split())
    assert plan in said and "run the same command without --dry-run" in said
    assert cli.run([*arguments, "--dry-run", "--json"]) == ExitCode.OK
    body = json.loads(capsys.readouterr().out)
    assert body["applied"] is False and any(plan in line for line in body["plan"])
    assert contents(home) == before


@pytest.mark.parametrize(("arguments", "plan"), LOCAL.values(), ids=LOCAL)
def test_a_person_who_says_no_is_shown_the_plan_once(
    arguments: list[str], plan: str, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(home)
    asked = terminal(monkeypatch, answer=False)
    assert cli.run(arguments) == ExitCode.OK
    said = capsys.readouterr()
    assert asked == ["Do it?"] and plan in said.err and said.out == "Nothing was changed.\n"
    assert contents(home) == before


@pytest.mark.parametrize("how", ["--yes", "asked"])
def test_with_consent_it_is_done(how: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if how == "asked":
        terminal(monkeypatch, answer=True)
    yes = ["--yes"] * (how == "--yes")
    password = device_book(home).read()[BOX].password
    assert cli.run(["devices", "enrol", BOX, "--renew", *yes]) == ExitCode.OK
    assert device_book(home).read()[BOX].password != password
    assert cli.run(["devices", "remove", BOX, *yes]) == ExitCode.OK
    assert not device_book(home).read()
    assert cli.run(["certs", "init", *yes]) == ExitCode.OK
    assert Certificates(home).exists
    assert cli.run(["down", "--purge", *yes]) == ExitCode.OK
    assert contents(home) == {} or set(contents(home)) == {".lock"}


def test_a_customers_tokens_end_only_with_consent(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tokens = Tokens(home)
    tokens.issue("ducks", lifetime=dt.timedelta(days=1), overlap=dt.timedelta())
    revoke, plan = ["feed", *CHANGING["feed"]], "end the tokens of ducks that are good: 1"
    assert cli.run([*revoke, "--dry-run", "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out) == {"applied": False, "plan": [plan]}
    asked = terminal(monkeypatch, answer=False)
    assert cli.run(revoke) == ExitCode.OK
    said = capsys.readouterr()
    assert asked == ["Do it?"] and plan in said.err and said.out == "Nothing was changed.\n"
    assert tokens.known("ducks")
    assert cli.run([*revoke, "--yes", "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out) == {"customer": "ducks", "revoked": 1}
    assert not tokens.known("ducks")
    assert cli.run([*revoke, "--yes"]) == ExitCode.OK
    assert cli.run(["feed", "ducks", "--once", "--yes"]) == ExitCode.USAGE


def test_plain_down_asks_nobody(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(home)
    assert cli.run(["down"]) == ExitCode.OK
    assert "all sites stopped" in capsys.readouterr().out
    assert {name: before[name] for name in before} == {name: contents(home).get(name) for name in before}
    shutil.rmtree(home)


@pytest.mark.parametrize(("name", "command"), [pytest.param(*each, id=each[0]) for each in commands()])
def test_an_option_means_the_same_in_every_command(name: str, command: Any) -> None:
    for option in command.params:
        assert "--at" not in option.opts
        if "--site" in option.opts:
            assert "-s" in option.opts and option.metavar == "SITE"
        if "--dry-run" in option.opts:
            assert option.help == "Show the plan; change nothing."
        if "--wait" in option.opts:
            assert option.metavar == "SECONDS" and isinstance(option.default, float)
        if option.name == "as_json" or "--json" in option.opts:
            assert option.help == "Print JSON for another program."
