"""An installed Fairlead needs no checkout: commands run in an empty folder, with the wheel's files only."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.release.conftest import Run
from tools.release.locks import ROOT

PACKAGES = "acl edge fairlead replication shore simulators topologies".split()


def test_it_is_not_the_checkout_that_runs(installed: Run) -> None:
    program = f"import {', '.join(PACKAGES)}; print({', '.join(f'{name}.__file__' for name in PACKAGES)}, sep='\\n')"
    files = [Path(line) for line in installed("python", "-c", program).stdout.split()]
    assert [file.parent.name for file in files] == PACKAGES
    assert not [file for file in files if ROOT in file.parents or "site-packages" not in file.parts]


def test_it_tells_its_versions(installed: Run) -> None:
    done = installed("fairlead", "--version")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("fairlead 0.") and "Kafka 4." in done.stdout and "Delta 4." in done.stdout


@pytest.mark.parametrize(
    "command",
    [
        "topology list",
        "topology show two-way",
        "topology check big-blue",
        "voyage --list-scenarios",
        "voyage minimal --scale 10",
        "alert rules",
        "acl --help",
        "acl explain ducks containers.BIGU1000010",
        "shore --help",
        "status -t minimal",
    ],
)
def test_commands_that_need_no_brokers(installed: Run, command: str) -> None:
    done = installed("fairlead", *command.split())
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip()


def test_every_shipped_topology_and_scenario_is_there(installed: Run) -> None:
    names = {each["name"] for each in json.loads(installed("fairlead", "topology", "list", "--json").stdout)}
    assert names == {file.stem for file in (ROOT / "topologies").glob("*.yaml") if ".local" not in file.name}
    shown = installed("fairlead", "voyage", "--list-scenarios").stdout
    assert not [file.stem for file in (ROOT / "simulators/scenarios").glob("*.yaml") if file.stem not in shown]


def test_the_other_files_are_found_too(installed: Run) -> None:
    """Land of the live chart, templates of the three pages, recorded schemas, the lock of jars."""
    program = """
import importlib.resources, jinja2
from fairlead.jars import jar_set
from shore.maintenance.evolution import recorded
from simulators.live.chart import is_land
jinja2.PackageLoader("shore.report", ".").get_source(jinja2.Environment(autoescape=True), "port.html.j2")
print(is_land(35.7, 138.5), is_land(0, -30), len(recorded()) > 5, len(jar_set("kafka").jars) > 5)
print((importlib.resources.files("simulators.report") / "page.html.j2").is_file())
"""
    done = installed("python", "-c", program)
    assert done.stdout.split() == ["True", "False", "True", "True", "True"], done.stderr


@pytest.fixture
def started(installed: Run) -> Iterator[Run]:
    """The sites of minimal run, from the wheel."""
    try:
        up = installed("fairlead", "up", "-t", "minimal")
        assert up.returncode == 0, up.stderr
        yield installed
    finally:
        down = installed("fairlead", "down", "-t", "minimal", "--purge")
        assert down.returncode == 0, down.stderr


@pytest.mark.chaos
def test_sites_start_and_stop(started: Run) -> None:
    """About 20 s."""
    sites = json.loads(started("fairlead", "status", "-t", "minimal", "--json").stdout)["sites"]
    assert len(sites) == 2 and all(site["kafka"]["up"] and site["mqtt"]["up"] for site in sites)
    examined = json.loads(started("fairlead", "doctor", "-t", "minimal", "--json").stdout)
    assert {each["name"]: each["verdict"] for each in examined["checks"]}["ports"] == "ok"


@pytest.mark.chaos
@pytest.mark.timeout(1200)
def test_a_voyage_is_sailed(started: Run) -> None:
    """Bridges, replicators, Spark's own Python workers: all from the wheel. A minute or two."""
    voyage = started("fairlead", "voyage", "minimal", "--json")
    assert voyage.returncode == 0, voyage.stdout + voyage.stderr
