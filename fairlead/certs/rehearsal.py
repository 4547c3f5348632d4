"""Trying a server's certificate before a server has it: everything that a client would find wrong, and its key.

The handshake is a real one, in memory, so it cannot disagree with what clients do afterwards.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from fairlead.certs.facts import all_facts
from fairlead.certs.model import Pair
from fairlead.certs.trust import client_context, trouble
from fairlead.errors import ConfigurationError


class CertificateError(ConfigurationError):
    """A certificate of one's own cannot be used as it is."""


def load(certificate: Path, key: Path) -> Pair:
    """Read both files; the key becomes PKCS#8 without a password, which is what Kafka reads.

    Raises:
        CertificateError: a file is missing, is no PEM, or the key has a password.
    """
    chain = _read(certificate, "certificate")
    try:
        all_facts(chain)
    except ValueError as error:
        raise CertificateError(
            f"{certificate} is no certificate: {error}",
            hint="PEM: the server's certificate first, then those of the authorities between it and the ca",
            path=str(certificate),
        ) from None
    try:
        private = serialization.load_pem_private_key(_read(key, "private key"), None)
    except TypeError:
        raise CertificateError(
            f"the private key {key} has a password", hint=f"take it off: openssl pkey -in {key}", path=str(key)
        ) from None
    except (ValueError, UnsupportedAlgorithm):  # whose words may quote the key
        raise CertificateError(
            f"{key} is no private key", hint="PEM, without a password: -----BEGIN PRIVATE KEY-----", path=str(key)
        ) from None
    plain = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Pair(chain, plain)


def rehearse(certificate: Path, key: Path, ca: Path, *, site: str, address: str) -> None:
    """Whether clients that trust ``ca`` and connect to ``address`` will take a server with this certificate.

    Raises:
        CertificateError: they will not: another key, expired, for other names, not signed by ``ca``.
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
            hint="both files must be of the same request; the server's own certificate comes first in its file",
            site=site,
            path=str(certificate),
        ) from None
    client = client_context(ca, site=site)
    refusal = _handshake(server, client, address)
    if refusal is not None:
        found = trouble(refusal, address, ca)
        raise CertificateError(
            f"{certificate} cannot serve {site} at {address}: {found.why}",
            hint=found.hint,
            site=site,
            path=str(certificate),
        )


def _handshake(server: ssl.SSLContext, client: ssl.SSLContext, address: str) -> ssl.SSLError | None:
    """Both sides in turn over two buffers until the client is content; what it has against the server otherwise."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (
        client.wrap_bio(to_client, to_server, server_hostname=address),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    for _ in range(10):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                return error
            if side is sides[0]:
                return None
    raise AssertionError("a handshake takes less than ten rounds")


def _read(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CertificateError(
            f"the {what} {path} cannot be read: {error.strerror}", hint="the topology names it", path=str(path)
        ) from None
