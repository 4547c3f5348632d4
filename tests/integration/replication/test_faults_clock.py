"""Clocks that jump: the replicator's own, by days and repeatedly, and the record writers' clocks."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path

import pytest

from fairlead.kafka.client.appender import Appender
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import marker_record
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import TopicPartition
from fairlead.local.sites import LocalSites
from replication.plan.retention import delete_expired
from tests.support.proof import grown, proven
from tests.support.replication.lab import Lab, until
from tests.support.traffic import Traffic
from tests.support.victims import Victim

pytestmark = [pytest.mark.long, pytest.mark.integration]
DAY_MS = 86_400_000
DAYS = 30


def jumping() -> Iterator[int]:
    """Yield record times: now, long ago, in ten years, 1970, ..."""
    days = cycle((0, -1, 3650, 0, -20_000, 1, 0))
    return (max(0, int(time.time() * 1000) + DAY_MS * next(days)) for _ in iter(int, 1))


async def test_a_record_from_the_future_makes_no_other_old(
    kafka: Callable[..., KafkaEndpoint], new_log: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record or a clock ten years ahead does not make retention delete records that are not expired.

    Retention counts back from a log's newest record. A writer whose clock is ten years ahead must not empty the log,
    and neither must a replicator's wrong clock.
    """
    fresh, ahead = TopicPartition(new_log("alpha")), TopicPartition(new_log("alpha"))
    now = int(time.time() * 1000)
    async with await Cluster.open(kafka("alpha"), client_id="test") as cluster:
        appender = Appender(cluster)
        for log, last in ((fresh, now), (ahead, now + 3650 * DAY_MS)):
            await appender.open_term(log, 1, marker_record(log.topic.encode(), timestamp_ms=now - 3 * DAY_MS))
            for moment in (now - 2 * DAY_MS, now - DAY_MS // 2, last):
                await appender.append(log, [NewRecord(b"x", timestamp_ms=moment)])
        kept = dict.fromkeys((fresh, ahead), DAY_MS)
        monkeypatch.setattr(time, "time", lambda: now / 1000 + 3650 * 86_400)
        assert (await delete_expired(cluster, {fresh: DAY_MS})).cut == {fresh: 2}
        monkeypatch.undo()
        assert (await delete_expired(cluster, kept)).cut == {ahead: 2}
        assert (await delete_expired(cluster, kept)).cut == {}
        await appender.close()


async def test_nobodys_clock_matters(lab: Lab, sites: LocalSites, tmp_path: Path) -> None:
    """Wrong clocks of writers and replicators do not change the copies."""
    own, plain = [lab.log(f"alpha.{n}") for n in range(4)], lab.log("alpha.plain")
    await lab.make("alpha", *own, plain)
    here, there, status = lab.kafka("alpha"), lab.kafka("beta"), tmp_path / "status.json"
    clock = f"clock={DAYS * 86_400}"
    async with (
        Traffic(here, own=own, idempotent=[plain], times=jumping()) as writers,
        Victim(str(sites.folder), lab.stream, f"status={status}", clock) as victim,
    ):
        await victim.start()
        seen: list[float] = []

        async def jumped() -> bool:
            if status.exists():
                at = json.loads(status.read_text())["at"]
                seen.append(time.mktime(time.strptime(at[:19], "%Y-%m-%dT%H:%M:%S")))
            return bool(seen) and max(seen) - min(seen) > DAYS * 86_400

        await until(jumped, "the replicator's clock does not jump")
        await grown(there, writers.written)
        await writers.stop()
        await proven(lab.one_way(), writers.written, here, there)

        async def well() -> bool:
            return bool(json.loads(status.read_text())["logs"] == {})

        await until(well, f"logs in trouble: {status}")
        await victim.end(signal.SIGTERM)
