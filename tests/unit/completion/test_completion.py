"""What a shell is offered after TAB, asked as the shells' scripts ask, and that nothing slow is imported for it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlead import cli
from fairlead.completion import light, values
from tools import completion

FAIRLEAD = str(Path(sys.executable).with_name("fairlead"))
SLOW = "pyspark confluent_kafka msgspec numpy pandas pyarrow networkx duckdb deltalake cryptography uvloop"


Ask = Callable[..., str]


def asking(line: str, shell: str = "bash") -> dict[str, str]:
    """The variables by which a shell's script asks for a line with the cursor at its end."""
    asked = {"_FAIRLEAD_COMPLETE": f"complete_{shell}"}
    if shell == "bash":
        return asked | {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    return asked | {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Gives what is printed for a line."""
    monkeypatch.delenv("FAIRLEAD_TOPOLOGY", raising=False)

    def ask(line: str, shell: str = "bash") -> str:
        for name, value in asking(line, shell).items():
            monkeypatch.setenv(name, value)
        with pytest.raises(SystemExit):
            cli.app(args=[], prog_name="fairlead")
        shown = capsys.readouterr()
        assert shown.err == ""
        return shown.out

    return ask


@pytest.mark.parametrize(
    ("line", "some"),
    [
        ("fairlead ", {"up", "topology", "doctor"}),
        ("fairlead to", {"topology"}),
        ("fairlead topology ", {"check", "show", "list"}),
        ("fairlead topology show b", {"big-blue"}),
        ("fairlead doctor --", {"--topology", "--logs", "--json"}),
        ("fairlead up to", {"tokyo"}),
        ("fairlead up -t minimal tok", {"tokyo"}),
        ("fairlead acl plan --topology fan-in --site ", {"new-york", "paris", "london"}),
        ("fairlead feed ", {"ducks", "yellow", "red"}),
        ("fairlead feed --client k", {"kcat"}),
        ("fairlead acl rotate an", {"analyst"}),
        ("fairlead shore run re", {"readings"}),
        ("fairlead shore compact containers", {"containers_now"}),
        ("fairlead audit tokyo si", {"singapore"}),
        ("fairlead custody list --held-by duck", {"duck-star"}),
        ("fairlead report port SG", {"SGSIN"}),
        ("fairlead link pause --stream al", {"alerts"}),
        ("fairlead bridge re", {"replay"}),
        ("fairlead bridge --at los", {"los-angeles"}),
        ("fairlead voyage --scenario duck", {"duck-voyage"}),
    ],
)
def test_what_is_offered(ask: Ask, line: str, some: set[str]) -> None:
    offered = ask(line).split("\n")
    assert some <= set(offered)
    typed = line.rpartition(" ")[2]
    assert all(each.startswith(typed) for each in offered if each)


def test_all_topologies_and_no_more(ask: Ask) -> None:
    assert ask("fairlead topology check ").split() == values.topologies()
    assert "two-way" in values.topologies() and not [name for name in values.topologies() if "." in name]


def test_links_are_offered_as_they_are_named(ask: Ask) -> None:
    assert "duck-star->tokyo:berthed" in ask("fairlead link describe ").splitlines()


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_it_in_their_form_with_the_help(ask: Ask, shell: str) -> None:
    shown = ask("fairlead topology ", shell)
    assert '"show":"Draw a topology' in shown if shell == "zsh" else "show\tDraw a topology" in shown
    assert "tokyo" in ask("fairlead up ", shell)


def test_a_topology_of_one_s_own_is_read_whatever_is_wrong_with_it(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("sites: {hull: {kind: harbour}, oslo: }\nlinks: [3, {from: hull, to: oslo}]\n")
    (tmp_path / "broken.yaml").write_text("sites: [\n")
    assert ask("fairlead up -t mine.yaml ").split() == ["hull", "oslo"]
    assert ask("fairlead link describe -t mine.yaml ").split() == ["hull->oslo"]
    for other in ("broken.yaml", "absent.yaml", "absent"):
        assert ask(f"fairlead up -t {other} ").split() == []


@pytest.mark.parametrize("line", ["fairlead shore run ", "fairlead up "])
def test_nothing_slow_is_imported(line: str) -> None:
    program = f"""
import atexit, sys
from fairlead import cli
atexit.register(lambda: sys.stdout.write("imported " + " ".join(set({SLOW!r}.split()) & set(sys.modules))))
sys.argv = ["fairlead"]
cli.main()
"""
    env = {**os.environ, **asking(line)}
    command = [sys.executable, "-c", program]
    shown = subprocess.run(command, env=env, capture_output=True, text=True, check=False).stdout  # noqa: S603
    offered, _, imported = shown.partition("imported ")
    assert offered.strip() and imported == ""


def test_the_file_has_what_the_commands_have() -> None:
    assert completion.made() == light.FILE.read_text(encoding="utf-8"), "run: .venv/bin/python -m tools.completion"


def test_every_name_that_is_told_a_kind_is_some_command_s() -> None:
    found: set[str] = set()
    for about in json.loads(light.FILE.read_text(encoding="utf-8"))["commands"].values():
        for one in (about, *about.get("commands", {}).values()):
            found |= {each["name"] for each in one["params"]}
    assert set(completion.KINDS) | {name for _, name in completion.SPECIAL} <= found


def test_a_command_that_the_file_does_not_have_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(light, "_read", lambda: {"commands": {}, "values": {}})
    assert light.command("topology", cli.COMMANDS["topology"]).commands.keys() >= {"check", "show", "list"}


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_with_the_script_that_fairlead_gives_it() -> None:
    script = f"""
PATH={Path(FAIRLEAD).parent}:$PATH
source <(_FAIRLEAD_COMPLETE=source_bash fairlead)
complete -p fairlead >&2
COMP_WORDS=(fairlead topology show b) COMP_CWORD=3
_fairlead_completion fairlead
echo "${{COMPREPLY[@]}}"
"""
    bash = ["bash", "--norc", "-c", script]
    done = subprocess.run(bash, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.stdout.split() == ["big-blue"], done.stderr
    assert "_fairlead_completion" in done.stderr
