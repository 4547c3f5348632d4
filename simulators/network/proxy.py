"""A TCP proxy for one link: delay, jitter, rate, loss, cuts and resets, all changeable while it runs.

``TcpProxy`` accepts connections for the brokers of one cluster. Its two ``ProxyDirection`` decide when bytes arrive;
they are pure and take the clock as a parameter. All connections share the two directions, so a rate limits the link and
not each connection. The proxy terminates TCP on both sides: a delay applies to requests and answers, a lost
segment delays everything behind it on its connection, and congestion control is not modelled. When the link is full,
the sender's buffers fill.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from fairlead.kafka.endpoint import Address
from fairlead.waiting import in_background

SEGMENT: Final = 1448  # bytes of data in an Ethernet frame with TCP's timestamps
LEAST_RETRANSMISSION: Final = 0.2  # seconds: Linux's TCP_RTO_MIN
_MOST_RETRANSMISSION: Final = 60.0
_CHUNK_SECONDS: Final = 0.005  # how long the link takes for one read
_CHUNK_BYTES: Final = (512, 1 << 20)
_AHEAD: Final = 0.05  # seconds of data that are read before the sender has to wait: the modem's buffer


@dataclass(slots=True)
class ProxyDirection:
    """One direction of a link: computes when sent bytes arrive. No sockets.

    Every field may be changed at any time; bytes under way keep the conditions under which they were sent. The bytes of
    one read count as a packet of as many segments as they fill. TCP repairs a loss, so a lost segment only delays
    everything behind it on the same connection.
    """

    rate: float = 0.0  # bits per second; 0 means no limit
    delay: float = 0.0  # seconds
    jitter: float = 0.0  # seconds: the most that is added to the delay, at random; order is kept
    loss: float = 0.0  # chance that a segment is lost
    bytes: int = 0  # delivered
    lost: int = 0  # segments sent again
    resets: int = 0  # connections that ``fuse`` has reset
    open: asyncio.Event = field(default_factory=asyncio.Event)
    fuse: int | None = None  # bytes that still come through; then their connection is reset
    chance: random.Random = field(default_factory=random.Random)
    _free_at: float = 0.0  # when everything sent so far has left

    def __post_init__(self) -> None:
        self.open.set()

    @property
    def read_size(self) -> int:
        """How many bytes to read at once."""
        wanted = int(self.rate / 8 * _CHUNK_SECONDS) if self.rate else 1 << 16
        return min(max(wanted, _CHUNK_BYTES[0]), _CHUNK_BYTES[1])

    @property
    def retransmission(self) -> float:
        """Seconds until a lost segment is sent again: two round trips."""
        return max(LEAST_RETRANSMISSION, 4 * self.delay)

    def busy_for(self, now: float) -> float:
        """Return the seconds until more may be sent."""
        return max(0.0, self._free_at - now - _AHEAD)

    def send(self, size: int, now: float) -> float:
        """Send ``size`` bytes at time ``now``; return when they arrive.

        The caller delivers the bytes of each connection in the order of sending.
        """
        seconds = size * 8 / self.rate if self.rate else 0.0
        self._free_at = max(self._free_at, now) + seconds
        return self._free_at + self.delay + self._extra_delay(size)

    def _extra_delay(self, size: int) -> float:
        late = self.jitter * self.chance.random() if self.jitter else 0.0
        if self.loss and size:
            segments = -(-size // SEGMENT)
            again, wait = 1 - (1 - self.loss) ** segments, self.retransmission
            while self.chance.random() < again:  # if a repeat is lost as well, TCP waits twice as long
                late += wait
                again, wait = self.loss, min(2 * wait, _MOST_RETRANSMISSION)
                self.lost += 1
        return late


HOST: Final = "127.0.0.1"
_QUEUED: Final = 256  # reads under way in one direction of one connection
_SLOW: Final = 10e6  # bits per second; below it, use small socket buffers, which else hide how slow the link is


class TcpProxy:
    """A link between a client and some servers, each behind a port of this machine, while it is entered.

    ``up`` is the direction to the servers, ``down`` the one to the client.

    Args:
        rtt: Seconds that a request and its answer take together.
        rate: Bits per second in each direction; 0 means no limit.
        at: Where to listen for each address; by default a free port of loopback.
        up, down: Directions shared with other proxies.
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
        self.addresses: dict[Address, Address] = {}  # of a server -> where this listens for it
        self._cut = False
        self._listeners: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._open: set[_Pair] = set()

    @property
    def address_overrides(self) -> tuple[tuple[Address, Address], ...]:
        """``addresses`` in the form of ``KafkaEndpoint.address_overrides``."""
        return tuple(self.addresses.items())

    def shape(
        self,
        *,
        rtt: float | None = None,
        rate: float | None = None,
        jitter: float | None = None,
        loss: float | None = None,
    ) -> None:
        """Change both directions; None keeps a value. Times are seconds, ``rate`` bits per second, ``loss`` a share."""
        for way in (self.up, self.down):
            way.delay = way.delay if rtt is None else rtt / 2
            way.rate = way.rate if rate is None else rate
            way.jitter = way.jitter if jitter is None else jitter
            way.loss = way.loss if loss is None else loss

    def cut(self) -> None:
        """Reset every open connection, and every new one until ``mend``."""
        self._cut = True
        self.reset()

    def mend(self) -> None:
        """End ``cut`` and ``freeze``."""
        self._cut = False
        self.up.open.set()
        self.down.open.set()

    def reset(self) -> None:
        """Reset every connection that is open; new ones are accepted."""
        for pair in list(self._open):
            pair.break_off()

    def freeze(self, *ways: ProxyDirection) -> None:
        """Hold back everything in these directions (default: both) until ``mend``, also the end of a connection.
        Connections stay open, and new ones are accepted."""
        for way in ways or (self.up, self.down):
            way.open.clear()

    async def __aenter__(self) -> Self:
        for address in self._servers:
            listener = socket.create_server(self._at.get(address, (HOST, 0)), backlog=128)
            listener.setblocking(False)
            self._set_buffer(listener)
            self._listeners.append(listener)
            self.addresses[address] = listener.getsockname()[:2]
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
        if 0 < self.up.rate < _SLOW:
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
        """Run until one side has closed, one pump has failed, or ``break_off``."""
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
            if not self.graceful:  # RST instead of FIN
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()


async def _pump(source: socket.socket, sink: socket.socket, way: ProxyDirection) -> None:
    """Carry one direction of one connection until its source closes.

    Raises:
        OSError: a side or the fuse reset the connection.
    """
    queue: asyncio.Queue[tuple[float, bytes | None]] = asyncio.Queue(_QUEUED)  # when due, and the bytes; None: a reset
    loop = asyncio.get_running_loop()

    async def read() -> None:
        while True:
            await way.open.wait()
            while busy := way.busy_for(loop.time()):  # noqa: ASYNC110 - waits for the clock
                await asyncio.sleep(busy)
            try:
                data = await loop.sock_recv(source, way.read_size)
            except OSError:
                await queue.put((0.0, None))
                return
            await queue.put((way.send(len(data), loop.time()), data))
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
                raise ConnectionResetError("by the fuse")
            if way.fuse is not None:
                way.fuse -= len(data)
            await loop.sock_sendall(sink, data)
            way.bytes += len(data)

    async with in_background(read()):
        await deliver()
