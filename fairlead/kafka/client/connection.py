"""One connection to one broker: frames, request headers, pipelining, timeouts, login.

Kafka answers in the order of the requests, so waiting requests form a queue. The kernel writes each answer straight
into a buffer of its own, which the caller gets whole and which is never reused.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import struct
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, cast

from pydantic import SecretStr

from fairlead.kafka.client.login import certificate_refused, login, read_secret, tls_context, untrusted
from fairlead.kafka.endpoint import Endpoint, KafkaEndpoint, current
from fairlead.kafka.protocol import produce_codec, versions
from fairlead.kafka.protocol.batch import Buffer
from fairlead.kafka.protocol.coding import Question, skip_tags
from fairlead.kafka.protocol.errors import (
    AuthenticationFailed,
    ConnectionLost,
    RequestTimeout,
    UnsupportedBroker,
    WireError,
)

FIRST: Final = 0.05
LONGEST: Final = 2.0


def backoff(attempt: int, longest: float = LONGEST) -> float:
    """Return the seconds to wait after attempt number ``attempt`` (from 0): 0.05, doubling up to ``longest``."""
    return min(longest, FIRST * 2.0 ** min(attempt, 16))


log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_FRAME: Final = 128 << 20

_HEADER: Final = struct.Struct(">hhih")
_I32: Final = struct.Struct(">i")
_WRITE_HIGH_WATER: Final = 32 << 20
_JOIN_BELOW: Final = 64 << 10  # smaller requests are sent as one buffer
HELD_UP: Final = 1.0  # a timer that fires so many seconds late shows that the machine was suspended or overloaded
_THROTTLED_AGAIN: Final = 60.0  # seconds without throttling after which it is logged again
_REAUTHENTICATE_AT: Final = 0.8  # part of the session's lifetime
_REAUTHENTICATE_NOT_BEFORE: Final = 1.1  # seconds; brokers refuse a second login within the first second


@dataclass(slots=True)
class _PendingRequest:
    correlation: int
    api_key: int
    future: asyncio.Future[bytearray]
    timer: asyncio.TimerHandle = field(init=False)


class Connection(asyncio.BufferedProtocol):
    """One connection, created by ``connect``; belongs to one event loop."""

    def __init__(
        self, address: str, endpoint: KafkaEndpoint, client_id: str, request_timeout: float, *, later: Endpoint
    ) -> None:
        self.address = address
        self._endpoint = endpoint
        self._later = later  # gives the current password when the broker asks for it again
        self._client = client_id.encode()
        self._timeout = request_timeout
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._closed = self._loop.create_future()
        self._waiting: deque[_PendingRequest] = deque()
        self._correlation = 0
        self._prefix = bytearray(4)
        self._frame: bytearray | None = None
        self._filled = 0
        self._heard = self._began = self._loop.time()
        self._muted_until = 0.0  # until then the broker reads no requests
        self.produce_version = produce_codec.VERSION  # the highest of ours that the broker offers, once prepared
        self.seconds = 0.0  # that the last answer took from its first byte to its last
        self._reason: WireError | None = None
        self._held: list[tuple[_PendingRequest, bytes]] | None = None  # requests kept back during a new login
        self._secret: SecretStr | None = None  # with which it logged in
        self._session_ends = 0.0  # when the broker closes the connection without a new login
        self._renewal: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Task[None] | None = None

    # --- the caller's side

    @property
    def certificate_ends(self) -> float | None:
        """When the broker's certificate expires, as Unix time; None without TLS, or once the connection is closed."""
        shown = self._transport.get_extra_info("peercert") if self._transport is not None else None
        return ssl.cert_time_to_seconds(str(shown["notAfter"])) if shown else None

    @property
    def closed(self) -> bool:
        """Whether the connection can no longer send."""
        return self._transport is None

    def send(
        self, api_key: int, version: int, body: Sequence[Buffer], *, seconds: float | None = None, flexible: bool = True
    ) -> asyncio.Future[bytearray]:
        """Send one request now; return a future of the answer's frame, whose body begins at ``body_at``.

        The buffers must not change until the answer has arrived. The future fails with ``ConnectionLost`` or
        ``RequestTimeout``. A timeout of one request closes the connection, and all its other requests fail too.
        """
        return self._send(api_key, version, body, seconds, flexible, held=True)

    async def call(self, question: Question[T], *, seconds: float | None = None) -> T:
        """Send a request and return its decoded answer."""
        return await self._call(question, seconds, held=True)

    async def ask(self, question: Question[Any]) -> bytearray:
        """Send a request and return the answer's frame undecoded; its body begins at ``body_at``."""
        return await self._ask(question, None, held=True)

    @contextlib.contextmanager
    def decoding(self) -> Iterator[None]:
        """Close the connection if an answer is cut short or is no such answer.

        Raises:
            ConnectionLost: instead of what the decoder raises.
        """
        try:
            yield
        except (struct.error, LookupError, ValueError) as error:
            lost = self._garbage("an answer that cannot be decoded")
            self._fail(lost)
            raise lost from error

    def throttle(self, milliseconds: int) -> None:
        """Note the ``throttle_time_ms`` of an answer: requests time out only after that time.

        A broker answers a user above its quota at once, and then mutes the connection: it reads no further request for
        that time (KIP-219). Requests may still be sent. They wait in the socket's buffers.
        """
        if milliseconds <= 0:
            return
        now = self._loop.time()
        if now - self._muted_until > _THROTTLED_AGAIN:
            log.info(
                "%s: user %s is above its quota: the broker reads no requests of this connection for %g s",
                self.address,
                self._endpoint.user or "ANONYMOUS",
                milliseconds / 1000,
            )
        self._muted_until = max(self._muted_until, now + milliseconds / 1000)

    def close(self) -> None:
        """Close; waiting requests fail with ``ConnectionLost``."""
        self._fail(ConnectionLost(f"the connection to {self.address} was closed here", address=self.address))

    async def wait_closed(self) -> None:
        """Wait until the socket is closed."""
        await asyncio.shield(self._closed)

    # --- sending

    async def _call(self, question: Question[T], seconds: float | None, *, held: bool) -> T:
        frame = await self._ask(question, seconds, held=held)
        with self.decoding():
            return question.decode(memoryview(frame)[body_at(frame, question.flexible) :])

    def _ask(self, asked: Question[Any], seconds: float | None, *, held: bool) -> asyncio.Future[bytearray]:
        return self._send(asked.api_key, asked.version, [asked.body], seconds, asked.flexible, held=held)

    def _send(
        self, api_key: int, version: int, body: Sequence[Buffer], seconds: float | None, flexible: bool, *, held: bool
    ) -> asyncio.Future[bytearray]:
        future: asyncio.Future[bytearray] = self._loop.create_future()
        transport = self._transport
        if transport is None:
            future.set_exception(self._why_lost())
            return future
        self._correlation = correlation = (self._correlation + 1) & 0x7FFFFFFF
        client = self._client
        head = _HEADER.pack(api_key, version, correlation, len(client)) + client
        if flexible:
            head += b"\0"
        size = len(head) + sum(map(len, body))
        patience = seconds or self._timeout
        waiting = _PendingRequest(correlation, api_key, future)
        waiting.timer = self._loop.call_later(patience, self._too_late, waiting, patience)
        buffers = [_I32.pack(size) + head, *body]
        if held and self._held is not None:
            self._held.append((waiting, b"".join(buffers)))
            return future
        self._waiting.append(waiting)
        if size < _JOIN_BELOW:
            transport.write(b"".join(buffers))
        else:
            transport.writelines(cast("list[bytes]", buffers))
        return future

    def _too_late(self, waiting: _PendingRequest, seconds: float) -> None:
        now = self._loop.time()
        if now - waiting.timer.when() > HELD_UP:  # this process was busy, or the whole machine was suspended
            waiting.timer = self._loop.call_later(seconds, self._too_late, waiting, seconds)
            return
        quiet = now - max(self._heard, self._muted_until)
        if quiet < seconds:  # an answer is arriving over a slow link, or the connection is or was muted: wait for it
            waiting.timer = self._loop.call_later(seconds - quiet, self._too_late, waiting, seconds)
            return
        self._fail(
            RequestTimeout(
                f"{self.address} did not answer a {versions.name_of(waiting.api_key)} request within {seconds:g} s",
                hint="the outcome is unknown; look at the broker's load and log",
                address=self.address,
            )
        )

    # --- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_WRITE_HIGH_WATER)

    def get_buffer(self, sizehint: int) -> memoryview:
        target = self._prefix if self._frame is None else self._frame
        return memoryview(target)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        self._heard = self._loop.time()
        if self._frame is None:
            if self._filled == 4:
                (size,) = _I32.unpack(self._prefix)
                if not 4 <= size <= MAX_FRAME:
                    self._fail(self._garbage(f"a frame of {size} bytes"))
                    return
                self._frame = bytearray(size)
                self._began = self._heard
                self._filled = 0
        elif self._filled == len(self._frame):
            frame, self._frame, self._filled = self._frame, None, 0
            self.seconds = self._heard - self._began
            self._answered(frame)

    def _answered(self, frame: bytearray) -> None:
        (correlation,) = _I32.unpack_from(frame)
        if not self._waiting or self._waiting[0].correlation != correlation:
            self._fail(self._garbage("an answer to no request"))
            return
        waiting = self._waiting.popleft()
        waiting.timer.cancel()
        if not waiting.future.done():
            waiting.future.set_result(frame)
        if waiting.api_key not in versions.WITHOUT_THROTTLE_TIME and len(frame) > 8:
            with contextlib.suppress(ConnectionLost), self.decoding():
                self.throttle(*_I32.unpack_from(frame, body_at(frame)))

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        why = f": {exc}" if exc else ""
        lost = ConnectionLost(f"{self.address} closed the connection{why}", address=self.address)
        self._fail(certificate_refused(self._endpoint, self.address, exc) or lost)
        if not self._closed.done():
            self._closed.set_result(None)

    def _garbage(self, what: str) -> ConnectionLost:
        return ConnectionLost(
            f"{self.address} sent {what}, so it is no Kafka broker or the stream is damaged",
            hint="check host and port; a TLS listener needs `tls: true`",
            address=self.address,
        )

    def _why_lost(self) -> WireError:
        first = self._reason
        if first is None:
            return ConnectionLost(f"there is no connection to {self.address}", address=self.address)
        return type(first)(first.what, hint=first.hint, **first.fields)

    def _fail(self, reason: WireError) -> None:
        """Fail all waiting requests with ``reason`` and close; only the first reason is kept."""
        transport, self._transport = self._transport, None
        if self._reason is None:
            self._reason = reason
        if self._renewal is not None:
            self._renewal.cancel()
        if self._renewing is not None and self._renewing is not asyncio.current_task():
            self._renewing.cancel()
        held, self._held = self._held or [], None
        waiting, self._waiting = self._waiting, deque()
        for entry in (*waiting, *(entry for entry, _ in held)):
            entry.timer.cancel()
            if not entry.future.done():
                entry.future.set_exception(self._why_lost())
        if transport is not None:
            transport.abort()

    # --- login

    async def prepare(self) -> None:
        """Check versions and log in. Must come first on a new connection."""
        offered = await self._call(versions.question(), None, held=False)
        if missing := versions.missing(offered):
            raise UnsupportedBroker(
                f"the broker at {self.address} does not support {', '.join(missing)}",
                hint="Fairlead needs Apache Kafka 3.3 or later",
                address=self.address,
            )
        self.produce_version = versions.produce_version(offered)
        if self._endpoint.uses_sasl:
            await self._login(self._endpoint, await read_secret(self._endpoint))

    async def _login(self, endpoint: KafkaEndpoint, secret: SecretStr) -> None:
        async def call(question: Question[T]) -> T:
            return await self._call(question, None, held=False)

        lifetime = await login(call, endpoint, secret, self.address) / 1000
        self._secret = secret
        if lifetime > 0:
            delay = max(lifetime * _REAUTHENTICATE_AT, _REAUTHENTICATE_NOT_BEFORE)
            self._session_ends = self._loop.time() + lifetime
            self._renewal = self._loop.call_later(delay, self._renew)

    def _renew(self) -> None:
        # KIP-368: a broker with connections.max.reauth.ms closes a connection that does not log in again in time. Use
        # the same connection, which keeps the order of pipelined requests.
        self._renewing = self._loop.create_task(self._log_in_again())

    async def _log_in_again(self) -> None:
        try:
            endpoint = current(self._later)
            secret = await self._patient_secret(endpoint)
            self._held = []
            await self._login(endpoint, secret)
        except AuthenticationFailed as error:
            # The password may have just changed: the next connect reads the new one, and fails if that is refused too.
            passing = ConnectionLost(error.what, hint=error.hint, **error.fields)
            self._fail(passing if callable(self._later) else error)
            return
        except WireError as error:
            self._fail(error)
            return
        held, self._held = self._held or [], None
        if held and self._transport is not None:
            self._waiting.extend(waiting for waiting, _ in held)
            self._transport.write(b"".join(frame for _, frame in held))

    async def _patient_secret(self, endpoint: KafkaEndpoint) -> SecretStr:
        """Do as ``read_secret``, again and again while no token endpoint answers and the session lasts."""
        attempt = 0
        while True:
            try:
                return await read_secret(endpoint, self._secret)
            except ConnectionLost:
                pause = backoff(attempt)
                if self.closed or self._loop.time() + pause > self._session_ends:
                    raise
            await asyncio.sleep(pause)
            attempt += 1


def body_at(frame: bytearray, flexible: bool = True) -> int:
    """Return where an answer's body begins: after correlation id and, in flexible versions, tagged fields."""
    return skip_tags(frame, 4) if flexible else 4


async def connect(
    host: str,
    port: int,
    endpoint: KafkaEndpoint,
    *,
    client_id: str,
    request_timeout: float = 30.0,
    later: Endpoint | None = None,
) -> Connection:
    """Connect to one broker, check that it supports the requests that Fairlead sends, and log in.

    Args:
        later: Gives the password when the broker asks for it again; ``endpoint``'s password by default.

    Raises:
        ConnectionLost: it cannot be reached; ``fields['address']`` says where.
        AuthenticationFailed: the login was refused, or the server's certificate is not trusted.
        UnsupportedBroker: it is too old.
    """
    address = f"{host}:{port}"
    context = tls_context(endpoint)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(request_timeout):
            _, connection = await loop.create_connection(
                lambda: Connection(address, endpoint, client_id, request_timeout, later=later or endpoint),
                *endpoint.reached_at(host, port),
                ssl=context,
                server_hostname=host if context is not None else None,
            )
    except ssl.SSLError as error:
        raise certificate_refused(endpoint, address, error) or untrusted(endpoint, host, port, error) from error
    except (OSError, TimeoutError, OverflowError, ValueError) as error:  # the last two: no such host, no such port
        what = f"no answer within {request_timeout:g} s" if isinstance(error, TimeoutError) else str(error)
        raise ConnectionLost(
            f"Kafka of site {endpoint.site!r} cannot be reached at {address}: {what}",
            hint="start the site, or check its address and the network",
            site=endpoint.site,
            address=address,
        ) from error
    try:
        await connection.prepare()
    except BaseException:
        connection.close()
        raise
    return connection
