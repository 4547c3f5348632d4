"""What a TLS server shows to whoever connects, and whether a client would trust it. Blocking; standard library only."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

from fairlead.certs.trust import TlsProblem, client_context, trouble
from fairlead.errors import UnavailableError

PATIENCE = 5.0  # seconds


def served(host: str, port: int, *, patience: float = PATIENCE) -> bytes:
    """The certificate (DER) that a server shows; nothing is verified, so an expired one is told as well.

    Raises:
        UnavailableError: nobody answers, or no TLS is spoken there.
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


def examine(host: str, port: int, ca: Path | None, *, site: str, patience: float = PATIENCE) -> TlsProblem | None:
    """Why a client would not trust the server there; None when it would, or when nobody answers.

    Raises:
        TrustError: the file of authorities cannot be used.
    """
    context = client_context(ca, site=site)
    try:
        with (
            socket.create_connection((host, port), patience) as plain,
            context.wrap_socket(plain, server_hostname=host),
        ):
            return None
    except ssl.SSLError as error:
        return trouble(error, host, ca)
    except OSError:
        return None
