"""Read AIS sentences from an NMEA server over TCP, or from UDP datagrams, until cancelled."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable
from typing import Literal, NamedTuple

from edge.ais.decoder import AisDecoder
from edge.messages import ROOT
from edge.mqtt.session import Delivery
from fairlead.errors import OptionError
from fairlead.records import encode

log = logging.getLogger(__name__)

_SOURCE = re.compile(r"(tcp|udp)://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]*):([0-9]{1,5})")
_CONNECT_TIMEOUT = 5.0
_SILENT = 300.0  # seconds; a transponder at anchor reports every 3 minutes
_FIRST_DELAY, _LONGEST_DELAY = 0.5, 30.0
_LONGEST_LINE = 4096


class AisSource(NamedTuple):
    """An NMEA server to connect to (``tcp``), or an address of this machine to listen on (``udp``)."""

    scheme: Literal["tcp", "udp"]
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"


def parse_source(text: str) -> AisSource:
    """Parse ``tcp://host:port`` or ``udp://[host]:port``.

    Raises:
        ConfigurationError: the text has neither form.
    """
    match = _SOURCE.fullmatch(text)
    if match is None or not 1 <= int(match[3]) <= 65535 or (match[1] == "tcp" and not match[2]):
        raise OptionError(
            f"{text!r} is not a source of AIS sentences",
            hint="tcp://HOST:PORT for an NMEA server, udp://:PORT to listen for datagrams (the usual port is 10110)",
        )
    return AisSource("tcp" if match[1] == "tcp" else "udp", match[2].strip("[]"), int(match[3]))


def ship_feed(source: AisSource, imo: str, take: Callable[[Delivery], None]) -> AisFeed:
    """Return a feed that hands positions to the bridge's router, as if the ship's devices had published them.

    Args:
        take: The bridge's router.
    """
    topic = f"{ROOT}/ships/{imo}/position"

    def taken(payload: bytes) -> None:
        take(Delivery(topic, payload, False, None))

    return AisFeed(source, imo, taken)


class AisFeed:
    """Reads one source for one ship.

    Args:
        take: Called with each position as JSON.
    """

    def __init__(self, source: AisSource, imo: str, take: Callable[[bytes], None]) -> None:
        self._source = source
        self._on_message = take
        self._decoder = AisDecoder(imo, boot=int(time.time()))
        self.connected = asyncio.Event()

    @property
    def counts(self) -> dict[str, int]:
        """Sentences by result (see ``AisDecoder``)."""
        return self._decoder.counts

    async def run(self) -> None:
        """Read until cancelled. Reconnect if the connection fails or a TCP source is silent for ``_SILENT`` seconds."""
        delay = _FIRST_DELAY
        while True:
            try:
                await (self._tcp() if self._source.scheme == "tcp" else self._udp())
                reason = "the connection was closed"
            except (OSError, TimeoutError) as error:
                reason = str(error) or f"no data for {_SILENT:.0f} s"
            if self.connected.is_set():
                delay = _FIRST_DELAY
            self.connected.clear()
            log.warning("AIS from %s: %s; trying again in %.1f s", self._source, reason, delay)
            await asyncio.sleep(delay)
            delay = min(2 * delay, _LONGEST_DELAY)

    async def _tcp(self) -> None:
        async with asyncio.timeout(_CONNECT_TIMEOUT):
            reader, writer = await asyncio.open_connection(self._source.host, self._source.port, limit=_LONGEST_LINE)
        try:
            self.connected.set()
            while line := await self._line(reader):
                self.line_came(line)
        finally:
            writer.close()

    async def _line(self, reader: asyncio.StreamReader) -> bytes:
        async with asyncio.timeout(_SILENT):
            try:
                return await reader.readuntil(b"\n")
            except asyncio.IncompleteReadError as error:
                return error.partial
            except asyncio.LimitOverrunError as error:
                await reader.readexactly(error.consumed)  # no sentence is so long: skip it
                return b"\n"

    async def _udp(self) -> None:
        loop = asyncio.get_running_loop()
        lost: asyncio.Future[None] = loop.create_future()
        transport, _ = await loop.create_datagram_endpoint(
            lambda: _Datagrams(self.line_came, lost),
            local_addr=(self._source.host or "0.0.0.0", self._source.port),  # noqa: S104 - receivers broadcast
        )
        try:
            self.connected.set()
            await lost
        finally:
            transport.close()

    def line_came(self, line: bytes) -> None:
        """Decode one sentence, and pass on the position if it has one."""
        position = self._decoder.decode_line(line, time.time_ns() // 1_000_000)
        if position is not None:
            self._on_message(encode(position))


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, take: Callable[[bytes], None], lost: asyncio.Future[None]) -> None:
        self._on_message = take
        self._lost = lost

    def datagram_received(self, data: bytes, addr: tuple[str | int, ...]) -> None:
        for line in data.splitlines():  # IEC 61162-450: several sentences in one datagram
            self._on_message(line)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._lost.done():
            self._lost.set_result(None)
