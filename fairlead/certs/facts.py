"""Read certificates and keys from PEM files, and check whether clients would accept a server that uses them."""

from __future__ import annotations

import datetime as dt
import math
import ssl
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from fairlead.certs.trust import SOON, KeyPair, client_context, trouble
from fairlead.errors import ConfigurationError


class CertificateError(ConfigurationError):
    """A server's certificate or key cannot be used as it is."""


class CertificateFacts(NamedTuple):
    """The fields of one certificate. ``names`` are its host names and IP addresses; an authority has none."""

    subject: str
    issuer: str
    names: tuple[str, ...]
    serial: str
    begins: dt.datetime
    expires: dt.datetime

    def days(self, now: dt.datetime | None = None) -> int:
        """Return the whole days until the certificate expires; negative once it has."""
        return math.floor((self.expires - (now or dt.datetime.now(dt.UTC))) / dt.timedelta(days=1))

    def as_json(self, now: dt.datetime | None = None) -> dict[str, Any]:
        """Return the fields for JSON output; ``warning`` is null, ``soon`` or ``expired``."""
        left = self.days(now)
        return {
            "subject": self.subject,
            "names": list(self.names),
            "issuer": self.issuer,
            "serial": self.serial,
            "begins": self.begins.isoformat(timespec="seconds"),
            "expires": self.expires.isoformat(timespec="seconds"),
            "days": left,
            "warning": "expired" if left < 0 else "soon" if left < SOON else None,
        }


def facts(certificate: bytes) -> CertificateFacts:
    """Read one certificate from PEM (the first of several) or DER.

    Raises:
        ValueError: the bytes are not a certificate.
    """
    pem = certificate.lstrip().startswith(b"-----")
    read = x509.load_pem_x509_certificate(certificate) if pem else x509.load_der_x509_certificate(certificate)
    return _facts(read)


def all_facts(pem: bytes) -> list[CertificateFacts]:
    """Read every certificate of a PEM file, in order.

    Raises:
        ValueError: the file has no certificate, or a damaged one.
    """
    return [_facts(each) for each in x509.load_pem_x509_certificates(pem)]


def load(certificate: Path, key: Path) -> KeyPair:
    """Read a server's certificate and key; convert the key to PKCS#8 without a password, which Kafka needs.

    Raises:
        CertificateError: a file is missing or is not PEM, or the key has a password.
    """
    chain = _read(certificate, "certificate")
    try:
        all_facts(chain)
    except ValueError as error:
        raise CertificateError(
            f"{certificate} is not a certificate: {error}",
            hint="PEM: the server's certificate first, then the intermediate authorities, up to the one in ca",
            path=str(certificate),
        ) from None
    try:
        private = serialization.load_pem_private_key(_read(key, "private key"), None)
    except TypeError:
        raise CertificateError(
            f"the private key {key} has a password", hint=f"remove it: openssl pkey -in {key}", path=str(key)
        ) from None
    except (ValueError, UnsupportedAlgorithm):  # not chained: its text may quote the key
        raise CertificateError(
            f"{key} is not a private key", hint="PEM, without a password: -----BEGIN PRIVATE KEY-----", path=str(key)
        ) from None
    plain = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return KeyPair(chain, plain)


def fits(certificate: Path, key: Path) -> bool:
    """Return whether a certificate is for this key; also True if one of them cannot be read."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        return error.reason != "KEY_VALUES_MISMATCH"
    return True


def check_accepted(certificate: Path, key: Path, ca: Path, *, site: str, address: str) -> None:
    """Check by a TLS handshake in memory that clients that trust ``ca`` accept a server with this certificate.

    Args:
        site: The site of the server.
        address: The host name or IP address that clients connect to.

    Raises:
        CertificateError: they do not: wrong key, expired, issued for other names, or not signed by ``ca``.
        TrustError: ``ca`` cannot be used.
    """
    load(certificate, key)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        server.load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        raise CertificateError(
            f"the private key {key} does not belong to {certificate}"
            if error.reason == "KEY_VALUES_MISMATCH"
            else f"{certificate} cannot be used with {key}: {error.reason}",
            hint="give the key that the certificate was requested with; the server's certificate is first in its file",
            site=site,
            path=str(certificate),
        ) from None
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    here = client_context(ca, site=site).wrap_bio(to_client, to_server, server_hostname=address)
    there = server.wrap_bio(to_server, to_client, server_side=True)
    for side in (here, there) * 5:
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLError as error:
            found = trouble(error, address, ca)
            raise CertificateError(
                f"{certificate} cannot serve {site} at {address}: {found.why}",
                hint=found.hint,
                site=site,
                path=str(certificate),
            ) from None
        if side is here:
            return
    raise AssertionError("a handshake takes less than five rounds")


def _read(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CertificateError(
            f"the {what} {path} cannot be read: {error.strerror}", hint="the topology names it", path=str(path)
        ) from None


def _facts(read: x509.Certificate) -> CertificateFacts:
    return CertificateFacts(
        subject=read.subject.rfc4514_string(),
        issuer=read.issuer.rfc4514_string(),
        names=_names(read),
        serial=f"{read.serial_number:x}",
        begins=read.not_valid_before_utc,
        expires=read.not_valid_after_utc,
    )


def _names(read: x509.Certificate) -> tuple[str, ...]:
    try:
        found = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    hosts = found.get_values_for_type(x509.DNSName)
    return (*hosts, *(str(address) for address in found.get_values_for_type(x509.IPAddress)))
