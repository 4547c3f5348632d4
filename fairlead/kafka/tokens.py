"""Get the tokens with which users log in by OAUTHBEARER: OAuth 2.0 client credentials, and Amazon MSK's IAM.

Blocking; the asyncio client calls ``obtain`` in a thread. A process asks once for all its connections: a token is kept
until three quarters of its life are over.
"""

from __future__ import annotations

import base64
import importlib
import json
import ssl
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode, urlsplit

from pydantic import SecretStr

from fairlead.certs.trust import client_context
from fairlead.errors import ConfigurationError, FairleadError, LoginRefusedError, UnavailableError

_TIMEOUT: Final = 10.0  # seconds for an answer of the token endpoint
_KEEP_FOR: Final = 0.75  # part of a token's life; below the part of a session after which clients log in again
_LARGEST: Final = 1 << 20  # bytes of an answer
_UNSAID: Final = 300.0  # seconds that a token lasts if neither the answer nor the token says it


@dataclass(frozen=True, slots=True)
class OidcEndpoint:
    """A token endpoint of OAuth 2.0, asked with ``grant_type=client_credentials``.

    Args:
        ca: PEM file of the authority that signed the endpoint's certificate; None for the authorities of this machine.
        extensions: SASL extensions that some clusters want beside the token (Confluent Cloud: ``logicalCluster`` and
            ``identityPoolId``).
    """

    url: str
    scope: str = ""
    ca: Path | None = None
    extensions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class MskRegion:
    """Amazon MSK with IAM: a token is a request that is signed with this machine's AWS credentials."""

    region: str
    extensions: tuple[tuple[str, str], ...] = ()  # always empty; as in ``OidcEndpoint``


TokenSource = OidcEndpoint | MskRegion


class Token(NamedTuple):
    """A token and when it ends, as Unix time."""

    text: SecretStr
    ends: float


_Key = tuple[TokenSource, str, SecretStr | None]
_cached: dict[_Key, tuple[Token, float]] = {}  # with the time until which a token is used
_locks: dict[_Key, threading.Lock] = {}
_guard: Final = threading.Lock()


def obtain(
    source: TokenSource, client_id: str, secret: SecretStr | None, *, site: str, unlike: SecretStr | None = None
) -> Token:
    """Return a token; ask for one if none is kept, or the kept one ends soon. Threads share one request.

    Args:
        site: For messages.
        unlike: The token that a session has, which is no use to prolong it.

    Raises:
        LoginRefusedError: the endpoint refuses client id or secret.
        UnavailableError: it does not answer, or with something else.
        ConfigurationError: a file or library is missing.
    """
    key = source, client_id, secret
    found = cached(source, client_id, secret, unlike=unlike)
    if found is not None:
        return found
    with _guard:
        lock = _locks.setdefault(key, threading.Lock())
    with lock:
        found = cached(source, client_id, secret, unlike=unlike)
        if found is None:
            asked = time.time()
            found = _fetch(source, client_id, secret, site)
            _cached[key] = found, asked + (found.ends - asked) * _KEEP_FOR
        return found


def cached(
    source: TokenSource, client_id: str, secret: SecretStr | None, *, unlike: SecretStr | None = None
) -> Token | None:
    """Return the kept token if it is to be used still, and not the one that the caller has."""
    token, until = _cached.get((source, client_id, secret), (None, 0.0))
    return token if token is not None and time.time() < until and token.text != unlike else None


def forget(source: TokenSource, client_id: str, secret: SecretStr | None) -> None:
    """Drop a kept token, because a broker refused it."""
    _cached.pop((source, client_id, secret), None)


def _fetch(source: TokenSource, client_id: str, secret: SecretStr | None, site: str) -> Token:
    return _signed(source, site) if isinstance(source, MskRegion) else _granted(source, client_id, secret, site)


def _granted(source: OidcEndpoint, client_id: str, secret: SecretStr | None, site: str) -> Token:
    """Ask the token endpoint."""
    where = f"the token endpoint of {site} ({source.url})"
    fields = {"site": site, "user": client_id, "address": urlsplit(source.url).netloc}
    form = {"grant_type": "client_credentials", **({"scope": source.scope} if source.scope else {})}
    pair = f"{client_id}:{secret.get_secret_value() if secret else ''}".encode()
    headers = {
        "Authorization": f"Basic {base64.b64encode(pair).decode()}",
        "Content-Type": "application/x-www-form-urlencoded",
        "Accept": "application/json",
    }
    context = client_context(source.ca, site=site)
    try:
        code, body = _post(source.url, urlencode(form).encode(), headers, context)
    except OSError as error:  # includes time-outs
        why = getattr(error, "reason", error)
        raise UnavailableError(
            f"{where} does not answer: {why}", hint="is its address right, and can this machine reach it?", **fields
        ) from error
    if code != 200:
        raise _refused(code, body, where, client_id, fields)
    try:
        told = json.loads(body)
        text = str(told["access_token"])
        ends = _end_of(text, told.get("expires_in"))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnavailableError(
            f"{where} answered without a token", hint="is this the token endpoint of an OIDC provider?", **fields
        ) from error
    return Token(SecretStr(text), ends)


def _post(url: str, body: bytes, headers: dict[str, str], context: ssl.SSLContext) -> tuple[int, bytes]:
    """Send a request, through the machine's proxy if it has one; return status and body of the answer."""
    from urllib import error, request  # they cost programs without OAuth 16 ms

    class NoRedirect(request.HTTPRedirectHandler):
        """The client's secret is for the named endpoint only."""

        def redirect_request(self, *_: Any, **__: Any) -> None:
            return None

    asked = request.Request(url, body, headers, method="POST")  # noqa: S310 - the topology allows http(s) only
    opener = request.build_opener(request.HTTPSHandler(context=context), NoRedirect)
    try:
        with opener.open(asked, timeout=_TIMEOUT) as answer:
            return int(answer.status), answer.read(_LARGEST)
    except error.HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.read(_LARGEST)


def _refused(code: int, body: bytes, where: str, client_id: str, fields: dict[str, str]) -> FairleadError:
    try:
        told = json.loads(body)
        reason = str(told["error"])
    except (ValueError, KeyError, TypeError):
        reason = ""
    shown = f"HTTP {code}{' ' + reason[:100] if reason.isprintable() and reason else ''}"
    if code in (400, 401, 403):
        return LoginRefusedError(
            f"{where} refuses the client {client_id!r}: {shown}",
            hint="correct client id (logins in the topology), secret (the user's password) or scope",
            **fields,
        )
    return UnavailableError(f"{where} gives no token: {shown}", hint="see its log; it is asked again", **fields)


def _end_of(token: str, lasts: Any) -> float:
    """Return when a token ends: as the answer says, else as the token says if it is a JWT."""
    now = time.time()
    if lasts is not None:
        return now + float(lasts)
    parts = token.split(".")
    if len(parts) == 3:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        if "exp" in claims:
            return float(claims["exp"])
    return now + _UNSAID


_SIGNER: Final = "aws_msk_iam_sasl_signer"


def _signed(source: MskRegion, site: str) -> Token:
    """Sign with the AWS credentials of this machine: environment, profile, or the role of a container or host."""
    try:
        signer: Any = importlib.import_module(_SIGNER)
    except ImportError as error:
        raise ConfigurationError(
            f"the login at {site} needs Amazon's library for MSK, which is not installed",
            hint="pip install 'fairlead[msk]'",
            site=site,
        ) from error
    try:
        text, ends_ms = signer.MSKAuthTokenProvider.generate_auth_token(source.region)
    except Exception as error:  # whatever boto3 raises: its text may hold parts of a credential
        raise LoginRefusedError(
            f"no AWS credentials with which to log in at {site}: {type(error).__name__}",
            hint="'aws sts get-caller-identity' must work for the user that runs Fairlead",
            site=site,
        ) from None
    return Token(SecretStr(text), ends_ms / 1000)
