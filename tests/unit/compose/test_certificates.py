"""Certificates of a Compose project: made where they are missing, never instead of somebody's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from compose.certificates import write_certificates
from compose.fleet import Fleet, plan
from fairlead.certs.authority import issue, new_authority
from fairlead.certs.facts import all_facts
from fairlead.errors import RefusedError
from topologies.loader.load import load


@pytest.fixture
def fleet() -> Fleet:
    return plan(load("minimal", env={}))


def hosts(folder: Path) -> list[str]:
    return sorted(file.stem for file in (folder / "certificates").iterdir() if file.name != "ca.pem")


def content(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (folder / "certificates").iterdir()}


def test_only_a_removed_certificate_is_renewed(fleet: Fleet, tmp_path: Path) -> None:
    assert sorted(write_certificates(fleet, tmp_path)) == hosts(tmp_path)
    before = content(tmp_path)
    (tmp_path / "certificates/tokyo-kafka-1.pem").unlink()
    assert write_certificates(fleet, tmp_path) == ["tokyo-kafka-1"]
    after = content(tmp_path)
    assert {name for name in before if before[name] != after[name]} == {"tokyo-kafka-1.pem"}


def with_own(fleet: Fleet, folder: Path, days: int) -> dict[str, bytes]:
    """Replace the project's certificates by those of another authority; one has ``days`` left."""
    own = new_authority("Company")
    write_certificates(fleet, folder)
    for host in hosts(folder):
        pair = issue(own, host, [host], days=days if host == "tokyo-kafka-1" else 365)
        file = folder / "certificates" / f"{host}.pem"
        file.unlink()
        file.write_bytes(pair.key + pair.certificate)
    ca = folder / "certificates/ca.pem"
    ca.unlink()
    ca.write_bytes(own.certificate)
    return content(folder)


def test_own_certificates_are_left_alone(fleet: Fleet, tmp_path: Path) -> None:
    before = with_own(fleet, tmp_path, days=365)
    assert write_certificates(fleet, tmp_path) == []
    assert content(tmp_path) == before


@pytest.mark.parametrize("missing", [False, True])
def test_expired_own_certificates_are_not_replaced(missing: bool, fleet: Fleet, tmp_path: Path) -> None:
    """If the project's authority replaced theirs, clients would no longer trust the other servers."""
    before = with_own(fleet, tmp_path, days=10)
    if missing:
        (tmp_path / "certificates/tokyo-kafka-1.pem").unlink()
        del before["tokyo-kafka-1.pem"]
    refusal = r"left: tokyo-kafka-1; the project's authority cannot renew them, because clients trust .* \(ca\.pem\)"
    with pytest.raises(RefusedError, match=refusal):
        write_certificates(fleet, tmp_path)
    assert content(tmp_path) == before


def test_clients_may_trust_both(fleet: Fleet, tmp_path: Path) -> None:
    before = with_own(fleet, tmp_path, days=10)
    ca = tmp_path / "certificates/ca.pem"
    ca.write_bytes(ca.read_bytes() + (tmp_path / "authority/ca.pem").read_bytes())
    assert write_certificates(fleet, tmp_path) == ["tokyo-kafka-1"]
    assert [each.subject for each in all_facts(ca.read_bytes())] == ["CN=Company", r"CN=Fairlead\, minimal"]
    assert b"PRIVATE KEY" in content(tmp_path)["tokyo-kafka-1.pem"]
    assert content(tmp_path)["tokyo-kafka-2.pem"] == before["tokyo-kafka-2.pem"]
