"""``python -m simulators.links.server DETOURS SOCKET``: lines in a process of their own, led over a Unix socket.

DETOURS is a file as of ``fairlead replicate --detours``: for each target, source and broker it says where the line is
reached; this listens at those ports. Whoever connects to SOCKET writes one ``Order`` a line and reads one ``Answer``
for each. Who has given an order leads the lines until its connection ends; then they are calm again, so that nothing
stays cut because a voyage was killed. While nobody leads, everything goes through as if there were no lines.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from pathlib import Path

import msgspec
import uvloop

from fairlead.console import errors
from fairlead.errors import ConfigurationError
from simulators.links.exchange import Exchange
from simulators.links.orders import Answer, Order
from topologies.detours import Detours, read_detours

_EVERYWHERE = "0.0.0.0"  # noqa: S104 - of its own container
_LONGEST = 1 << 20  # bytes of an order
_TAKEN = "somebody else leads these lines: one voyage at a time"


def exchange_of(detours: Detours, host: str = _EVERYWHERE) -> Exchange:
    """The lines that make these detours true."""
    ways = {(target, source): pairs for target, of in detours.items() for source, pairs in of.items()}
    return Exchange(
        {each: tuple(broker for broker, _ in pairs) for each, pairs in ways.items()},
        at={each: {broker: (host, port) for broker, (_, port) in pairs} for each, pairs in ways.items()},
    )


class Desk:
    """Takes orders for the lines, of one leader at a time."""

    def __init__(self, exchange: Exchange) -> None:
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


async def run(detours: Path, at: Path, stop: asyncio.Event) -> None:
    """Serve until ``stop``.

    Raises:
        ConfigurationError: the detours cannot be used, or a port is taken.
    """
    exchange = exchange_of(read_detours(detours))
    try:
        async with exchange:
            server = await asyncio.start_unix_server(Desk(exchange).serve, at, limit=_LONGEST)
            try:
                errors.print(f"lines between {', '.join(exchange.answer().ways)}; orders at {at}")
                await stop.wait()
            finally:
                server.close()
    except OSError as error:
        raise ConfigurationError(f"the lines cannot be opened: {error}", hint="is another one running?") from error


async def _until_stopped(detours: Path, at: Path) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await run(detours, at, stop)


def main(detours: Path, at: Path) -> None:
    """Until SIGTERM."""
    at.parent.mkdir(parents=True, exist_ok=True)
    at.unlink(missing_ok=True)  # of one that was killed
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_until_stopped(detours, at))
    finally:
        at.unlink(missing_ok=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
