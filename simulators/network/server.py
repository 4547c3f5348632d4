"""``python -m simulators.network.server ADDRESS_OVERRIDES SOCKET``: a process of proxies, controlled over a socket.

ADDRESS_OVERRIDES is a file for ``fairlead replicate --address-overrides``: an address for each target, source and
broker. The proxies listen at those ports. A client of the Unix socket SOCKET writes one ``Order`` a line and reads one
``OrderAnswer`` for each. The first client that gives an order controls the proxies until its connection ends. Then the
weather ends as well, so that no link stays cut after a voyage was killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from pathlib import Path

import msgspec
import uvloop

from fairlead.errors import ConfigurationError
from fairlead.home import private_folder
from fairlead.waiting import stopped_by_signals
from simulators.network.registry import Order, OrderAnswer, ProxyRegistry
from topologies.endpoints import AddressOverrides, read_address_overrides

_log = logging.getLogger(__name__)
_EVERYWHERE = "0.0.0.0"  # noqa: S104 - all addresses of its own container
_LONGEST = 1 << 20  # bytes of an order
_TAKEN = "another client controls these proxies: one voyage at a time"


def registry_of(address_overrides: AddressOverrides) -> ProxyRegistry:
    """Return the proxies behind these addresses."""
    ways = {(target, source): pairs for target, of in address_overrides.items() for source, pairs in of.items()}
    return ProxyRegistry(
        {each: tuple(broker for broker, _ in pairs) for each, pairs in ways.items()},
        at={each: {broker: (_EVERYWHERE, port) for broker, (_, port) in pairs} for each, pairs in ways.items()},
    )


class ControlServer:
    """Takes orders for the proxies, from one client at a time."""

    def __init__(self, registry: ProxyRegistry) -> None:
        self._registry = registry
        self._controlling: object | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it ends."""
        try:
            with contextlib.suppress(ConnectionError):
                while line := await reader.readline():
                    writer.write(msgspec.json.encode(self._answer(line, writer)) + b"\n")
                    await writer.drain()
        finally:
            if self._controlling is writer:
                self._controlling = None
                self._registry.calm()
            writer.close()

    def _answer(self, line: bytes, client: object) -> OrderAnswer:
        try:
            order = msgspec.json.decode(line, type=Order)
            if order == Order():
                return self._registry.status()
            if self._controlling not in (None, client):
                return OrderAnswer(refused=_TAKEN)
            answer = self._registry.carry_out(order)
        except msgspec.MsgspecError as error:
            return OrderAnswer(refused=f"not an order: {error}")
        except KeyError as error:
            known = ", ".join(self._registry.status().ways)
            return OrderAnswer(refused=f"no link connects {error.args[0]}; there are: {known}")
        self._controlling = client
        return answer


async def run(address_overrides: Path, at: Path, stop: asyncio.Event) -> None:
    """Serve until ``stop`` is set.

    Raises:
        ConfigurationError: the address overrides cannot be used, or a port is taken.
    """
    registry = registry_of(read_address_overrides(address_overrides))
    try:
        async with registry:
            server = await asyncio.start_unix_server(ControlServer(registry).serve, at, limit=_LONGEST)
            try:
                _log.info("proxies between %s; orders at %s", ", ".join(registry.status().ways), at)
                await stop.wait()
            finally:
                server.close()
    except OSError as error:
        raise ConfigurationError(f"the proxies cannot be opened: {error}", hint="is another one running?") from error


async def _until_stopped(address_overrides: Path, at: Path) -> None:
    await run(address_overrides, at, stopped_by_signals())


def main(address_overrides: Path, at: Path) -> None:
    """Serve until SIGTERM or SIGINT."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    private_folder(at.parent)
    at.unlink(missing_ok=True)  # a killed server left its socket
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_until_stopped(address_overrides, at))
    finally:
        at.unlink(missing_ok=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
