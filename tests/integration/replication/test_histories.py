"""Consumers see the same records in a log and in its replica, whatever happened to the log at its source.

``tests/chaos/test_histories.py`` tries more histories, from a source with three brokers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings

from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.local.sites import LocalSites
from tests.support.replication.histories import (
    Compact,
    Delete,
    End,
    History,
    Life,
    MoveLeader,
    Run,
    Transact,
    Write,
    histories,
    new_lab,
)

pytestmark = [pytest.mark.long, pytest.mark.integration]

FEW: Final = 3


@settings(
    max_examples=FEW,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    report_multiple_bugs=False,
)
@given(history=histories(with_leaders=False))
@example(
    History(
        "compact",
        (
            Write(30, "lz4", idempotent=True, tombstones=True),
            Transact(0, 10, "zstd"),
            End(0, commit=False),
            Compact(),
            Run(on=True, orderly=False),
            Transact(1, 10, "gzip"),
            MoveLeader("alpha"),
            Write(10, "none", idempotent=True, tombstones=False),
            Run(on=False),
            End(1, commit=True),
            Compact(),
        ),
    )
)
@example(
    History(
        "compact,delete",
        (
            Write(30, "snappy", idempotent=False, tombstones=False),
            Compact(),
            Delete(5),
            Run(on=True),
            Transact(0, 5, "none"),
            Transact(1, 5, "lz4"),
            Write(5, "zstd", idempotent=True, tombstones=True),
            End(1, commit=False),
            Delete(9),
            End(0, commit=True),
            Run(on=False, orderly=False),
        ),
    )
)
@example(
    History(
        "delete",
        (
            Run(on=True),
            Transact(0, 9, "zstd"),
            Transact(1, 9, "none"),
            Write(9, "gzip", idempotent=False, tombstones=True),
            End(0, commit=False),
            Run(on=False, orderly=False),
            Delete(3),
            Transact(0, 9, "lz4"),
            End(1, commit=True),
            Run(on=True),
            End(0, commit=False),
        ),
    )
)
async def test_a_replica_shows_what_its_source_shows(
    kafka: Callable[..., KafkaEndpoint], sites: LocalSites, cleaners: None, history: History
) -> None:
    async def move_leader(site: str, topic: str) -> None:
        await asyncio.to_thread(sites.restart, site)
        if await lab.end(site, topic) >= 0:
            await (await lab.cluster(site)).wait_writable([topic])

    lab = new_lab(kafka)
    try:
        await Life(lab, history, move_leader).live()
    finally:
        await lab.close()
