"""A line: a TCP proxy between one client and one cluster, of which everything can be changed while it runs.

All connections over a line share it, as they share a link at sea: the rate is of the line, not of each connection. They
end at the proxy and begin anew behind it. So a delay is one of requests and answers, as Kafka's protocol meets it; a
loss is a pause (``way``); what TCP does with its windows, and how it slows down after a loss, is not modelled. What the
line cannot take yet stays with the sender, whose own buffers fill.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

from fairlead.kafka.endpoint import Address
from simulators.network.way import ProxyDirection

HOST: Final = "127.0.0.1"
_QUEUED: Final = 256  # pieces under way in one direction of one connection
_THIN: Final = 10e6  # bits per second below which the kernel must not hide the thinness in its buffers


class TcpProxy:
    """A network line between a client and some addresses, each behind a port of this machine.

    Everything may be changed while it runs. ``up`` is the direction to the servers, ``down`` the one to the client.

    Args:
        rtt: Seconds that a request and its answer are delayed together.
        rate: Bits per second in each direction; 0 means no limit.
        at: Where to listen for each address; a free port of loopback where nothing is said.
        up, down: Given where several lines share a direction; they are then left as they are.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        *,
        rtt: float | None = None,
        rate: float | None = None,
        at: Mapping[Address, Address] | None = None,
        up: ProxyDirection | None = None,
        down: ProxyDirection | None = None,
    ) -> None:
        self._servers = tuple(dict.fromkeys(addresses))
        self._at = dict(at or {})
        self.up, self.down = up or ProxyDirection(), down or ProxyDirection()
        self.shape(rtt=rtt, rate=rate)
        self.connections = 0  # accepted so far
        self.ways: dict[Address, Address] = {}  # real address -> address of its proxy; complete once entered
        self._cut = False
        self._listeners: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._open: set[_Pair] = set()

    @property
    def address_overrides(self) -> tuple[tuple[Address, Address], ...]:
        """``ways`` for ``KafkaEndpoint.address_overrides``."""
        return tuple(self.ways.items())

    # --- what can go wrong

    def shape(
        self,
        *,
        rtt: float | None = None,
        rate: float | None = None,
        jitter: float | None = None,
        loss: float | None = None,
    ) -> None:
        """Change both directions (jitter in seconds, loss a share of segments); what is under way keeps the old ones,
        and None is no change."""
        for way in (self.up, self.down):
            way.delay = way.delay if rtt is None else rtt / 2
            way.rate = way.rate if rate is None else rate
            way.jitter = way.jitter if jitter is None else jitter
            way.loss = way.loss if loss is None else loss

    def cut(self) -> None:
        """Reset every connection, and every new one at once, until ``mend``."""
        self._cut = True
        self.reset()

    def mend(self) -> None:
        """End what ``cut`` and ``freeze`` began."""
        self._cut = False
        self.up.open.set()
        self.down.open.set()

    def reset(self) -> None:
        """Reset every connection there is now; new ones are welcome."""
        for pair in list(self._open):
            pair.break_off()

    def reset_after(self, size: int, way: ProxyDirection) -> None:
        """Let ``size`` more bytes through in this direction, then reset the connection in the middle of them.

        ``way.resets`` tells when it has happened.
        """
        way.fuse = size

    def freeze(self, *ways: ProxyDirection) -> None:
        """Half-open: connections stay, new ones are accepted, and nothing comes through in these directions (both by
        default) until ``mend``, not even that a side has closed."""
        for way in ways or (self.up, self.down):
            way.open.clear()

    @property
    def alive(self) -> int:
        """Connections that are open now."""
        return len(self._open)

    # --- running

    async def __aenter__(self) -> Self:
        for address in self._servers:
            listener = socket.create_server(self._at.get(address, (HOST, 0)), backlog=128)
            listener.setblocking(False)
            self._set_buffer(listener)
            self._listeners.append(listener)
            self.ways[address] = listener.getsockname()[:2]
            self._spawn(self._accept(listener, address))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for listener in self._listeners:
            listener.close()

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _set_buffer(self, sock: socket.socket) -> None:
        if 0 < self.up.rate < _THIN:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 10)

    async def _accept(self, listener: socket.socket, server: Address) -> None:
        loop = asyncio.get_running_loop()
        while True:
            client, _ = await loop.sock_accept(listener)
            client.setblocking(False)
            self.connections += 1
            self._spawn(self._serve(client, server))

    async def _serve(self, client: socket.socket, server: Address) -> None:
        far = socket.socket()
        far.setblocking(False)
        self._set_buffer(far)
        pair = _Pair(client, far)
        try:
            if self._cut:
                pair.graceful = False
                return
            self._open.add(pair)
            for sock in (client, far):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().sock_connect(far, server)
            await pair.run(_pump(client, far, self.up), _pump(far, client, self.down))
        except OSError:
            pair.graceful = False
        finally:
            self._open.discard(pair)
            pair.close()


class _Pair:
    """The two sockets of one connection."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self._sockets = (client, server)
        self._tasks: list[asyncio.Future[None]] = []
        self._broken = asyncio.Event()
        self.graceful = True

    async def run(self, *pumps: Any) -> None:
        """Until one side has closed, one pump failed, or ``break_off``."""
        self._tasks = [asyncio.ensure_future(each) for each in (*pumps, self._broken.wait())]
        try:
            done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def break_off(self) -> None:
        self.graceful = False
        self._broken.set()

    def close(self) -> None:
        for sock in self._sockets:
            if not self.graceful:  # a reset instead of a farewell
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()


async def _pump(source: socket.socket, sink: socket.socket, way: ProxyDirection) -> None:
    """Carry one direction of one connection until its source closes.

    Raises:
        OSError: a side reset the connection, or the fuse did.
    """
    queue: asyncio.Queue[tuple[float, bytes | None]] = asyncio.Queue(_QUEUED)  # when due, and what; None: a reset
    loop = asyncio.get_running_loop()

    async def take() -> None:
        while True:
            await way.open.wait()
            while busy := way.busy_for(loop.time()):  # noqa: ASYNC110 - what is awaited is the clock
                await asyncio.sleep(busy)
            try:
                data = await loop.sock_recv(source, way.piece)
            except OSError:
                await queue.put((0.0, None))
                return
            await queue.put((way.take(len(data), loop.time()), data))
            if not data:
                return

    async def deliver() -> None:
        while True:
            due, data = await queue.get()
            if (late := due - loop.time()) > 0:
                await asyncio.sleep(late)
            await way.open.wait()
            if data is None:
                raise ConnectionResetError("by its source")
            if not data:
                return
            if way.fuse is not None and len(data) >= way.fuse:
                data, way.fuse = data[: way.fuse], None
                way.resets += 1
                await loop.sock_sendall(sink, data)
                raise ConnectionResetError("as asked for")
            if way.fuse is not None:
                way.fuse -= len(data)
            await loop.sock_sendall(sink, data)
            way.bytes += len(data)

    taking = asyncio.ensure_future(take())
    try:
        await deliver()
    finally:
        taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)
