"""Names, hashes, files and commands of devices, without a broker."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import SecretStr
from typer.testing import CliRunner, Result

from acl.devices import by_site, place_devices, sites_of_device
from fairlead.cli.commands.bridge import session_of
from fairlead.cli.commands.devices import app
from fairlead.errors import ConfigurationError, ExitCode, UnavailableError, UnknownNameError
from fairlead.local import mosquitto
from fairlead.local.devices import DeviceBook, DeviceKind, MqttDevice, device_kind, device_rules, hashed
from fairlead.local.registry import LocalSiteRegistry
from fairlead.local.state import Profile
from topologies.context import Context
from topologies.endpoints import EndpointResolver
from topologies.loader.load import load
from topologies.model import MqttAddress
from topologies.users import mqtt_users

BOX, OTHER, RED = "BIGU1000010", "BIGU1000026", "REDU1234567"
BIG_BLUE = load("big-blue")
PORTS = ("los-angeles", "tokyo", "singapore", "sydney")
SHIPS = ("duck-star", "blue-marlin")
NOW = "2026-03-01T00:00:00+00:00"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (BOX, DeviceKind.CONTAINER),
        ("9074729", DeviceKind.SHIP),
        ("terminal-tokyo", DeviceKind.TERMINAL),
        ("terminal-tokyo-gate-2", DeviceKind.TERMINAL),
        ("office-tokyo", DeviceKind.OFFICE),
        ("office-tokyo-2", DeviceKind.OFFICE),
        ("office-", None),
        ("office-+", None),
        ("office", None),
        ("BIGU1000011", None),
        ("bigu1000010", None),
        ("9074728", None),
        ("terminal-", None),
        ("terminal-+", None),
        ("terminal-a/b", None),
        ("terminal-a\nuser", None),
        ("+", None),
        ("#", None),
        ("", None),
        *((service, None) for service in ("bridge", "device", "replay", "admin")),
    ],
)
def test_names(name: str, kind: DeviceKind | None) -> None:
    assert device_kind(name) is kind


def test_where_devices_may_be() -> None:
    assert set(sites_of_device(BIG_BLUE, BOX)) == {*PORTS, *SHIPS}
    assert sites_of_device(BIG_BLUE, "9074729") == ("duck-star",)
    assert sites_of_device(BIG_BLUE, "terminal-los-angeles-yard") == ("los-angeles",)
    assert sites_of_device(BIG_BLUE, "terminal-duck-star") == ("duck-star",)
    assert sites_of_device(BIG_BLUE, "office-los-angeles-2") == ("los-angeles",)
    offices = ("office-duck-star", "office-ducks-hq", "office-atlantis")  # bookings are taken ashore
    for name in ("CSQU3054383", "9321495", "terminal-atlantis", "terminal-ducks-hq", "terminal-tokyo2", *offices):
        with pytest.raises(UnknownNameError):
            sites_of_device(BIG_BLUE, name)
    with pytest.raises(ConfigurationError):
        sites_of_device(BIG_BLUE, "bridge")


def test_a_ship_that_never_carries_a_stream_knows_none_of_its_boxes() -> None:
    links = tuple(
        link.model_copy(update={"streams": {k: v for k, v in link.streams.items() if k != "red"}})
        if "duck-star" in (link.from_, link.to)
        else link
        for link in BIG_BLUE.links
    )
    without = BIG_BLUE.model_copy(update={"links": links})
    assert set(sites_of_device(without, RED)) == {*PORTS, "blue-marlin"}
    assert set(sites_of_device(without, BOX)) == {*PORTS, *SHIPS}


def test_a_hash_is_mosquittos() -> None:
    _, kind, rounds, salt, key = hashed(SecretStr("word")).split("$")
    assert (kind, rounds) == ("7", "101")
    expected = hashlib.pbkdf2_hmac("sha512", b"word", base64.b64decode(salt), 101)
    assert base64.b64decode(key) == expected
    assert hashed(SecretStr("word")) != hashed(SecretStr("word"))


def test_rules_let_devices_write_only_and_name_no_wildcard_of_mqtt() -> None:
    rules = device_rules([BOX, "terminal-tokyo", "9074729"])
    lines = [line for line in rules.splitlines() if line]
    assert not [line for line in lines if "read " in line or "#" in line or "+" in line]
    assert [line for line in lines if line.startswith("user ")] == ["user terminal-tokyo"]
    assert all(line.split()[:2] in (["pattern", "write"], ["topic", "write"]) or "user" in line for line in lines)


def test_bookings_are_an_offices_and_events_a_terminals() -> None:
    rules = device_rules(["terminal-tokyo", "office-tokyo"])
    assert rules.partition("user ")[2].splitlines() == [
        "office-tokyo",
        "topic write fairlead/v1/bookings",
        "",
        "user terminal-tokyo",
        "topic write fairlead/v1/events",
    ]


def test_the_book(tmp_path: Path) -> None:
    book = DeviceBook(tmp_path / "devices.json")
    first = book.enrol([BOX, OTHER, BOX], NOW)
    assert set(first) == {BOX, OTHER} and book.read() == first
    assert stat.S_IMODE((tmp_path / "devices.json").stat().st_mode) == 0o600
    assert len({d.password for d in first.values()}) == 2
    assert book.enrol([BOX], NOW) == {} and book.read() == first
    renewed = book.enrol([BOX], NOW, renew=True)
    assert renewed[BOX].password != first[BOX].password and book.read()[OTHER] == first[OTHER]
    assert book.remove([BOX, "9074729"]) == (BOX,)
    assert set(book.read()) == {OTHER}
    with pytest.raises(ConfigurationError, match="'bridge' cannot be a device's name"):
        book.enrol([RED, "bridge"], NOW)
    assert set(book.read()) == {OTHER}
    assert first[OTHER].password.get_secret_value() not in repr(first)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"BIGU1000010": {}}', '{"bridge": {"password": "", "hash": "$7$", "enrolled": ""}}']
)
def test_a_damaged_book_is_said(tmp_path: Path, text: str) -> None:
    (tmp_path / "devices.json").write_text(text)
    with pytest.raises(ConfigurationError, match=r"devices\.json is damaged"):
        DeviceBook(tmp_path / "devices.json").read()


def test_the_files_of_a_broker_keep_its_other_users(tmp_path: Path) -> None:
    programs = mosquitto.find_mosquitto()
    mosquitto.write_users(tmp_path, {"bridge": SecretStr("bridges"), "device": SecretStr("gateways")}, programs)

    def users() -> list[str]:
        return [line.partition(":")[0] for line in (tmp_path / "passwd").read_text().splitlines()]

    def write(*names: str) -> None:
        made = [MqttDevice(n, DeviceKind.CONTAINER, SecretStr("x"), "$7$1$a$b", NOW) for n in names]
        mosquitto.write_devices(tmp_path, "".join(device.line for device in made))

    write(BOX, "terminal-tokyo")
    assert users() == ["bridge", "device", BOX, "terminal-tokyo"]
    rules = (tmp_path / "acl").read_text()
    assert "user bridge" in rules and "user terminal-tokyo" in rules and "pattern write" in rules
    mosquitto.write_users(tmp_path, {"bridge": SecretStr("other"), "replay": SecretStr("re")}, programs)
    assert users() == ["bridge", "replay", BOX, "terminal-tokyo"]
    assert "user replay\ntopic write fairlead/v1/replays/#\n" in (tmp_path / "acl").read_text()
    write(OTHER)
    assert users() == ["bridge", "replay", OTHER]
    assert "terminal" not in (tmp_path / "acl").read_text()
    mosquitto.remove_user(tmp_path, "replay")
    assert users() == ["bridge", OTHER] and "user replay" not in (tmp_path / "acl").read_text()


def test_the_bridges_session_has_a_name_that_nobody_guesses_and_that_stays(tmp_path: Path) -> None:
    new, old = tmp_path / "tokyo" / "mosquitto", tmp_path / "sydney" / "mosquitto"
    mosquitto.write_configuration(new, 1883, Profile.DURABLE)
    name = mosquitto.bridge_session(new)
    assert name is not None and re.fullmatch("fairlead-bridge-tokyo-[0-9a-f]{32}", name)
    assert stat.S_IMODE((new / "session").stat().st_mode) == 0o600
    mosquitto.write_configuration(new, 1883, Profile.FAST)
    assert mosquitto.bridge_session(new) == name
    old.mkdir(parents=True)
    (old / "mosquitto.conf").write_text("listener 1883\n")
    mosquitto.write_configuration(old, 1883, Profile.DURABLE)
    assert mosquitto.bridge_session(old) is None, "its broker queues for the usual name"


def test_the_bridge_takes_its_sessions_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    context = Context(
        "big-blue",
        BIG_BLUE,
        tmp_path,
        LocalSiteRegistry(tmp_path),
        EndpointResolver(BIG_BLUE, LocalSiteRegistry(tmp_path)),
    )
    assert session_of(context, "tokyo") is None
    folder = tmp_path / "sites" / "tokyo" / "mosquitto"
    mosquitto.write_configuration(folder, 1883, Profile.DURABLE)
    assert session_of(context, "tokyo") == mosquitto.bridge_session(folder) is not None
    outside = BIG_BLUE.sites["tokyo"].model_copy(update={"mqtt": MqttAddress(host="mqtt.example", port=8883)})
    elsewhere = BIG_BLUE.model_copy(update={"sites": {**BIG_BLUE.sites, "tokyo": outside}})
    context = dataclasses.replace(context, topology=elsewhere)
    assert session_of(context, "tokyo") is None
    monkeypatch.setenv("FAIRLEAD_SECRET_TOKYO_BRIDGE_SESSION", "a-name-of-its-own")
    assert session_of(context, "tokyo") == "a-name-of-its-own"


def test_a_site_without_a_gateway(tmp_path: Path) -> None:
    sites = {**BIG_BLUE.sites, "tokyo": BIG_BLUE.sites["tokyo"].model_copy(update={"mqtt_gateway": False})}
    topology = BIG_BLUE.model_copy(update={"sites": sites})
    assert mqtt_users(topology, "tokyo") == ("bridge", "replay")
    assert mqtt_users(topology, "sydney") == ("bridge", "device")
    place_devices(topology, tmp_path, ["tokyo", "sydney"])
    assert not (tmp_path / "sites").exists(), "nobody is enrolled"


Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run a command on Big Blue; no output has a password."""
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))

    def invoke(*arguments: str) -> Result:
        result = CliRunner().invoke(app, [*arguments])
        devices = DeviceBook(tmp_path / "big-blue" / "devices.json").read().values()
        for secret in (text for d in devices for text in (d.password.get_secret_value(), d.hash)):
            assert secret not in result.output + str(result.exception)
        return result

    return invoke


def test_enrol_list_export_remove(run: Run, tmp_path: Path) -> None:
    listed = tmp_path / "boxes.txt"
    listed.write_text(f"# our boxes\n{OTHER}\n\n9074729  # Duck Star\n{BOX}\n")
    out = tmp_path / "out" / "passwords.csv"
    body = json.loads(run("enrol", "--yes", BOX, "--file", str(listed), "--out", str(out), "--json").stdout)
    assert body["enrolled"] == sorted([BOX, OTHER, "9074729"])
    assert set(body["when_started"]) == {*PORTS, *SHIPS} and body["told"] == body["to_export"] == []
    book = DeviceBook(tmp_path / "big-blue" / "devices.json").read()
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert dict(line.split(",") for line in out.read_text().splitlines()[1:]) == {
        name: device.password.get_secret_value() for name, device in book.items()
    }
    tokyo = tmp_path / "big-blue" / "sites" / "tokyo" / "mosquitto" / "devices"
    assert set(tokyo.read_text().splitlines()) == {book[name].line.strip() for name in (BOX, OTHER)}
    again = run("enrol", "--yes", BOX, RED)
    assert "1 device enrolled, 1 had a password already" in again.output

    shown = json.loads(run("list", "--json").stdout)
    assert {one["device"] for one in shown["devices"]} == {BOX, OTHER, RED, "9074729"}
    assert (shown["sites"]["tokyo"], shown["sites"]["duck-star"]) == (3, 4)
    assert "duck-star: 4 devices, and a gateway may publish for all" in run("list").output

    folder = tmp_path / "for-duck-star"
    exported = json.loads(run("export", "--site", "duck-star", "--out", str(folder), "--json").stdout)
    assert exported["devices"] == 4
    names = {line.partition(":")[0] for line in (folder / "passwd.devices").read_text().splitlines()}
    assert names == {BOX, OTHER, RED, "9074729"}
    assert "pattern write fairlead/v1/containers/%u/readings" in (folder / "acl.devices").read_text()
    for file in folder.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600

    assert json.loads(run("remove", "--yes", OTHER, "--json").stdout)["removed"] == [OTHER]
    assert OTHER not in tokyo.read_text()


def test_what_commands_refuse(run: Run, tmp_path: Path) -> None:
    assert isinstance(run("remove", "--yes", BOX).exception, UnknownNameError)
    assert isinstance(run("export", "--site", "ducks-hq", "--out", str(tmp_path / "x")).exception, UnknownNameError)
    assert isinstance(run("enrol", "--yes").exception, ConfigurationError)
    assert isinstance(run("enrol", "--yes", "--file", str(tmp_path / "nowhere")).exception, ConfigurationError)
    for wrong in ("BIGU1000011", "bridge", "CSQU3054383"):
        assert isinstance(run("enrol", "--yes", BOX, wrong).exception, ConfigurationError)
    assert run("list").exit_code == ExitCode.OK
    assert json.loads(run("list", "--json").stdout)["devices"] == []


def test_a_second_enrolment_keeps_the_file_of_passwords(run: Run, tmp_path: Path) -> None:
    """A run that makes no password writes no file, and says how to get the passwords."""
    out = tmp_path / "passwords.csv"
    arguments = ("enrol", "--yes", BOX, "--out", str(out))
    assert run(*arguments).exit_code == ExitCode.OK
    first = out.read_text()
    again = run(*arguments)
    assert "0 devices enrolled, 1 had a password already" in again.output
    assert f"{out} is not written; fairlead devices list --out FILE writes all passwords" in again.output
    assert out.read_text() == first and BOX in first
    assert run("list", "--out", str(out)).exit_code == ExitCode.OK
    assert out.read_text() == first
    out.unlink()
    planned = run("enrol", "--dry-run", BOX, "--out", str(out))
    assert "nothing to do" in planned.output and str(out) not in planned.output


def test_a_place_that_cannot_be_written_is_named_before_passwords_are_made(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for wrong in (tmp_path, file / "passwords.csv"):
        found = run("enrol", "--yes", BOX, "--out", str(wrong)).exception
        assert isinstance(found, UnavailableError) and f"{wrong} cannot be written" in str(found)
        assert not DeviceBook(tmp_path / "big-blue" / "devices.json").read()
    assert run("enrol", "--yes", BOX, "--out", str(tmp_path / "passwords.csv")).exit_code == ExitCode.OK
    assert BOX in (tmp_path / "passwords.csv").read_text()
    for arguments in (("list",), ("export", "--site", "tokyo")):
        found = run(*arguments, "--out", str(file if "export" in arguments else tmp_path)).exception
        assert isinstance(found, UnavailableError) and "name another" in found.hint


def test_devices_of_boxes_that_the_topology_has_no_more() -> None:
    gone = MqttDevice("CSQU3054383", DeviceKind.CONTAINER, SecretStr("x"), "$7$1$a$b", NOW)
    assert set(map(len, by_site(BIG_BLUE, [gone]).values())) == {0}
