"""A measured process: reads the ledgers of one site into the view, as a bridge or a replicator does at start.

    python -m benchmarks.custody.reader bridge|replicator FOLDER SITE SITES

Prints its figures as one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from unittest import mock

import psutil
import uvloop

from benchmarks.custody.worker import USER
from benchmarks.processes import peak_rss_mb
from fairlead.custody.view import CustodyView
from fairlead.kafka.client.cluster import Cluster
from fairlead.local.registry import LocalSiteRegistry
from replication.changes import PlanChanges
from topologies.ledger_trust import Believer, Rules
from topologies.model import Topology

Load = Callable[[], Awaitable[None]]


def bridge(cluster: Cluster, site: str, sites: list[str]) -> tuple[CustodyView, Load]:
    """What ``edge.bridge`` does about the ledgers before it takes its first message."""
    import edge.bridge  # noqa: F401 - what a bridge has loaded
    from edge.custody.protocol import CustodyProtocol
    from edge.custody.receiver import Receiver
    from edge.holdings import Holdings

    view = CustodyView()
    ledgers = tuple(f"custody.{name}" for name in sites)
    protocol = CustodyProtocol(Holdings(site, view), mock.Mock(), sites=sites, now=mock.Mock(), nonce=mock.Mock())
    receiver = Receiver(
        cluster,
        mock.Mock(),
        protocol,
        ledgers,
        Believer(Rules.of(_topology(sites)), view, on_refused=_nothing),
        mock.Mock(),
    )
    return view, receiver.catch_up


def replicator(cluster: Cluster, site: str, sites: list[str]) -> tuple[CustodyView, Load]:
    """What ``replication.replicator`` does about the ledgers before it plans."""
    import replication.replicator  # noqa: F401 - what a replicator has loaded
    from replication.custody.ledger import Ledger

    ledger = Ledger(_topology(sites), site, PlanChanges())
    ledger.follow_topics([f"custody.{name}" for name in sites])

    async def load() -> None:
        work = asyncio.ensure_future(ledger.run(cluster))
        ready = asyncio.ensure_future(ledger.ready.wait())
        await asyncio.wait({work, ready}, return_when=asyncio.FIRST_COMPLETED)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)

    return ledger.custody, load


def _topology(sites: list[str]) -> Topology:
    return Topology.model_validate(
        {
            "name": "bench",
            "sites": {name: {"kind": "datacentre"} for name in sites},
            "streams": {"custody": {}, "containers": {"insert_point": "moves", "owners": ["BIGU"]}},
        }
    )


def _nothing(*_: object) -> None:
    return


async def main(reader: str, folder: str, site: str, sites: str) -> None:
    own = psutil.Process()
    async with await Cluster.open(LocalSiteRegistry(Path(folder)).kafka(site, USER), client_id="bench") as cluster:
        make = {"bridge": bridge, "replicator": replicator}[reader]
        view, load = make(cluster, site, sites.split(","))
        before, cpu, began = own.memory_info().rss, sum(own.cpu_times()[:2]), time.perf_counter()
        await load()
        seconds = time.perf_counter() - began
        cpu = sum(own.cpu_times()[:2]) - cpu
        rss = own.memory_info().rss
    logs = list(view.logs())
    began = time.perf_counter()
    for log in logs:
        view.holder(log)
    holder = time.perf_counter() - began
    began = time.perf_counter()
    for log in logs:
        view.grant(log)
    grant = time.perf_counter() - began
    figures = {
        "logs": len(view),
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu, 2),
        "rss_mb": round(rss / 1e6, 1),
        "rss_growth_mb": round((rss - before) / 1e6, 1),
        "peak_rss_mb": peak_rss_mb(own),
        "holder_ns": round(holder / max(1, len(logs)) * 1e9),
        "grant_ns": round(grant / max(1, len(logs)) * 1e9),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:5]))
