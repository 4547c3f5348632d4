"""Simulate a full disk, and a bad network: make Fairlead's clients in this process connect through a ``TcpProxy``.

Kafka tells clients the addresses of its brokers, so a proxy's port as bootstrap address is not enough:
``through_proxy`` makes Fairlead's own client (``fairlead.kafka``) connect to the proxies instead. Clients based on
librdkafka connect directly, which suits the tests: writers and audits must not depend on the link.
"""

from __future__ import annotations

import contextlib
import resource
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any, Final
from unittest import mock

import psutil

from fairlead.kafka.client import pool
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.connection import Connection
from fairlead.kafka.endpoint import Address, KafkaEndpoint
from fairlead.local.sites import LocalSites
from simulators.network.proxy import TcpProxy

_MARGIN: Final = 500_000  # bytes by which slowly growing files may still grow, above all the broker's metadata


@contextlib.contextmanager
def address_overrides(addresses: Mapping[Address, Address], *, client: str = "") -> Iterator[None]:
    """Redirect connections of ``fairlead.kafka`` to the addresses given, while the context is open.

    Args:
        addresses: See ``TcpProxy.addresses``.
        client: Redirect only clients whose id begins with this. A replicator uses ``fairlead-replicator.<target>`` for
            its target and for every source alike.
    """
    before: Callable[..., Awaitable[Connection]] = vars(pool)["connect"]  # the caller may have overridden it already

    async def connect(host: str, port: int, endpoint: KafkaEndpoint, *, client_id: str, **options: Any) -> Connection:
        if client_id.startswith(client):
            host, port = addresses.get((host, port), (host, port))
        return await before(host, port, endpoint, client_id=client_id, **options)

    with mock.patch.object(pool, "connect", connect):
        yield


@contextlib.contextmanager
def impatient(seconds: float, *, client: str = "") -> Iterator[None]:
    """Limit how long clusters opened by clients with such ids wait for an answer, so that tests need not wait the usual
    timeout. The limit holds for clusters opened while the context is open.
    """
    patient = Cluster.open

    async def open_(endpoint: KafkaEndpoint, *, client_id: str, request_timeout: float = 30.0) -> Cluster:
        short = client_id.startswith(client)
        return await patient(endpoint, client_id=client_id, request_timeout=seconds if short else request_timeout)

    with mock.patch.object(Cluster, "open", open_):
        yield


def fill_disk(sites: LocalSites, site: str) -> Callable[[], Awaitable[bool]]:
    """Let no file of a site's running broker grow further, as on a full disk. Return whether the broker has halted.

    The limit (RLIMIT_FSIZE) makes an append fail in the middle, with EFBIG instead of ENOSPC. Unlike a small file
    system it needs no mount and no rights, and works at any moment. Kafka sees an IOException of its only log directory
    in both cases. A restart lifts it.
    """
    broker = psutil.Process(sites.status()[site].pids["kafka"])
    data = sites.folder / "sites" / site / "kafka" / "data"
    limit = max(each.stat().st_size for each in data.glob("__cluster_metadata-0/*")) + _MARGIN
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (limit, limit))

    async def halted() -> bool:
        try:
            return broker.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    return halted


@contextlib.asynccontextmanager
async def through_proxy(
    endpoint: KafkaEndpoint, *, client: str = "", rtt: float = 0.0, rate: float = 0.0
) -> AsyncIterator[TcpProxy]:
    """Open a proxied link to all brokers of a cluster for this process's clients.

    ``endpoint.bootstrap`` must name every broker. For example, ``async with through_proxy(lab.kafka("alpha"),
    client="fairlead-replicator.beta", rtt=0.25, rate=100e6) as line:`` is the link from alpha to beta.
    """
    async with TcpProxy(endpoint.bootstrap, rtt=rtt, rate=rate) as proxy:
        with address_overrides(proxy.addresses, client=client):
            yield proxy
