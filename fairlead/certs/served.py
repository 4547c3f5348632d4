"""What a TLS server shows to whoever connects, and whether a client would trust it. Blocking; standard library only."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

from fairlead.certs.trust import Trouble, client_context, trouble
from fairlead.endpoint import KafkaEndpoint
from fairlead.errors import UnavailableError, UntrustedError

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


def examine(host: str, port: int, ca: Path | None, *, site: str, patience: float = PATIENCE) -> Trouble | None:
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


def require_trust(endpoint: KafkaEndpoint) -> None:
    """Nothing, where a broker's certificate is one that its clients trust, or nobody answers.

    Raises:
        UntrustedError: it is not; with the reason, which librdkafka does not tell.
        TrustError: the endpoint's file of authorities cannot be used.
    """
    for host, port in endpoint.bootstrap if endpoint.tls and endpoint.tls_verify_hostname else ():
        found = examine(host, port, endpoint.tls_ca, site=endpoint.site)
        if found is not None:
            raise UntrustedError(
                f"no TLS with {endpoint.site}'s Kafka at {host}:{port}: {found.why}",
                hint=found.hint,
                site=endpoint.site,
                address=f"{host}:{port}",
            )
