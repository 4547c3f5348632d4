"""Serve Prometheus metrics of an event loop's services over HTTP.

On loopback by default, because names of logs are business facts.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, Protocol

from fairlead.errors import UnavailableError

if TYPE_CHECKING:  # imports an HTTP server, which few services need
    from wsgiref.simple_server import WSGIServer

    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector

ADDRESS: Final = "127.0.0.1"
PATIENCE: Final = 10.0  # seconds to wait for the event loop; after that a scrape fails

Snapshot = Mapping[str, Any]
Metrics = Callable[[Sequence[Snapshot]], "Iterable[Metric]"]


class Watched(Protocol):
    """A service with metrics."""

    def snapshot(self) -> dict[str, Any]: ...


class MetricsServer:
    """A running HTTP server. ``port`` is the actual one, also when 0 was requested."""

    def __init__(self, server: WSGIServer, thread: threading.Thread) -> None:
        self._server = server
        self._thread = thread
        self.port = int(server.server_port)

    def close(self) -> None:
        """Stop serving; returns when the port is free."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def serve(
    metrics: Metrics,
    watched: Sequence[Watched],
    port: int,
    address: str = ADDRESS,
    further: Sequence[Collector] = (),
) -> MetricsServer:
    """Serve ``/metrics`` in a thread until closed.

    Call it in the services' event loop: their snapshots are taken there, between two steps of the loop.

    Args:
        metrics: Returns the metrics of a scrape's snapshots, one for each service.
        port: 0 for any free one.
        address: The address to listen on. There is no login: other addresses than loopback are open to the network.
        further: Collectors that make requests of their own; they run in a thread of the scrape.

    Raises:
        UnavailableError: the address or port cannot be used.
    """
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.registry import Collector

    try:
        loop: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
    except RuntimeError:
        loop = None

    class Snapshots(Collector):
        def collect(self) -> Iterable[Metric]:
            return metrics(_snapshots(watched, loop))

    registry = CollectorRegistry()  # of its own, with only these metrics; it does not collect when one is registered
    for collector in (Snapshots(), *further):
        registry.register(collector)
    try:
        server, thread = start_http_server(port, address, registry=registry)
    except OSError as error:
        raise UnavailableError(
            f"metrics cannot be served at {address}:{port}: {error.strerror}",
            hint="choose another port; 0 takes any free one",
            address=address,
            port=port,
        ) from error
    return MetricsServer(server, thread)


def families(
    kind: type[CounterMetricFamily] | type[GaugeMetricFamily],
    prefix: str,
    rows: Iterable[tuple[str, str, str]],
    label: str,
    taken: Sequence[Snapshot],
) -> Iterator[Metric]:
    """Yield a family for each row: its name after ``prefix``, the key of its value in a snapshot, its help.

    ``label`` is the label's name, and the key of its value.
    """
    for name, key, what in rows:
        family = kind(f"{prefix}_{name}", what, labels=[label])
        for each in taken:
            family.add_metric([str(each[label])], float(each[key]))
        yield family


@contextlib.asynccontextmanager
async def serving(server: MetricsServer | None) -> AsyncIterator[None]:
    """Close a server at the end, in a thread, because a scrape under way may still need this loop for its snapshots."""
    try:
        yield
    finally:
        if server is not None:
            await asyncio.to_thread(server.close)


def _snapshots(watched: Sequence[Watched], loop: asyncio.AbstractEventLoop | None) -> list[Snapshot]:
    if loop is None:
        return [each.snapshot() for each in watched]
    taken: Future[list[Snapshot]] = Future()

    def take() -> None:
        try:
            taken.set_result([each.snapshot() for each in watched])
        except Exception as error:
            taken.set_exception(error)

    loop.call_soon_threadsafe(take)
    return taken.result(PATIENCE)
