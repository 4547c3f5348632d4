"""The profile file that a customer gives to its Delta Sharing client: the board's address, and its token."""

from __future__ import annotations

import json
from urllib.parse import urlsplit

from board.sharing.protocol import PREFIX
from board.sharing.tokens import IssuedToken
from fairlead.errors import OptionError
from topologies.values import LOOPBACK


def endpoint(board: str) -> str:
    """Return the address of the shares of a board.

    Raises:
        ConfigurationError: it is no address of a web server, or one to which the token would go in the clear.
    """
    try:
        parts = urlsplit(board)
        host = parts.hostname
        parts.port  # noqa: B018  # raises for a port that is none
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https") or parts.path.strip("/") or parts.query or parts.username:
        raise OptionError(
            f"{board!r} is no address of a board",
            hint="give it as in https://board.example.com or http://127.0.0.1:8470",
        )
    if parts.scheme == "http" and host not in LOOPBACK:
        raise OptionError(
            f"a token would go to {host} in the clear", hint="put TLS before the board, and give its address with https"
        )
    return board.rstrip("/") + PREFIX


def profile(at: str, issued: IssuedToken) -> str:
    """Return the text of a profile file for the shares at an endpoint."""
    body = {
        "shareCredentialsVersion": 1,
        "endpoint": at,
        "bearerToken": issued.token,
        "expirationTime": f"{issued.expires:%Y-%m-%dT%H:%M:%SZ}",
    }
    return json.dumps(body, indent=1) + "\n"
