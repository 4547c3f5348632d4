"""``fairlead up``, ``down`` and ``status`` as a user runs them, on the smallest topology."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import os
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from fairlead.cli.commands import devices
from fairlead.cli.commands.sites import local as sites
from fairlead.errors import ConfigurationError, UnknownNameError
from fairlead.kafka.admin import require_answer
from fairlead.local.devices import DeviceBook
from fairlead.local.mosquitto import wait_taken
from replication.states import LogState, LogTrouble
from tests.support.logins import answer
from topologies.context import open_topology

pytestmark = pytest.mark.integration

app = typer.Typer()
app.command()(sites.up)
app.command()(sites.down)
app.command()(sites.status)
app.add_typer(devices.app, name="devices")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--topology", "minimal"], catch_exceptions=False)


def status() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("status", "--json").stdout)
    return found


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("home")
        patch.setenv("FAIRLEAD_HOME", str(folder))
        yield folder
        run("down", "--purge", "--yes")


@pytest.fixture(scope="module")
def two_sites(home: Path) -> list[str]:
    """Start the topology's sites and return their names."""
    assert run("up").exit_code == 0
    return list(open_topology("minimal").topology.sites)


def test_before_anything_was_started() -> None:
    found = status()
    assert all(not site["kafka"]["up"] and site["logs"] is None for site in found["sites"])
    assert "down" in run("status").stdout
    assert run("down").exit_code == 0


def test_up_then_status(two_sites: list[str]) -> None:
    found = status()
    assert [site["site"] for site in found["sites"]] == two_sites
    for site in found["sites"]:
        assert site["kafka"]["up"] and site["mqtt"]["up"]
        assert site["kafka"]["version"] == "4.3.1"
        assert (site["logs"], site["records"], site["error"]) == (0, 0, None)
    shown = run("status").stdout
    assert all(name in shown for name in two_sites)
    assert "Kafka 4.3.1" in shown


def test_a_second_up_is_quick_and_changes_nothing(two_sites: list[str]) -> None:
    before = status()
    result = run("up", "--json")
    assert [site["site"] for site in json.loads(result.stdout)["sites"]] == two_sites
    assert status() == before


def test_users_and_rules_are_there(two_sites: list[str]) -> None:
    resolver = open_topology("minimal").resolver
    for site in two_sites:
        require_answer(resolver.kafka(site, "bridge"))


def test_an_unknown_site_is_told_the_nearest(two_sites: list[str]) -> None:
    wrong = two_sites[0][:-1] + "x"
    with pytest.raises(UnknownNameError, match=f"did you mean '{two_sites[0]}'"):
        run("up", wrong)
    with pytest.raises(ConfigurationError, match=r"(?s)chain is a topology, not a site.*--topology chain"):
        run("up", "chain")


def test_replicators_links_lag_and_troubles_are_shown(two_sites: list[str]) -> None:
    first, second = two_sites
    link: dict[str, object] = {
        "name": f"{second}->{first}",
        "from": second,
        "to": first,
        "when": "always",
        "state": "mirroring",
    }
    link |= {"since": "", "cause": "", "logs": 3, "followed": 3, "records": 12345, "batches": 9, "bytes": 99, "lag": 7}
    fresh = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)  # however long the commands below take
    trouble = LogTrouble(LogState.DIVERGED, "two batches at 17", fresh).as_json("containers.X", first)
    snapshot = {"site": first, "pid": os.getpid(), "at": fresh.isoformat(), "links": [link]}
    file = open_topology("minimal").folder / "run" / f"replicator.{first}.json"
    file.write_text(json.dumps({**snapshot, "logs": {"containers.X": trouble}}))
    site = status()["sites"][0]
    assert site["lag"] == 7 and site["replicator"]["running"]
    assert site["links"] == [link]
    shown = " ".join(run("status").stdout.split())
    assert "12,345" in shown and "two batches at 17" in shown
    assert f"fairlead link resolve containers.X --site {first} --refill" in shown

    file.write_text(json.dumps({**snapshot, "at": "2020-01-01T00:00:00+00:00", "logs": {}}))  # it has ended
    site = status()["sites"][0]
    assert site["lag"] is None and not site["replicator"]["running"]
    assert [each["state"] for each in site["links"]] == ["stopped"]
    file.write_text("{")  # an incomplete file does not count as a replicator
    assert status()["sites"][0]["replicator"] is None
    file.unlink()


def test_devices_instead_of_a_gateway(two_sites: list[str], home: Path, tmp_path: Path) -> None:
    """With ``mqtt_gateway: false`` a site accepts its enrolled devices and refuses the gateway's user."""
    site, box = two_sites[0], "BIGU1000010"
    file = tmp_path / "minimal.yaml"
    text = (files("topologies") / "minimal.yaml").read_text(encoding="utf-8")
    file.write_text(text.replace("unlocode: JPTYO", "unlocode: JPTYO\n    mqtt_gateway: false", 1), encoding="utf-8")

    def with_file(*arguments: str) -> Any:
        done = CliRunner().invoke(app, [*arguments, "--topology", str(file), "--json"], catch_exceptions=False)
        assert done.exit_code == 0
        return json.loads(done.stdout)

    gateway = open_topology("minimal").resolver.mqtt(site, "device")
    assert answer(gateway) == "Success"
    assert with_file("devices", "enrol", box, "--yes")["told"] == two_sites
    password = DeviceBook(home / "minimal" / "devices.json").read()[box].password
    device = dataclasses.replace(gateway, user=box, password=password)
    wait_taken(device)
    with_file("up")
    assert answer(gateway) == "Not authorized"
    assert answer(device) == "Success"
    resolver = open_topology(str(file)).resolver
    assert answer(resolver.mqtt(site, "replay")) == "Success"
    with pytest.raises(UnknownNameError, match="named 'device'"):
        resolver.mqtt(site, "device")
    assert answer(resolver.mqtt(two_sites[1], "device")) == "Success", "only where the topology says so"
    assert run("up").exit_code == 0
    assert answer(gateway) == answer(device) == "Success"


def test_down_of_one_site(two_sites: list[str]) -> None:
    first, second = two_sites
    assert run("down", first).exit_code == 0
    assert {site["site"]: site["kafka"]["up"] for site in status()["sites"]} == {first: False, second: True}
    assert run("up", first).exit_code == 0
    assert all(site["kafka"]["up"] for site in status()["sites"])
