"""Every command explains itself with an example, and is in docs/cli.md; so are the exit codes. Shells complete them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import pytest
import typer

from fairlead.cli import app as cli
from fairlead.cli.lazy import load
from fairlead.errors import ExitCode, UnavailableError
from fairlead.jars import jar_set

DOCS = (Path(cli.__file__).parents[2] / "docs/cli.md").read_text(encoding="utf-8")


def commands() -> Iterator[tuple[str, Any]]:
    """Every command with its function, those of groups by ``GROUP COMMAND``."""
    for name, entry in cli.COMMANDS.items():
        found = getattr(import_module(entry.module), entry.attribute)
        if not isinstance(found, typer.Typer):
            yield name, found
            continue
        for command in found.registered_commands:
            assert command.callback is not None
            yield f"{name} {command.name or command.callback.__name__}", command.callback


@pytest.mark.parametrize(("name", "callback"), [pytest.param(*each, id=each[0]) for each in commands()])
def test_a_command_has_an_example_and_its_place_in_the_docs(name: str, callback: Any) -> None:
    assert f"Example: fairlead {name}" in (callback.__doc__ or ""), f"{name} has no example in its help"
    group, _, verb = name.partition(" ")
    assert f"`fairlead {group}" in DOCS
    assert not verb or f"`{verb}" in DOCS or f"{group} {verb}" in DOCS


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_the_list_of_commands_says_what_the_command_says(name: str) -> None:
    command = load(name, cli.COMMANDS[name])
    assert " ".join(command.help.split("\n\n")[0].split()) == cli.COMMANDS[name].help


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--help"]) == ExitCode.OK
    shown = capsys.readouterr().out
    for name, entry in cli.COMMANDS.items():
        assert f"│ {name} " in shown and entry.help.split()[0] in shown


@pytest.mark.parametrize("name", [each for each, _ in commands()])
def test_every_command_has_its_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([*name.split(), "--help"]) == ExitCode.OK
    shown = capsys.readouterr().out
    assert f" {name} " in shown.partition("Usage:")[2] and "Example:" in shown


@pytest.mark.parametrize("group", sorted({name.split()[0] for name, _ in commands() if " " in name}))
def test_the_help_of_a_group_ends_with_an_example(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The example is a command of the group; ``bridge`` is a command itself, so its help has an example anyway."""
    assert cli.run([group, "--help"]) == ExitCode.OK
    shown = capsys.readouterr().out
    last = "Example:" + shown.rpartition("Example:")[2] if group == "bridge" else shown.rstrip().splitlines()[-1]
    words = last.split()
    assert words[:3] == ["Example:", "fairlead", group]
    assert group == "bridge" or f"{group} {words[3]}" in dict(commands())


def test_it_tells_its_versions(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--version"]) == ExitCode.OK
    first, second = capsys.readouterr().out.splitlines()
    assert first == f"fairlead {metadata.version('fairlead')}"
    kafka, delta = jar_set("kafka").revision_of("kafka-clients"), jar_set("delta").revision_of("delta-storage")
    assert f"Kafka {kafka}, Spark {metadata.version('pyspark')}, Delta {delta}" in second


def test_exit_codes_are_documented() -> None:
    for name, code in vars(ExitCode).items():
        if not name.startswith("_"):
            assert f"| {code} |" in DOCS, name


def test_errors_become_exit_codes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(**_: Any) -> None:
        raise UnavailableError("tokyo is away", hint="start it")

    monkeypatch.setattr(cli, "app", fail)
    assert cli.run([]) == ExitCode.UNAVAILABLE
    assert "start it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("fairlead voy", ["voyage"]),
        ("fairlead topology ", ["check", "show", "list"]),
        ("fairlead link pause --st", ["--stream"]),
        ("fairlead acl plan --topology two-w", ["two-way"]),
        ("fairlead up to", ["tokyo"]),
        ("fairlead down -t fan-in new", ["new-york"]),
        ("fairlead down -t no-such-topology new", []),
    ],
)
def test_a_shell_completes_commands_options_topologies_and_sites(
    line: str, offered: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("FAIRLEAD_TOPOLOGY", raising=False)
    monkeypatch.setenv("_FAIRLEAD_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
    with pytest.raises(SystemExit):
        cli.app(args=[], prog_name="fairlead")
    shown = capsys.readouterr()
    assert (shown.out.split(), shown.err) == (offered, "")
