"""``python -m simulators.network.server DETOURS SOCKET``: lines in a process of their own, led over a Unix socket.

DETOURS is a file as of ``fairlead replicate --detours``: for each target, source and broker it says where the line is
reached; this listens at those ports. Whoever connects to SOCKET writes one ``Order`` a line and reads one ``Answer``
for each. Who has given an order leads the lines until its connection ends; then they are calm again, so that nothing
stays cut because a voyage was killed. While nobody leads, everything goes through as if there were no lines.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from pathlib import Path

import msgspec
import uvloop

from fairlead.errors import ConfigurationError
from fairlead.home import private_folder
from simulators.network.exchange import ProxyRegistry
from simulators.network.orders import Answer, Order
from topologies.endpoints import AddressOverrides, read_address_overrides

_log = logging.getLogger(__name__)
_EVERYWHERE = "0.0.0.0"  # noqa: S104 - of its own container
_LONGEST = 1 << 20  # bytes of an order
_TAKEN = "somebody else leads these lines: one voyage at a time"


def exchange_of(address_overrides: AddressOverrides) -> ProxyRegistry:
    """The lines that make these detours true."""
    ways = {(target, source): pairs for target, of in address_overrides.items() for source, pairs in of.items()}
    return ProxyRegistry(
        {each: tuple(broker for broker, _ in pairs) for each, pairs in ways.items()},
        at={each: {broker: (_EVERYWHERE, port) for broker, (_, port) in pairs} for each, pairs in ways.items()},
    )


class ControlServer:
    """Takes orders for the lines, of one leader at a time."""

    def __init__(self, exchange: ProxyRegistry) -> None:
        self._exchange = exchange
        self._leader: object | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until it ends."""
        try:
            with contextlib.suppress(ConnectionError):
                while line := await reader.readline():
                    writer.write(msgspec.json.encode(self._obey(line, writer)) + b"\n")
                    await writer.drain()
        finally:
            if self._leader is writer:
                self._leader = None
                self._exchange.calm()
            writer.close()

    def _obey(self, line: bytes, who: object) -> Answer:
        try:
            order = msgspec.json.decode(line, type=Order)
            if order == Order():
                return self._exchange.answer()
            if self._leader not in (None, who):
                return Answer(refused=_TAKEN)
            answer = self._exchange.carry_out(order)
        except msgspec.MsgspecError as error:
            return Answer(refused=f"this is no order: {error}")
        except KeyError as error:
            known = ", ".join(self._exchange.answer().ways)
            return Answer(refused=f"no line links {error.args[0]}; there are: {known}")
        self._leader = who
        return answer


async def run(address_overrides: Path, at: Path, stop: asyncio.Event) -> None:
    """Serve until ``stop``.

    Raises:
        ConfigurationError: the detours cannot be used, or a port is taken.
    """
    exchange = exchange_of(read_address_overrides(address_overrides))
    try:
        async with exchange:
            server = await asyncio.start_unix_server(ControlServer(exchange).serve, at, limit=_LONGEST)
            try:
                _log.info("lines between %s; orders at %s", ", ".join(exchange.answer().ways), at)
                await stop.wait()
            finally:
                server.close()
    except OSError as error:
        raise ConfigurationError(f"the lines cannot be opened: {error}", hint="is another one running?") from error


async def _until_stopped(address_overrides: Path, at: Path) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await run(address_overrides, at, stop)


def main(address_overrides: Path, at: Path) -> None:
    """Until SIGTERM."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    private_folder(at.parent)
    at.unlink(missing_ok=True)  # of one that was killed
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_until_stopped(address_overrides, at))
    finally:
        at.unlink(missing_ok=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
