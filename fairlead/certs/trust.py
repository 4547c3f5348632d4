"""TLS from the client's side: TLS contexts, causes of failed handshakes, and the certificate that a server presents.

Blocking. Needs only the standard library, so clients do not load ``cryptography``.

A client's ``ca`` is a PEM file with one authority, or with the old and the new one while one is being replaced. Each
connection reads the file again, so a running client picks up a new authority.
"""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Final, NamedTuple

from fairlead.errors import ConfigurationError, UnavailableError

SOON: Final = 30  # days; warn of a certificate that expires within them
CONNECT_TIMEOUT: Final = 5.0  # seconds

# OpenSSL's X509_V_ERR_… numbers, which Python does not name.
_NOT_YET, _EXPIRED = 9, 10
_UNKNOWN_AUTHORITY: Final = (2, 18, 19, 20, 21)
_OTHER_NAME: Final = (62, 64)


class KeyPair(NamedTuple):
    """A certificate and its private key, PEM. ``certificate`` may include the certificates of its authorities.

    The key never shows in ``repr``.
    """

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return f"Pair({len(self.certificate)} bytes, key not shown)"


class TrustError(ConfigurationError):
    """The file of trusted authorities cannot be used."""


class TlsProblem(NamedTuple):
    """Why a TLS handshake failed. ``certificate``: the server's certificate is the cause, and a retry cannot help."""

    why: str
    hint: str
    certificate: bool


class _ClosingSocket(ssl.SSLSocket):
    """Closes itself when its handshake fails; paho leaves that to the garbage collector."""

    def do_handshake(self, block: bool = False) -> None:
        try:
            super().do_handshake(block)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except OSError:
            self.close()
            raise


def client_context(ca: Path | None, *, site: str, verify_host: bool = True) -> ssl.SSLContext:
    """Return the TLS context of a site's client. It verifies the certificate and, with ``verify_host``, the host name.

    Args:
        ca: PEM file of the trusted authorities; None for the machine's own.

    Raises:
        TrustError: the file does not exist, or has no certificate.
    """
    try:
        context = ssl.create_default_context(cafile=None if ca is None else str(ca))
    except OSError as error:  # includes ssl.SSLError
        why = "it has no certificate" if isinstance(error, ssl.SSLError) else error.strerror or str(error)
        raise TrustError(
            f"{ca}, the authorities that clients of {site} trust, cannot be used: {why}",
            hint="the topology names this PEM file as ca; 'fairlead up' writes it for sites on this machine",
            site=site,
            path=str(ca),
        ) from error
    context.check_hostname = verify_host
    context.sslsocket_class = _ClosingSocket
    return context


def trouble(error: ssl.SSLError, host: str, ca: Path | None) -> TlsProblem:
    """Return the cause of a failed handshake, and what to do about it.

    Args:
        host: The name or address that the client connected to.
    """
    raw = error.reason or "handshake failed"
    if isinstance(error, ssl.SSLCertVerificationError):
        why, hint = _verification(error.verify_code, error.verify_message, host, ca)
        return TlsProblem(f"{why} (CERTIFICATE_VERIFY_FAILED: {error.verify_message})", hint, True)
    hint = "check that the port is a TLS listener"
    if raw in ("WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING", "RECORD_LAYER_FAILURE"):
        return TlsProblem(f"the port does not speak TLS ({raw})", hint, False)
    return TlsProblem(
        raw, "check that the port is a TLS listener and that ca names the authority of its certificate", False
    )


def _verification(code: int, message: str, host: str, ca: Path | None) -> tuple[str, str]:
    trusted = f"the authorities in {ca}" if ca is not None else "the authorities that this machine knows"
    renew = "on this machine run 'fairlead certs renew'; elsewhere its operator has to renew it"
    if code == _EXPIRED:
        return "its certificate, or its authority's, has expired", renew
    if code == _NOT_YET:
        return "its certificate is not valid yet", "is the clock of this machine right? see 'date -u'"
    if code in _OTHER_NAME:
        return (
            f"its certificate is for other names than {host}",
            f"connect by a name that it has, or issue one for this name: fairlead certs issue --name {host}",
        )
    if code in _UNKNOWN_AUTHORITY:
        return (
            f"its certificate is not signed by {trusted}",
            "name the file of its authority as ca in the topology; while an authority is replaced, a file with both",
        )
    return f"its certificate is not valid: {message}", f"it was checked with {trusted}"


def served(host: str, port: int, *, patience: float = CONNECT_TIMEOUT) -> bytes:
    """Return the certificate (DER) that a server presents, without verifying it.

    Raises:
        UnavailableError: no server answers, or the port does not speak TLS.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host, port), patience) as plain,
            context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            return secure.getpeercert(binary_form=True) or b""
    except ssl.SSLError as error:
        found = trouble(error, host, None)
        raise UnavailableError(f"{host}:{port} shows no certificate: {found.why}", hint=found.hint) from error
    except OSError as error:
        raise UnavailableError(f"{host}:{port} shows no certificate: {error}", hint="is it running?") from error


def examine(host: str, port: int, ca: Path | None, *, site: str) -> TlsProblem | None:
    """Return why a client would not trust a server; None if it would, or if no server answers.

    Raises:
        TrustError: the file of trusted authorities cannot be used.
    """
    context = client_context(ca, site=site)
    try:
        with (
            socket.create_connection((host, port), CONNECT_TIMEOUT) as plain,
            context.wrap_socket(plain, server_hostname=host),
        ):
            return None
    except ssl.SSLError as error:
        return trouble(error, host, ca)
    except OSError:
        return None
