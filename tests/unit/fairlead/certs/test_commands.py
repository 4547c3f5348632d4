"""``fairlead certs`` without any site: the authority, certificates by hand, and those of one's own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from fairlead.certs.facts import CertificateError, check_accepted
from fairlead.cli.commands.certs import app
from fairlead.errors import ConfigurationError, RefusedError, UnknownNameError
from fairlead.home import topology_folder
from fairlead.local.certificates import Certificates, site_names
from fairlead.local.state import LocalState, SiteState, write_state
from fairlead.local.tls import OwnCertificate, decide, paths
from tests.unit.fairlead.certs.conftest import Files, written


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    return topology_folder("minimal")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--topology", "minimal"], catch_exceptions=False)


def told(*arguments: str) -> Any:
    return json.loads(run(*arguments, "--json").stdout)


def test_issue_gives_what_a_server_elsewhere_needs(home: Path, tmp_path: Path) -> None:
    assert run("init", "--yes").exit_code == 0
    out = tmp_path / "out"
    found = told("issue", "tokyo-kafka-1", "--name", "kafka.tokyo.example", "--name", "10.0.0.7", "--out", str(out))
    assert (found["names"], found["days"]) == (["kafka.tokyo.example", "10.0.0.7"], 364)
    for address in ("kafka.tokyo.example", "10.0.0.7"):
        check_accepted(Path(found["certificate"]), Path(found["key"]), Path(found["ca"]), site="tokyo", address=address)
    assert Path(found["key"]).stat().st_mode & 0o777 == 0o600
    assert (home / "certs" / "authority.key").stat().st_mode & 0o777 == 0o600


def test_show_tells_all_and_no_key() -> None:
    assert "fairlead certs init" in run("show").stdout
    run("init", "--yes")
    run("issue", "crane", "--name", "crane.example", "--days", "20")
    authority, crane = told("show")["certificates"]
    assert (authority["service"], authority["subject"], authority["warning"]) == (
        "authority",
        "CN=Fairlead minimal",
        None,
    )
    assert (crane["service"], crane["names"], crane["days"], crane["warning"]) == (
        "crane",
        ["crane.example"],
        19,
        "soon",
    )
    said = run("show").stdout
    assert "crane.example" in said and "19" in said
    assert "PRIVATE" not in said + json.dumps([authority, crane])


def test_what_cannot_be_done_says_what_can(home: Path) -> None:
    with pytest.raises(ConfigurationError, match="has no authority") as none:
        run("issue", "crane", "--name", "crane.example")
    assert "fairlead certs init" in none.value.hint
    run("init", "--yes")
    with pytest.raises(RefusedError, match="has an authority already") as one:
        run("init", "--yes")
    assert f"rm -r {home}" in one.value.hint
    with pytest.raises(ConfigurationError, match="cannot name a file"):
        run("issue", "../crane", "--name", "crane.example")
    with pytest.raises(UnknownNameError, match="no site with TLS on this machine named 'tokyo'"):
        run("renew", "--yes", "--site", "tokyo")
    assert "fairlead up --tls" in run("renew", "--yes").stdout


def test_a_site_starts_with_another_authority_when_the_folder_is_gone(home: Path) -> None:
    before = decide(home, "tokyo", True, None, running=False)
    certificates = Certificates(home)
    old = certificates.trusted.read_bytes()
    shutil.rmtree(certificates.folder)
    assert decide(home, "tokyo", None, before, running=False) == before
    assert certificates.trusted.read_bytes() != old
    check_accepted(*certificates.site_files("tokyo", "kafka"), certificates.trusted, site="tokyo", address="127.0.0.1")


def test_names_that_were_added_stay(home: Path) -> None:
    run("init", "--yes")
    certificates = Certificates(home)
    certificates.issue_site("tokyo", ["tokyo.example"])
    certificates.issue_site("tokyo")
    (kafka,) = (each for each in certificates.all() if each.service == "kafka")
    assert set(kafka.facts.names) == {*site_names("tokyo", "kafka"), "tokyo.example"}


def test_a_site_gets_what_is_wanted(home: Path, good: Files) -> None:
    assert decide(home, "tokyo", None, None, running=False) is None
    assert not Certificates(home).exists
    issued = decide(home, "tokyo", True, None, running=False)
    assert issued is not None and issued.issued
    before = paths(home, "tokyo", issued, "kafka")[0].read_bytes()
    assert decide(home, "tokyo", None, issued, running=False) == issued  # as it was, and not issued again
    assert paths(home, "tokyo", issued, "kafka")[0].read_bytes() == before
    assert decide(home, "tokyo", False, issued, running=False) is None
    own = decide(home, "tokyo", OwnCertificate(good.certificate, good.key, good.ca), issued, running=False)
    assert own is not None and paths(home, "tokyo", own, "mqtt") == (good.certificate, good.key)
    assert decide(home, "tokyo", None, own, running=False) == own


def test_ones_own_is_tried_again_whenever_it_may_be_shown(home: Path, good: Files, tmp_path: Path) -> None:
    files = written(tmp_path / "own", good.pair, good.pair)
    shutil.copy(good.ca, files.ca)
    own = decide(home, "tokyo", OwnCertificate(files.certificate, files.key, files.ca), None, running=False)
    state = SiteState(kafka_port=1, controller_port=2, mqtt_port=3, cluster_id="c" * 22, tls=own)
    write_state(home / "state.json", LocalState(sites={"tokyo": state}))
    (shown,) = told("show")["certificates"]
    assert (shown["site"], shown["service"], shown["subject"]) == ("tokyo", "kafka, mqtt", "CN=kafka.tokyo")
    files.key.unlink()
    for running in (False, True):
        with pytest.raises(CertificateError, match=r"the private key .*server\.key cannot be read"):
            decide(home, "tokyo", None, own, running=running)
    with pytest.raises(CertificateError, match="cannot be read"):
        run("show")


def test_one_that_is_soon_to_end_is_renewed_when_its_site_starts(home: Path) -> None:
    files = decide(home, "tokyo", True, None, running=False)
    assert files is not None
    certificates = Certificates(home)
    certificates.issue_site("tokyo", days=29)
    decide(home, "tokyo", None, files, running=True)
    assert certificates.due("tokyo")  # what runs goes on showing what it has
    decide(home, "tokyo", None, files, running=False)
    assert not certificates.due("tokyo")


def test_a_certificate_whose_issue_was_interrupted_is_issued_again(home: Path) -> None:
    """The new key is there, and the certificate is still the one of the old key."""
    decide(home, "tokyo", True, None, running=False)
    certificate, key = Certificates(home).site_files("tokyo", "kafka")
    before = certificate.read_bytes()
    Certificates(home).issue_site("tokyo")
    certificate.write_bytes(before)
    assert decide(home, "tokyo", True, None, running=False) is not None
    check_accepted(certificate, key, Certificates(home).trusted, site="tokyo", address="127.0.0.1")
