"""What the authority issues: kinds of keys, names, times, and what it refuses."""

from __future__ import annotations

import datetime as dt

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fairlead.certs.authority import AUTHORITY_DAYS, DAYS, issue, new_authority
from fairlead.certs.facts import all_facts, facts
from fairlead.certs.trust import KeyPair
from fairlead.errors import OptionError

NOW = dt.datetime(2026, 11, 22, 12, tzinfo=dt.UTC)


def test_a_certificate_says_what_it_is_for(authority: KeyPair) -> None:
    pair = issue(authority, "kafka.tokyo", ["127.0.0.1", "tokyo", "*.tokyo.example", "::1", "tokyo"], now=NOW)
    mine, above = all_facts(pair.certificate)
    assert (mine.subject, mine.issuer) == ("CN=kafka.tokyo", "CN=Fairlead test")
    assert mine.names == ("tokyo", "*.tokyo.example", "127.0.0.1", "::1")
    assert above == facts(authority.certificate)
    assert mine.days(NOW) == DAYS
    assert above.days() == AUTHORITY_DAYS - 1


def test_keys_are_what_kafka_reads(authority: KeyPair) -> None:
    for pair in (authority, issue(authority, "kafka.tokyo", ["tokyo"])):
        assert pair.key.startswith(b"-----BEGIN PRIVATE KEY-----")  # PKCS#8, without a password
        key = serialization.load_pem_private_key(pair.key, None)
        assert isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP256R1)


def test_an_authority_signs_servers_only(authority: KeyPair) -> None:
    for pem, is_authority in ((authority.certificate, True), (issue(authority, "x", ["x"]).certificate, False)):
        extensions = x509.load_pem_x509_certificate(pem).extensions
        constraints = extensions.get_extension_for_class(x509.BasicConstraints)
        assert constraints.critical and constraints.value.ca is is_authority
        assert extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign is is_authority


def test_each_certificate_has_a_key_and_a_number_of_its_own(authority: KeyPair) -> None:
    one, two = (issue(authority, "x", ["x"]) for _ in range(2))
    assert one.key != two.key
    assert facts(one.certificate).serial != facts(two.certificate).serial


@pytest.mark.parametrize("name", ["", "https://tokyo", "tokyo:9093", "a b", "1.2.3", "-x", "a..b", "x" * 64, "*"])
def test_what_is_no_name_is_refused(authority: KeyPair, name: str) -> None:
    with pytest.raises(OptionError, match="neither a host name nor an IP address") as refused:
        issue(authority, "x", ["tokyo", name])
    assert "kafka.tokyo.example" in refused.value.hint


def test_a_certificate_without_a_name_is_refused(authority: KeyPair) -> None:
    with pytest.raises(OptionError, match="needs a name"):
        issue(authority, "x", [])


def test_a_key_never_shows() -> None:
    pair = new_authority("secret")
    assert "PRIVATE" not in repr(pair) and "PRIVATE" not in f"{pair!s}"


@pytest.mark.parametrize(
    ("days", "left", "warning"), [(31, 31, None), (30, 30, None), (29, 29, "soon"), (0, 0, "soon"), (-1, -1, "expired")]
)
def test_days_until_the_end(authority: KeyPair, days: int, left: int, warning: str | None) -> None:
    found = facts(issue(authority, "x", ["x"], now=NOW - dt.timedelta(days=2), days=days + 2).certificate).as_json(NOW)
    assert (found["days"], found["warning"]) == (left, warning)
    assert found["names"] == ["x"]
