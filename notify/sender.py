"""Send one notification to a receiver: webhooks ourselves, everything else by the library apprise.

A webhook gets a POST as DCSA's Subscription Callback API 1.0 has it (September 2021): a JSON list of events,
``Subscription-ID``, and ``Notification-Signature: sha256=<hexadecimal HMAC of the body>``. The receiver and we share a
secret, in Base64. ``Notification-ID`` is ours: it stays the same when a notification is sent again.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import http.client
import logging
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO, Any, Final, Protocol
from urllib.parse import quote, urlsplit

import msgspec
from pydantic import SecretStr

from fairlead.errors import ConfigurationError
from notify.routes import Message
from topologies.model import PLACEHOLDER, Route, Webhook

TIMEOUT: Final = 15.0  # seconds for a receiver's answer
LEAST_SECRET: Final = 32  # bytes: as many as SHA-256 gives
AGAIN: Final = (408, 429)  # answers below 500 that ask for another attempt

NewestSecret = Callable[[], SecretStr | None]
"""Returns a route's newest secret; called for every message, so that a running service gets a new one."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came back. ``refused``: the receiver will never take this message. ``said`` has no secret."""

    delivered: bool
    said: str
    refused: bool = False


class Sender(Protocol):
    """Sends messages to one receiver."""

    async def send(self, message: Message) -> Outcome:
        """Send a message once. Raises ConfigurationError for a secret that is missing or unfit."""
        ...


def sender_for(name: str, route: Route, secret: NewestSecret, hint: str) -> Sender:
    """Return the sender of a route.

    Args:
        hint: Says where a missing secret is set.

    Raises:
        ConfigurationError: the route's secret is missing or unfit, or apprise does not know the address.
    """
    if isinstance(route.to, Webhook):
        return WebhookSender(name, route.to.webhook, secret, hint)
    return AppriseSender(name, route.to, secret, hint)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the signature and the cargo's data are for the address that the topology names."""

    def redirect_request(self, req: Any, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str) -> None:
        return None


class WebhookSender:
    """Posts signed notifications to one address."""

    def __init__(self, name: str, url: str, secret: NewestSecret, hint: str) -> None:
        self._name = name
        self._url = url
        self._secret = secret
        self._hint = hint
        self._thread = ThreadPoolExecutor(1, f"notify-{name}")  # of its own: a slow receiver takes no other's
        self._opener = urllib.request.build_opener(_NoRedirects)
        self._key()

    async def send(self, message: Message) -> Outcome:
        """Post a message. Answers of 3xx, and of 4xx except 408 and 429, are refusals."""
        body = msgspec.json.encode(message.events)
        request = urllib.request.Request(  # noqa: S310 - the topology's loader accepts http and https only
            self._url,
            data=body,
            headers={
                "Content-Type": "application/json",
                "User-Agent": "fairlead-notify",
                "Subscription-ID": self._name,
                "Notification-ID": message.id,
                "Notification-Signature": signature(body, self._key()),
            },
        )
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._post, request)

    def _post(self, request: urllib.request.Request) -> Outcome:
        try:
            with self._opener.open(request, timeout=TIMEOUT) as answer:
                return Outcome(True, f"HTTP {answer.status}")
        except urllib.error.HTTPError as error:
            error.close()
            return Outcome(False, f"HTTP {error.code}", refused=300 <= error.code < 500 and error.code not in AGAIN)
        except urllib.error.URLError as error:
            why = error.reason
            return Outcome(False, (why.strerror if isinstance(why, OSError) else None) or type(why).__name__)
        except (OSError, http.client.HTTPException) as error:
            return Outcome(False, "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)

    def _key(self) -> bytes:
        given = _needed(self._name, self._secret, self._hint)
        try:
            key = base64.b64decode(given, validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) < LEAST_SECRET:
            raise ConfigurationError(
                f"the secret of route {self._name} is not {LEAST_SECRET} bytes or more in Base64",
                hint="make one with: openssl rand -base64 32",
                route=self._name,
            )
        return key


def signature(body: bytes, key: bytes) -> str:
    """Return the value of ``Notification-Signature`` for a request's body."""
    return f"sha256={hmac.new(key, body, hashlib.sha256).hexdigest()}"


class AppriseSender:
    """Sends by apprise, whose modules take a second to import: they are imported here, for routes that need them."""

    def __init__(self, name: str, url: str, secret: NewestSecret, hint: str) -> None:
        self._name = name
        self._url = url
        self._secret = secret
        self._hint = hint
        self._thread = ThreadPoolExecutor(1, f"notify-{name}")
        self._service(self._given())

    async def send(self, message: Message) -> Outcome:
        """Send a message; apprise tells success from failure, and not whether another attempt can help."""
        given = self._given()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._send, self._service(given), message, given)

    def _given(self) -> str:
        return _needed(self._name, self._secret, self._hint) if PLACEHOLDER in self._url else ""

    def _service(self, secret: str) -> Any:
        import apprise

        asset = apprise.AppriseAsset(app_id="Fairlead", app_desc="Fairlead", async_mode=False, secure_logging=True)
        service = apprise.Apprise(asset=asset)
        with _Warnings():
            known = service.add(with_secret(self._url, secret))
        if not known:
            scheme = "its secret" if self._url == PLACEHOLDER else f"{urlsplit(self._url).scheme}://..."
            raise ConfigurationError(
                f"apprise cannot use the address of route {self._name}: {scheme}",
                hint="write it as apprise's documentation says for this service",
                route=self._name,
            )
        return service

    def _send(self, service: Any, message: Message, secret: str) -> Outcome:
        with _Warnings() as said:
            delivered = _notified(service, message) or (_to_be_split(service, message) and _notified(service, message))
        # Nothing of an address that is a secret as a whole, nor of a token that is a part of the secret.
        last = said.lines[-1] if said.lines and not delivered and self._url != PLACEHOLDER else ""
        for hidden in (secret, quote(secret, safe=""), quote(secret, safe="/"), *secret.split("/")):
            last = last.replace(hidden, "***") if len(hidden) > 2 else last
        return Outcome(delivered, "delivered" if delivered else f"not delivered: {last or 'apprise does not say why'}")


def _notified(service: Any, message: Message) -> bool:
    return bool(service.notify(body=message.text, title=message.title, body_format="text"))


def _to_be_split(service: Any, message: Message) -> bool:
    """Let receivers for which a message may be too long get it in parts from now on. Return whether there are any.

    Apprise sends a message whole unless the address says otherwise (``overflow``), and a service that refuses it would
    do so for ever.
    """
    import apprise

    length = len(message.title) + len("\r\n") + len(message.text)
    long = [each for each in service if each.overflow_mode == "upstream" and length > each.body_maxlen]
    for each in long:
        each.overflow_mode = apprise.OverflowMode.SPLIT
    return bool(long)


def with_secret(url: str, secret: str) -> str:
    """Return an address of apprise with its secret: whole, or percent-encoded in its place (slashes only in tokens)."""
    if url == PLACEHOLDER:
        return secret
    return url.replace(PLACEHOLDER, quote(secret, safe="" if f"{PLACEHOLDER}@" in url else "/"))


class _Warnings(logging.Handler):
    """Keeps what apprise warns of in this thread, instead of logging it: it might name more than we want to."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self._thread = threading.get_ident()
        self._log = logging.getLogger("apprise")

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:
            self.lines.append(" ".join(record.getMessage().split())[:200])

    def __enter__(self) -> _Warnings:
        self._log.propagate = False
        self._log.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._log.removeHandler(self)


def _needed(name: str, secret: NewestSecret, hint: str) -> str:
    given = secret()
    if given is None:
        raise ConfigurationError(f"the secret of route {name} is not set", hint=hint, route=name)
    return given.get_secret_value()
