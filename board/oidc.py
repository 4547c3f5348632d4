"""Sign in at an OpenID Connect provider: the authorization code flow with PKCE, state and nonce.

Authlib speaks the protocol (OpenID Connect Core 1.0, RFC 6749, RFC 7636): it reads the provider's discovery document,
exchanges the code, and checks signature, issuer, audience, nonce and times of the ID token. Here is decided whom the
token signs in (``name_of``). What is kept of an attempt meanwhile is in the browser's cookie, encrypted, so that nobody
can fill the board's memory. After that a session is like any other: what somebody sees follows from the topology.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.starlette_client import OAuth
from cryptography.fernet import Fernet, InvalidToken
from joserfc.errors import JoseError
from pydantic import SecretStr
from starlette.requests import Request

from board import ForEveryoneError
from board.security import digest_of
from fairlead.errors import FairleadError, UnavailableError
from topologies.model import Oidc

LASTS: Final = 600.0
"""Seconds for which somebody may be at the provider."""
_LONGEST_TARGET: Final = 1000  # bytes; browsers drop cookies of more than 4,096
_RENEWED: Final = 3600.0  # seconds after which the provider's document and keys are read again
_ASKED_AGAIN: Final = 5.0  # seconds after the provider could not be used
_PATIENCE: Final = 10.0  # seconds for the provider to answer
_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures by a key that only the provider has."""
_NEEDED: Final = {
    "issuer": str,
    "authorization_endpoint": str,
    "token_endpoint": str,
    "jwks_uri": str,
    "id_token_signing_alg_values_supported": list,
}
"""Fields of the provider's discovery document that are used, and their types (OpenID Connect Discovery 1.0)."""


class SignInRefusedError(FairleadError):
    """The provider's answer signs nobody in."""


class OidcSignIn:
    """Begins and ends attempts to sign in at the provider. The key of their cookies is in this process's memory.

    Args:
        settings: Returns the provider; None where the topology has none.
        secret: Returns the board's secret at the provider; None for a public client.
        clock: Seconds that only rise.
    """

    def __init__(
        self,
        settings: Callable[[], Oidc | None],
        secret: Callable[[], SecretStr | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._secret, self._clock = settings, secret, clock
        self._seal = Fernet(Fernet.generate_key())
        self._used: dict[str, float] = {}  # when attempts ended, by the digest of their cookie's content
        self._asking = asyncio.Lock()
        # Of which settings and secret, when it was found, and the client or why there is none.
        self._found: tuple[object, float, Any] | None = None

    def provider(self) -> str:
        """Return the provider's host, for people; empty where there is none."""
        settings = self._settings()
        return "" if settings is None else urlsplit(settings.issuer).netloc

    @property
    def passwords(self) -> bool:
        """Whether the passwords of Kafka users sign in as well."""
        settings = self._settings()
        return settings is None or settings.passwords

    async def begin(self, request: Request, address: str, target: str) -> tuple[str, str]:
        """Begin an attempt.

        Args:
            address: Where the provider sends the browser back, as it is registered there.
            target: The page to open afterwards.

        Returns:
            The address at the provider to send the browser to, and its cookie.

        Raises:
            UnavailableError: the provider does not answer, or is not the one that the topology names.
        """
        _, client = await self._provider()
        kept: dict[str, Any] = {}  # by Authlib: state, nonce and PKCE's verifier
        request.scope["session"] = kept
        try:
            answer = await client.authorize_redirect(request, address)
        except (httpx2.HTTPError, AuthlibBaseError, RuntimeError, ValueError) as error:
            raise self._away(error) from error
        target = target if len(target.encode()) <= _LONGEST_TARGET else "/"
        content = json.dumps([kept, target], ensure_ascii=False)
        return answer.headers["location"], self._seal.encrypt_at_time(content.encode(), int(self._clock())).decode()

    async def finish(self, request: Request, cookie: str) -> tuple[str, str, str]:
        """End the attempt of a cookie with the provider's answer. An attempt signs in once.

        Returns:
            The name of the topology that the answer signs in, its subject at the provider, and the page to open.

        Raises:
            SignInRefusedError: the answer does not belong to the attempt, is not the provider's, or fits no name.
            UnavailableError: the provider does not answer.
        """
        now = self._clock()
        try:
            content = self._seal.decrypt_at_time(cookie.encode(), int(LASTS), int(now)).decode()
        except InvalidToken as error:
            raise _refused("this attempt has ended or began elsewhere") from error
        self._used = {attempt: at for attempt, at in self._used.items() if now - at <= LASTS}
        attempt = digest_of(content)
        if attempt in self._used:
            raise _refused("this attempt has signed in already")
        self._used[attempt] = now
        try:
            kept, target = json.loads(content)
            name, subject = await self._sign_in(request, kept)
        except BaseException:
            self._used.pop(attempt, None)  # so that only who can sign in adds to them
            raise
        return name, subject, target

    async def _sign_in(self, request: Request, kept: dict[str, Any]) -> tuple[str, str]:
        settings, client = await self._provider()
        request.scope["session"] = kept
        try:
            answer = await client.authorize_access_token(request)
        except httpx2.HTTPError as error:
            raise self._away(error) from error
        except (AuthlibBaseError, JoseError, ValueError, KeyError, TypeError) as error:
            raise _refused(f"{type(error).__name__}: {error}") from error
        claims = answer.get("userinfo")
        if not claims:
            raise _refused("the provider sent no ID token")
        return name_of(settings, claims), str(claims["sub"])

    async def _provider(self) -> tuple[Oidc, Any]:
        """Return the settings and Authlib's client, made anew when settings or secret change, and every hour.

        While the provider cannot be used it is asked once in ``_ASKED_AGAIN`` seconds, however many want to sign in.
        """
        settings, secret = self._settings(), self._secret()
        if settings is None:
            raise _refused("this board has no provider")
        async with self._asking:
            found = self._known(settings, secret)
            if found is None:
                try:
                    found = await self._discover(settings, secret)
                except UnavailableError as error:
                    found = error
                self._found = (settings, secret), self._clock(), found
        if isinstance(found, UnavailableError):
            raise found.with_traceback(None)
        return settings, found

    def _known(self, settings: Oidc, secret: SecretStr | None) -> Any:
        """Return the client, or why there is none; None when the provider must be asked."""
        if self._found is None or self._found[0] != (settings, secret):
            return None
        _, at, found = self._found
        lasts = _ASKED_AGAIN if isinstance(found, UnavailableError) else _RENEWED
        return found if self._clock() - at < lasts else None

    async def _discover(self, settings: Oidc, secret: SecretStr | None) -> Any:
        """Return Authlib's client, with what is used of the provider's discovery document.

        Raises:
            UnavailableError: the provider does not answer, or cannot be used.
        """
        client = OAuth().register(
            "oidc",
            client_id=settings.client_id,
            client_secret=None if secret is None else secret.get_secret_value(),
            server_metadata_url=f"{settings.issuer.rstrip('/')}/.well-known/openid-configuration",
            client_kwargs={
                "scope": settings.scope,
                "code_challenge_method": "S256",
                "timeout": _PATIENCE,
                "verify": httpx2.create_ssl_context(),  # else each attempt reads the authorities again, for 30 ms
                **({} if secret is not None else {"token_endpoint_auth_method": "none"}),
            },
        )
        try:
            found = await client.load_server_metadata()
        except (httpx2.HTTPError, ValueError, TypeError) as error:  # TypeError: the document is no JSON object
            raise self._away(error) from error
        found.setdefault("id_token_signing_alg_values_supported", ["RS256"])
        unusable = [name for name, kind in _NEEDED.items() if not isinstance(found.get(name), kind)]
        if unusable:
            raise self._unavailable(f"cannot be used: its discovery document has no valid {', '.join(unusable)}")
        if found["issuer"] != settings.issuer:
            raise ForEveryoneError(
                f"the sign-in provider calls itself {found['issuer']}, and the topology calls it {settings.issuer}",
                hint="write board: {oidc: {issuer: ...}} exactly as the provider's discovery document does",
            )
        offered = found["id_token_signing_alg_values_supported"]
        client.server_metadata = {name: found[name] for name in (*_NEEDED, "_loaded_at")} | {
            "id_token_signing_alg_values_supported": [each for each in offered if each in _ALGORITHMS]
        }  # nothing else, because Authlib takes fields such as `verify` and `client_id` for options of its HTTP client
        return client

    def _away(self, error: Exception) -> UnavailableError:
        return self._unavailable(f"does not answer ({type(error).__name__})")

    def _unavailable(self, why: str) -> UnavailableError:
        return ForEveryoneError(
            f"the sign-in provider {self.provider()} {why}",
            hint="try again, or sign in with the password of your Kafka user" if self.passwords else "try again",
        )


def name_of(settings: Oidc, claims: Mapping[str, Any]) -> str:
    """Return the customer or user whom the claims of a valid ID token sign in.

    Raises:
        SignInRefusedError: ``names`` has none for the claim's values, or several; or the claim is an e-mail address
            that the provider has not verified.
    """
    value = claims.get(settings.claim)
    if settings.claim == "email" and claims.get("email_verified") is not True:
        raise _refused("the provider has not verified the e-mail address")
    values = value if isinstance(value, list | tuple) else [value]
    found = {settings.names[each] for each in values if isinstance(each, str) and each in settings.names}
    if len(found) != 1:
        raise _refused(f"claim {settings.claim} fits {'no name' if not found else 'several names'}")
    return found.pop()


def _refused(why: str) -> SignInRefusedError:
    return SignInRefusedError(
        f"the provider's answer signs nobody in: {why}", hint="sign in again; board: {oidc: ...} has the names"
    )
