"""An authority and certificates of it, made once: making keys takes a moment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from fairlead.certs.authority import issue, new_authority
from fairlead.certs.trust import KeyPair


@dataclass(frozen=True)
class Files:
    """A certificate and its key as files, and its authority's."""

    pair: KeyPair
    certificate: Path
    key: Path
    ca: Path


def written(folder: Path, pair: KeyPair, authority: KeyPair) -> Files:
    folder.mkdir(parents=True, exist_ok=True)
    files = Files(pair, folder / "server.pem", folder / "server.key", folder / "ca.pem")
    files.certificate.write_bytes(pair.certificate)
    files.key.write_bytes(pair.key)
    files.ca.write_bytes(authority.certificate)
    return files


@pytest.fixture(scope="session")
def authority() -> KeyPair:
    return new_authority("Fairlead test")


@pytest.fixture(scope="session")
def good(authority: KeyPair, tmp_path_factory: pytest.TempPathFactory) -> Files:
    return written(tmp_path_factory.mktemp("good"), issue(authority, "kafka.tokyo", ["127.0.0.1", "tokyo"]), authority)
