"""What ``up`` and ``down`` decide from the files of a state folder, without brokers."""

from __future__ import annotations

import shutil
import ssl
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from pydantic import SecretStr

from fairlead.certs.authority import issue, new_authority
from fairlead.errors import ConfigurationError, RefusedError, UntrustedError
from fairlead.kafka.endpoint import MqttEndpoint
from fairlead.local import mosquitto, ports, processes
from fairlead.local.registry import LocalSite
from fairlead.local.sites import LocalSites, SiteSpec, Toolbox
from fairlead.local.state import LocalState, SiteState, TlsFiles, write_state
from fairlead.local.tls import OwnCertificate

NAME = "tokyo"


@pytest.fixture
def sites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalSites:
    """Provide the sites of an empty state folder, on a machine that needs no programs as long as nothing starts."""
    local = LocalSites(tmp_path / "home" / "fleet")
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path / "home"))
    tools = Toolbox(Path(), (), (), "", mosquitto.Programs(Path(), Path(), ""))
    monkeypatch.setattr(local, "toolbox", lambda _: tools)
    return local


def site_state(first_port: int = 29000, **more: Any) -> SiteState:
    ports = {"kafka_port": first_port, "controller_port": first_port + 1, "mqtt_port": first_port + 2}
    return SiteState(**ports, cluster_id="c" * 22, **more)


def own(folder: Path) -> OwnCertificate:
    """Write a certificate of an authority of its own."""
    folder.mkdir()
    authority = new_authority(folder.name)
    pair = issue(authority, NAME, ["127.0.0.1"])
    files = OwnCertificate(folder / "site.pem", folder / "site.key", folder / "ca.pem")
    for file, content in zip(files, (pair.certificate, pair.key, authority.certificate), strict=True):
        file.write_bytes(content)
    return files


@pytest.fixture
def running(sites: LocalSites, tmp_path: Path) -> Iterator[LocalSites]:
    """Provide sites of which one runs with TLS, as far as its pid file says."""
    before = own(tmp_path / "before")
    tls = TlsFiles(certificate=str(before.certificate), key=str(before.key), ca=str(before.ca), issued=False)
    write_state(sites.folder / "state.json", LocalState(sites={NAME: site_state(tls=tls)}))
    pid_file, log = LocalSite(sites.folder, NAME).pid_file("mqtt"), tmp_path / "log"
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    processes.start(pid_file, command, cwd=tmp_path, log=log, marker="time.sleep(600)")
    yield sites
    processes.stop([pid_file], grace=0)


@pytest.mark.parametrize("authority", ["another", "the folder's"])
def test_a_site_that_runs_keeps_its_authority(running: LocalSites, tmp_path: Path, authority: str) -> None:
    """Its servers show the old certificate until they start again: clients with another authority would refuse it."""
    wanted = own(tmp_path / "other") if authority == "another" else True
    with pytest.raises(ConfigurationError, match=r"tokyo runs with .*cannot change while it runs") as refused:
        running.up([SiteSpec(NAME, tls=wanted)])
    assert "fairlead down tokyo" in refused.value.hint


def test_a_mosquitto_that_its_clients_do_not_trust_refuses_no_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hint of a refused user tells to delete the site's data, which mends no certificate."""

    def stranger(*_: object) -> None:
        error = ssl.SSLCertVerificationError()
        error.reason, error.verify_code, error.verify_message = "CERTIFICATE_VERIFY_FAILED", 19, "self-signed"
        raise error

    monkeypatch.setattr("paho.mqtt.client.Client.connect", stranger)
    endpoint = MqttEndpoint(NAME, "127.0.0.1", 1, "device", SecretStr("secret"))
    with pytest.raises(UntrustedError, match="not signed by") as refused:
        mosquitto.wait_ready(psutil.Process(), endpoint, tmp_path / "a" / "b" / "c", cancel=threading.Event())
    assert "purge" not in refused.value.hint


def with_data(sites: LocalSites, *names: str) -> None:
    for name in names:
        data = LocalSite(sites.folder, name).kafka_folder() / "data"
        (data / "log").mkdir(parents=True)
        (data / "meta.properties").touch()
    write_state(sites.folder / "state.json", LocalState(sites={name: site_state() for name in names}))


@pytest.mark.parametrize(
    ("names", "again"), [([NAME], [NAME]), (None, None), ([NAME], None)], ids=["one site", "all", "one site, then all"]
)
def test_an_interrupted_purge_leaves_no_half_of_a_site(
    sites: LocalSites, monkeypatch: pytest.MonkeyPatch, names: list[str] | None, again: list[str] | None
) -> None:
    """A site whose data is half deleted would start on it, or never again."""
    with_data(sites, NAME, "sydney")

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", interrupt)
        with pytest.raises(KeyboardInterrupt):
            sites.down(names, purge=True)
    assert not LocalSite(sites.folder, NAME).kafka_folder().exists()
    assert list(sites.status()) == ([] if names is None else ["sydney"])
    sites.down(again, purge=True)
    left = {path.parts[-4] for path in sites.folder.rglob("log")}
    assert left == ({"sydney"} if again else set()), "the second purge deletes what the first one left"


def test_up_deletes_what_an_interrupted_purge_left(sites: LocalSites, monkeypatch: pytest.MonkeyPatch) -> None:
    with_data(sites, NAME)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)
        sites.down([NAME], purge=True)
    assert list(sites.folder.rglob("log"))
    with pytest.raises(ConfigurationError, match="cannot have 2 brokers"):
        sites.up([SiteSpec(NAME, brokers=2)])
    assert not list(sites.folder.rglob("log"))


def test_a_purge_that_cannot_delete_says_so(sites: LocalSites, monkeypatch: pytest.MonkeyPatch) -> None:
    with_data(sites, NAME)

    def refuse(*_: object, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(shutil, "rmtree", refuse)
    with pytest.raises(RefusedError, match="Permission denied"):
        sites.down([NAME], purge=True)


def test_a_new_site_leaves_the_ports_of_stopped_sites_of_other_topologies(
    sites: LocalSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "FIRST", 29000)
    monkeypatch.setattr(ports, "LAST", 29006)
    monkeypatch.setattr(ports, "is_free", lambda _: True)
    home = sites.folder.parent
    write_state(home / "other" / "state.json", LocalState(sites={"sydney": site_state(29001)}))
    (home / "damaged").mkdir()
    (home / "damaged" / "state.json").write_text("{")
    monkeypatch.setattr(sites, "_run", lambda _: None)
    sites.up([SiteSpec(NAME)])
    status = sites.status()[NAME]
    assert {status.kafka_port, status.mqtt_port} < {29000, 29004, 29005}
