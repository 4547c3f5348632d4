"""CPU of the sweeps that apply retention to very many logs that a site holds, as a share of a core on average.

One broker has the logs, each with old and new records; another site keeps them for ever and confirms them. Three sweeps
are measured: nothing is confirmed, so that every log waits; everything is confirmed and deleted; nothing is left to do.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.brokers import broker_heap
from benchmarks.custody.worker import USER
from benchmarks.harness import Figures, Say
from fairlead.kafka.admin import create_logs
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import term_batch
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import TP
from fairlead.local.sites import LocalSites, SiteSpec
from fairlead.records import encode
from fairlead.records.ends import LogEnd
from replication.changes import PlanChanges
from replication.custody.ledger import Ledger
from replication.plan.ends import EndsWriter, entries
from replication.plan.retention import SWEEP_SECONDS, RetentionKeeper
from replication.sharing.rules import WorkShare
from topologies.model import Topology

EDGE: Final = "edge"
CENTRE: Final = "centre"
OLD, NEW = 20, 5  # records of each log
DAYS: Final = 86_400_000
AT_ONCE: Final = 250
TARGET: Final = {"core_share": 0.01}


def topology() -> Topology:
    """Return a site that keeps a day, and another one that keeps everything and confirms it."""
    return Topology.model_validate(
        {
            "name": "bench",
            "sites": {
                EDGE: {"kind": "datacentre", "retention": {"default": "1d"}},
                CENTRE: {"kind": "datacentre"},
            },
            "streams": {"metrics": {}, "ends": {}},
            "links": [
                {"from": EDGE, "to": CENTRE, "streams": {"metrics": "all"}},
                {"from": CENTRE, "to": EDGE, "streams": {"ends": "all"}},
            ],
        }
    )


async def measure(logs: int, say: Say) -> dict[str, Any]:
    """Return for each sweep its CPU seconds, and the share of a core that one every ``SWEEP_SECONDS`` takes."""
    with tempfile.TemporaryDirectory(prefix="fairlead-bench-") as name:
        sites = LocalSites(Path(name) / "sites")
        try:
            with broker_heap():
                await asyncio.to_thread(sites.up, [SiteSpec(EDGE)])
            async with await Cluster.open(sites.kafka(EDGE, USER), client_id="bench", request_timeout=120) as cluster:
                figures = await _sweeps(cluster, logs, say)
        finally:
            await asyncio.to_thread(sites.down, purge=True)
    return {"logs": logs, "target": TARGET, **figures}


async def _sweeps(cluster: Cluster, logs: int, say: Say) -> dict[str, Any]:
    names = [f"metrics.{EDGE}.{number:06d}" for number in range(logs)]
    here = dict.fromkeys([*names, f"ends.{CENTRE}"], 1)
    await asyncio.to_thread(create_logs, cluster.endpoint, {name: {} for name in here})
    await cluster.wait_writable(list(here), timeout=600)
    present = int(time.time() * 1000)
    for at, count, moment in ((0, OLD, present - 5 * DAYS), (OLD, NEW, present)):
        records = [NewRecord(value=b"x" * 100, timestamp_ms=moment) for _ in range(count)]
        batch = term_batch(records, term=1, offset=at, marker=0)
        for first in range(0, logs, AT_ONCE):
            await _append(cluster, names[first : first + AT_ONCE], batch, at + count)
    say(f"{logs:,} logs written")
    spec = topology()
    ledger = Ledger(spec, EDGE, PlanChanges())
    share = WorkShare(group=False)
    keeper = RetentionKeeper(spec, EDGE, ledger, lambda: here, spec.fixed_holder, set, share)
    writer = EndsWriter(EDGE, cluster, share)
    found: dict[str, Any] = {}
    cut = {}
    for what in ("waiting", "deleting", "idle"):
        if what == "deleting":
            await _confirm(cluster, names, present)
        began, busy = time.monotonic(), time.process_time()
        swept = await keeper.sweep(cluster, writer)
        seconds, cpu = time.monotonic() - began, time.process_time() - busy
        cut[what] = len(swept.cut), sum(each.logs for each in swept.delays.values())
        found[what] = {
            "seconds": round(seconds, 2),
            "cpu_seconds": round(cpu, 3),
            "core_share": round(cpu / SWEEP_SECONDS, 5),
        }
        say(f"{what}: {found[what]}")
    await writer.close()
    if cut != {"waiting": (0, logs), "deleting": (logs, 0), "idle": (0, 0)}:
        raise SystemExit(f"the sweeps did something else: {cut}")
    return found


async def _append(cluster: Cluster, names: list[str], batch: bytes, end: int) -> None:
    """Append a batch to each of these logs, again where there was no answer, until all end at ``end``."""
    left = [TP(name) for name in names]
    while left:
        await cluster.produce(dict.fromkeys(left, batch))
        ends = await cluster.end_offsets(left)
        left = [tp for tp in left if ends[tp] != end]


async def _confirm(cluster: Cluster, names: list[str], present: int) -> None:
    """Append to the copy of the centre's log what its replicator would."""
    log, offset = TP(f"ends.{CENTRE}"), 0
    for entry in entries(CENTRE, dict.fromkeys(names, LogEnd(OLD + NEW, 1)), whole=True):
        record = NewRecord(value=encode(entry), timestamp_ms=present)
        await cluster.produce({log: term_batch([record], term=1, offset=offset, marker=0)})
        offset += 1


def measure_retention(options: argparse.Namespace, say: Say) -> Figures:
    return asyncio.run(measure(options.own, say))
