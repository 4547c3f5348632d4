"""Certificates of one's own are checked before a server has them; every mistake has its own message."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from fairlead.certs.authority import issue, new_authority
from fairlead.certs.facts import CertificateError, check_accepted, load
from fairlead.certs.trust import KeyPair, TrustError
from tests.unit.fairlead.certs.conftest import Files, written

NOW = dt.datetime.now(dt.UTC)


def tried(files: Files, address: str = "127.0.0.1") -> None:
    check_accepted(files.certificate, files.key, files.ca, site="tokyo", address=address)


def test_a_good_one_passes_by_each_of_its_names(good: Files) -> None:
    tried(good)
    tried(good, "tokyo")


def test_an_address_that_it_does_not_name(good: Files) -> None:
    with pytest.raises(
        CertificateError, match=r"cannot serve tokyo at 127\.0\.0\.2: .* other names than 127\.0\.0\.2"
    ) as no:
        tried(good, "127.0.0.2")
    assert "--name 127.0.0.2" in no.value.hint


def test_another_key(authority: KeyPair, good: Files, tmp_path: Path) -> None:
    files = written(tmp_path, KeyPair(good.pair.certificate, issue(authority, "x", ["x"]).key), authority)
    with pytest.raises(CertificateError, match="does not belong to"):
        tried(files)


def test_another_authority(good: Files, tmp_path: Path) -> None:
    other = written(tmp_path, good.pair, new_authority("other"))
    with pytest.raises(CertificateError, match="not signed by the authorities in"):
        tried(other)


@pytest.mark.parametrize(("age", "days", "words"), [(400, 365, "has expired"), (-2, 365, "not valid yet")])
def test_the_wrong_time(authority: KeyPair, tmp_path: Path, age: int, days: int, words: str) -> None:
    pair = issue(authority, "x", ["127.0.0.1"], days=days, now=NOW - dt.timedelta(days=age))
    with pytest.raises(CertificateError, match=words):
        tried(written(tmp_path, pair, authority))


def test_each_authority_of_the_file_is_trusted(authority: KeyPair, good: Files, tmp_path: Path) -> None:
    new = new_authority("new")
    both = KeyPair(new.certificate + authority.certificate, b"")
    tried(written(tmp_path / "old", good.pair, both))
    tried(written(tmp_path / "new", issue(new, "x", ["127.0.0.1"]), both))


def test_a_key_of_another_form_becomes_what_kafka_reads(good: Files, tmp_path: Path) -> None:
    key = serialization.load_pem_private_key(good.pair.key, None)
    old = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    assert old.startswith(b"-----BEGIN EC PRIVATE KEY-----")
    (tmp_path / "old.key").write_bytes(old)
    assert load(good.certificate, tmp_path / "old.key") == good.pair


def test_a_key_with_a_password_is_refused_and_never_quoted(good: Files, tmp_path: Path) -> None:
    locked = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"word"),
    )
    file = tmp_path / "locked.key"
    file.write_bytes(locked)
    with pytest.raises(CertificateError, match="has a password"):
        load(good.certificate, file)
    file.write_bytes(good.pair.key[:60])
    with pytest.raises(CertificateError, match="is not a private key") as refused:
        load(good.certificate, file)
    assert good.pair.key[30:60].decode() not in f"{refused.value} {refused.value.fields}"


def test_files_that_are_not_there_or_something_else(good: Files, tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match=r"the certificate .*gone\.pem cannot be read: No such file"):
        load(tmp_path / "gone.pem", good.key)
    with pytest.raises(CertificateError, match="is not a certificate"):
        load(good.key, good.key)
    with pytest.raises(TrustError, match=r"gone\.pem.*cannot be used: No such file"):
        check_accepted(good.certificate, good.key, tmp_path / "gone.pem", site="tokyo", address="tokyo")
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing\n")
    with pytest.raises(TrustError, match="it has no certificate"):
        check_accepted(good.certificate, good.key, empty, site="tokyo", address="tokyo")
