"""Replicators as Prometheus metrics: what ``Replicator.snapshot`` says, under Prometheus' naming rules.

Served over HTTP on this machine only unless told otherwise: names of logs are business facts. Only logs in trouble have
series of their own, so that ten thousand healthy ones cost nothing.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, Protocol
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fairlead.errors import UnavailableError
from replication.states import LinkState, LogState

ADDRESS: Final = "127.0.0.1"
PATIENCE: Final = 10.0  # seconds for the replicators' event loop; a scrape fails after that

Snapshot = Mapping[str, Any]


class Watched(Protocol):
    """What is asked of a replicator."""

    def snapshot(self) -> dict[str, Any]: ...


class ReplicationCollector(Collector):
    """Makes metrics of the snapshots at each scrape."""

    def __init__(self, snapshots: Callable[[], Iterable[Snapshot]]) -> None:
        self._snapshots = snapshots

    def collect(self) -> Iterator[Metric]:
        """All metrics of all replicators, as they are now."""
        taken = list(self._snapshots())
        yield from _targets(taken)
        yield from _links(taken)
        yield from _logs(taken)

    def describe(self) -> Iterable[Metric]:
        """Nothing is collected just to be registered."""
        return ()


class MetricsServer:
    """A running HTTP server. ``port`` is the real one when 0 was asked for."""

    def __init__(self, server: WSGIServer, thread: threading.Thread) -> None:
        self._server = server
        self._thread = thread
        self.port = int(server.server_port)

    def close(self) -> None:
        """Stop serving; returns when the port is free."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def registry_of(snapshots: Callable[[], Iterable[Snapshot]]) -> CollectorRegistry:
    """A registry of its own, with nothing but these metrics."""
    registry = CollectorRegistry()
    registry.register(ReplicationCollector(snapshots))
    return registry


def start_metrics(replicators: Sequence[Watched], port: int, address: str = ADDRESS) -> MetricsServer:
    """Serve ``/metrics`` in a thread until closed.

    Called in the event loop that the replicators run in, their snapshots are taken there, between two of its steps.

    Args:
        port: 0 for any free one.
        address: Where to listen; nothing protects it, so anything but loopback is seen by the network.

    Raises:
        UnavailableError: the address or port cannot be had.
    """
    try:
        loop: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
    except RuntimeError:
        loop = None
    registry = registry_of(lambda: _snapshots(replicators, loop))
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


def _snapshots(replicators: Sequence[Watched], loop: asyncio.AbstractEventLoop | None) -> list[Snapshot]:
    if loop is None:
        return [each.snapshot() for each in replicators]
    taken: Future[list[Snapshot]] = Future()

    def take() -> None:
        try:
            taken.set_result([each.snapshot() for each in replicators])
        except Exception as error:
            taken.set_exception(error)

    loop.call_soon_threadsafe(take)
    return taken.result(PATIENCE)


def _targets(taken: Sequence[Snapshot]) -> Iterator[Metric]:
    up = GaugeMetricFamily("fairlead_target_up", "1 while the target's Kafka answers.", labels=["site"])
    queued = GaugeMetricFamily(
        "fairlead_memory_queued_bytes", "Fetched batches that wait for the target.", labels=["site"]
    )
    limit = GaugeMetricFamily("fairlead_memory_limit_bytes", "How much may wait.", labels=["site"])
    started = GaugeMetricFamily(
        "fairlead_replicator_start_time_seconds", "When the replicator was started, Unix time.", labels=["site"]
    )
    for each in taken:
        site = [str(each["site"])]
        up.add_metric(site, float(each["target"]["state"] == "up"))
        started.add_metric(site, _seconds(each["started"]))
        memory = each.get("memory")
        if memory:
            queued.add_metric(site, memory["queued"])
            limit.add_metric(site, memory["limit"])
    yield from (up, queued, limit, started)


_COUNTED: Final = (
    ("records", "Records appended to the target, markers and fillers included."),
    ("batches", "Record batches appended to the target."),
    ("bytes", "Bytes of batches appended to the target."),
    ("fetched_bytes", "Bytes of batches that came over the link, with what was there already."),
)


def _links(taken: Sequence[Snapshot]) -> Iterator[Metric]:
    links = [link for each in taken for link in each["links"]]
    for name, what in _COUNTED:
        family = CounterMetricFamily(f"fairlead_link_{name}", what, labels=["link"])
        for link in links:
            family.add_metric([str(link["name"])], link[name])
        yield family
    lag = GaugeMetricFamily(
        "fairlead_link_lag_records", "Records still to come; absent while the link is not up.", labels=["link"]
    )
    state = GaugeMetricFamily("fairlead_link_state", "1 for the state that the link is in.", labels=["link", "state"])
    followed = GaugeMetricFamily("fairlead_link_followed_logs", "Logs that are fetched here.", labels=["link"])
    for link in links:
        name = str(link["name"])
        if link["lag"] is not None:
            lag.add_metric([name], link["lag"])
        followed.add_metric([name], link["followed"])
        for known in LinkState:
            state.add_metric([name, str(known)], float(link["state"] == known))
    yield from (lag, state, followed)


def _logs(taken: Sequence[Snapshot]) -> Iterator[Metric]:
    counts = GaugeMetricFamily(
        "fairlead_logs", "Logs by state, those that are mirrored left out.", labels=["site", "state"]
    )
    since = GaugeMetricFamily(
        "fairlead_log_state_since_seconds",
        "When a log that is not mirrored got into its state, Unix time.",
        labels=["site", "log", "state"],
    )
    for each in taken:
        site = str(each["site"])
        found = Counter(str(trouble["state"]) for trouble in each["logs"].values())
        for known in LogState:
            if known is not LogState.MIRRORING:
                counts.add_metric([site, str(known)], found[known])
        for log, trouble in each["logs"].items():
            since.add_metric([site, log, str(trouble["state"])], _seconds(trouble["since"]))
    yield from (counts, since)


def _seconds(moment: str) -> float:
    return dt.datetime.fromisoformat(moment).timestamp()
