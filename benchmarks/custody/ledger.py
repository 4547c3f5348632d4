"""Seconds and memory that a bridge and a replicator need at start for the ledgers of very many logs.

The ledgers are on a real broker. Each reader is a process that only does what the real one does at start. Memory is
counted in resident bytes: what the process has in all, and what reading has added.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import json
import secrets
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.custody.worker import USER
from benchmarks.harbour import boxes
from benchmarks.harness import Figures, Say
from fairlead.kafka.admin import create_logs
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import marker_record, term_batch
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import TP
from fairlead.local.sites import LocalSites, SiteSpec
from fairlead.records import encode
from fairlead.records.custody import CustodyEntry

SITE: Final = "depot"
HOLDERS: Final = ("depot", "tokyo", "singapore", "sydney", "los-angeles")
PER_BATCH: Final = 500
TARGET: Final = {"seconds": 2.0, "rss_mb": 100.0}


async def measure(logs: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Write the ledgers, then let each kind of process read them."""
    with tempfile.TemporaryDirectory(prefix="fairlead-bench-") as name:
        sites = LocalSites(Path(name) / "sites")
        try:
            await asyncio.to_thread(sites.up, [SiteSpec(SITE)])
            size = await _write(sites, logs)
            say(f"{logs:,} entries written, {size / logs:.0f} B each")
            readers = {}
            for reader in ("bridge", "replicator"):
                readers[reader] = await _read(sites.folder, reader, logs)
                say(f"{reader}: {readers[reader]}")
        finally:
            await asyncio.to_thread(sites.down, purge=True)
    return {"logs": logs, "entry_bytes": round(size / logs), "target": TARGET, **readers}


async def _write(sites: LocalSites, logs: int) -> int:
    """An entry per log, as bridges write them, spread over the ledgers of all holders. Gives the bytes of all."""
    size = 0
    ledgers = [f"custody.{site}" for site in HOLDERS]
    endpoint = sites.kafka(SITE, USER)
    await asyncio.to_thread(create_logs, endpoint, {ledger: {} for ledger in ledgers})
    async with await Cluster.open(endpoint, client_id="bench") as cluster:
        await cluster.wait_writable(ledgers)
        numbers = boxes(logs)
        for place, site in enumerate(HOLDERS):
            end = 0
            new = [*_entries(numbers[place :: len(HOLDERS)], site)]
            for start in range(0, len(new), PER_BATCH):
                some = new[start : start + PER_BATCH]
                batch = term_batch(some, term=1, offset=end, marker=0)
                result = (await cluster.produce({TP(f"custody.{site}"): batch}))[TP(f"custody.{site}")]
                if not result.appended_now:
                    raise RuntimeError(f"custody.{site}: {result}")
                end += len(some)
                size += len(batch)
    return size


def _entries(numbers: list[str], site: str) -> Iterator[NewRecord]:
    for number in numbers:
        now = dt.datetime.now(dt.UTC)
        at_ms = int(now.timestamp() * 1000)
        to_site = secrets.choice(HOLDERS)
        marker = marker_record(secrets.token_hex(180).encode(), timestamp_ms=at_ms)
        entry = CustodyEntry(
            log=f"containers.{number}",
            term=2,
            marker_offset=1000 + secrets.randbelow(100_000),
            from_site=site,
            to_site=to_site,
            event="LOAD",
            event_id=f"load-{number}-{at_ms}",
            event_date_time=now,
            granted_date_time=now,
            granted_by=site,
            marker_batch=term_batch([marker], term=2, offset=1000, marker=1000),
        )
        yield NewRecord(encode(entry), timestamp_ms=at_ms)


async def _read(folder: Path, reader: str, logs: int) -> dict[str, Any]:
    line = ("-m", "benchmarks.custody.reader", reader, str(folder), SITE, ",".join(HOLDERS))
    process = await asyncio.create_subprocess_exec(sys.executable, *line, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    if process.returncode:
        raise SystemExit(f"the reader of ledgers as a {reader} failed")
    figures: dict[str, Any] = json.loads(out)
    if figures["logs"] != logs:
        raise SystemExit(f"a {reader} knows {figures['logs']} logs of {logs}")
    return figures


def measure_ledger(options: argparse.Namespace, say: Say) -> Figures:
    return asyncio.run(measure(options.logs, say))
