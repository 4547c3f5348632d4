"""``make test`` runs every test: bootstrap installs what they run, and no test is skipped for want of a program.

Bootstrap runs as it is, in a copy, with a search path of fakes: apt-get only writes down what it is asked for.
"""

from __future__ import annotations

import ast
import functools
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[3]

# Programs that bootstrap does not install.
ON_EVERY_SYSTEM: Final = {"bash", "sha256sum"}  # bootstrap itself runs in bash
OPTIONAL: Final = {
    "docker": "make containers and --sites=containers are asked for by name",
    "go": "builds the S3 server; Debian 12's is too old for it, and file:// storage is tested without",
    "kubectl": "Debian 12's is too old to render the kustomizations, which tests also read without it",
}
SKIPS: Final = {
    "tests/containers/conftest.py": 1,  # no docker
    "tests/integration/conftest.py": 2,  # no docker; tests about processes with --sites=containers
    "tests/integration/board/test_sharing_spark.py": 1,  # jars that no registry has
    "tests/integration/shore/test_cluster_on_s3.py": 1,  # no go
    "tests/unit/compose/kubernetes/test_manifests.py": 1,  # no kubectl
}

_SKIPPING: Final = {"skip", "skipif", "skipIf", "skipUnless", "skipTest", "SkipTest", "importorskip", "xfail"}
_STARTING: Final = re.compile(
    r"(subprocess\.(run|Popen|call|check_call|check_output)|(asyncio\.)?create_subprocess_exec|shutil\.which)"
)
_WORTH_READING: Final = re.compile(r"subprocess|\bwhich\(|skip|Skip|xfail")  # parsing all of them takes seconds


@functools.cache
def modules() -> dict[str, ast.Module]:
    """Return the modules of the tests that start programs or skip tests, by path."""
    files = {
        file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("*.py")
    }
    return {name: ast.parse(text) for name, text in files.items() if _WORTH_READING.search(text)}


def programs(tree: ast.Module) -> set[str]:
    """Return the programs that a module starts or looks for by a name that it spells out."""
    values: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                values.setdefault(name, []).append(value)

    def first_words(node: ast.expr) -> set[str]:
        match node:
            case ast.Constant(value=str(text)):
                return {Path(text).name}
            case ast.List(elts=[first, *_]) | ast.Tuple(elts=[first, *_]) | ast.Starred(value=first):
                return first_words(first)
            case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="split")):
                return {Path(text.split()[0]).name}
            case ast.Name(id=name):
                return {word for value in values.pop(name, []) for word in first_words(value)}  # each name once
        return set()

    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args)
    return {word for call in calls if _STARTING.fullmatch(ast.unparse(call.func)) for word in first_words(call.args[0])}


def skips(tree: ast.Module) -> int:
    """Return how often a module names something that skips tests, or lets them fail."""
    names: list[str] = []
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name) | ast.Name(id=name) | ast.alias(name=name):
                names.append(name)
    return len([name for name in names if name in _SKIPPING])


def started() -> set[str]:
    """Return the programs that tests start, except those that Fairlead finds for them: Java and Mosquitto."""
    return {program for tree in modules().values() for program in programs(tree)}


def installed() -> set[str]:
    """Return the programs that bootstrap has to install for tests."""
    return started() - ON_EVERY_SYSTEM - OPTIONAL.keys()


@dataclass(frozen=True)
class Run:
    """How bootstrap ended."""

    status: int
    packages: list[str]  # that it asked apt for
    output: str


def bootstrap(folder: Path, *arguments: str, present: set[str]) -> Run:
    """Run bootstrap as root of a machine with apt, where of the programs that tests need only some are there."""
    fakes, log = folder / "bin", folder / "apt.log"
    scripts = {
        "apt-get": f'echo "$@" >>"{log}"',  # installs nothing
        "apt-cache": "echo there is one",
        "id": "echo 0",
        "tee": "while read -r line; do :; done",
        **dict.fromkeys(("chmod", "rm", "systemctl", *present), ":"),
    }
    # Bootstrap asks this Python whether Fairlead finds the two.
    python = 'case "$*" in *find_java*) command -v java ;; *find_mosquitto*) command -v mosquitto ;; esac'
    files = {fakes / name: script for name, script in scripts.items()} | {folder / ".venv/bin/python": python}
    for file, script in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        file.chmod(0o755)
    for name in ("dirname", "env", "sed"):
        (fakes / name).symlink_to(shutil.which(name) or name)
    (folder / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "bootstrap.sh", folder / "tools")
    command = [shutil.which("bash") or "bash", "tools/bootstrap.sh", *arguments]
    environment = {"PATH": str(fakes)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    packages = [name for line in lines if " install " in line for name in line.split(" install ")[1].split()]
    return Run(done.returncode, packages, done.stdout + done.stderr)


def test_bootstrap_installs_each_program_that_tests_run(tmp_path: Path) -> None:
    """A missing program is asked of apt; where apt does not give it, bootstrap fails and names the package."""
    assert installed() >= {"kcat", "promtool"}  # which once were missing
    for program in sorted(installed()):
        run = bootstrap(tmp_path / program, "tests", present=installed() - {program})
        assert len(run.packages) == 1, f"{program} is not in the list of tools/bootstrap.sh: {run}"
        assert run.status == 4
        assert f"apt install {run.packages[0]};" in run.output


@pytest.mark.parametrize(("program", "package"), [("java", "openjdk-17-jre-headless"), ("mosquitto", "mosquitto")])
def test_bootstrap_installs_what_sites_need(program: str, package: str, tmp_path: Path) -> None:
    """Tests run these two through Fairlead, which finds them itself."""
    run = bootstrap(tmp_path, present={"java", "mosquitto"} - {program})
    assert (run.status, run.packages) == (4, [package]), run.output


@pytest.mark.parametrize("arguments", [(), ("tests",)])
def test_bootstrap_installs_nothing_that_is_there(arguments: tuple[str, ...], tmp_path: Path) -> None:
    run = bootstrap(tmp_path, *arguments, present={"java", "mosquitto", *installed()})
    assert (run.status, run.packages) == (0, []), run.output


@pytest.mark.parametrize("target", ["test", "test-long"])
def test_make_runs_bootstrap_before_the_tests(target: str) -> None:
    """The README's command installs what tests run."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^{target}:[^#\n]*\$\(READY_FOR_TESTS\)", makefile, re.MULTILINE)
    assert re.search(r"^\$\(READY_FOR_TESTS\):.*\n\ttools/bootstrap\.sh tests$", makefile, re.MULTILINE)


def test_no_test_is_skipped_because_a_program_is_missing() -> None:
    """Each place that skips tests is known here, with its reason; a missing program makes tests fail."""
    assert {file: number for file, tree in modules().items() if (number := skips(tree))} == SKIPS


def test_every_exception_is_in_use() -> None:
    """A program that bootstrap does not install is one that some test looks for or starts."""
    assert OPTIONAL.keys() | ON_EVERY_SYSTEM <= started()
