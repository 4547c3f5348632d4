"""One busy topic through TLS (SASL_SSL at both ends) beside the same without (SASL_PLAINTEXT), in one run.

Each kind has fresh brokers of its own and copies ``ROUNDS`` topics, in turn with the other, so that both see the same
machine. The best counts, since the first copies find brokers that are not warm yet: without TLS nothing is to be
compiled, with it the ciphers are.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from benchmarks.replication.bulk import PARTITIONS, PRODUCER, RECORD_BYTES, ends_of
from benchmarks.replication.copying import copy
from benchmarks.replication.fairlead_side import fairlead
from benchmarks.replication.load import produce
from benchmarks.replication.ratios import secure
from benchmarks.replication.world import World

ROUNDS: Final = 4
RECORDS: Final = 1_000_000
TARGET: Final = {"throughput_ratio": 0.4}


async def measure(records: int = RECORDS) -> dict[str, Any]:
    """The replicator alone, in a process of its own, with and without TLS, in turn."""
    rounds: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
    async with World.fresh() as plain, World.fresh(tls=True) as tls:
        for _ in range(ROUNDS):
            for world, wanted in ((plain, False), (tls, True)):
                rounds[wanted].append(await _round(world, records))
    best = {
        wanted: min(found, key=lambda each: float(each["seconds_from_first_record"]))
        for wanted, found in rounds.items()
    }
    return {
        "partitions": PARTITIONS,
        "records": records,
        "record_bytes": RECORD_BYTES,
        "rounds": ROUNDS,
        **secure(best[False], best[True]),
        "target": TARGET,
        "plaintext": best[False],
        "tls": best[True],
    }


async def _round(world: World, records: int) -> dict[str, Any]:
    logs = await world.make_logs(1, partitions=PARTITIONS)
    await asyncio.to_thread(produce, world, logs, records=records, size=RECORD_BYTES, settings=PRODUCER)
    return await copy(world, fairlead, logs, await ends_of(world, logs), within=600)
