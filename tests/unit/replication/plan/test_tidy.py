"""Fillers that an interrupted replicator left are looked for in each log, whenever it is followed."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.protocol.types import TopicPartition
from replication.catalog import Catalog
from replication.changes import PlanChanges
from replication.custody.ledger import Ledger
from replication.link.source_link import SourceLink
from replication.plan import maintenance
from replication.plan.maintenance import Upkeep
from replication.sharing.rules import WorkShare
from replication.target.gaps import Trimmer
from tests.support.kafka.fake_broker import until
from topologies.loader.load import load

FIRST, LATER, LAST = (TopicPartition(f"orders.{name}") for name in ("first", "later", "last"))


async def test_a_log_that_is_followed_later_is_looked_at_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was unavailable, or came over another link, when the others were looked at. No log is asked about again."""
    asked: list[TopicPartition] = []
    unserved = {LAST}

    async def look(_: Any, _source: Any, logs: Collection[TopicPartition], _start: str) -> dict[TopicPartition, int]:
        asked.extend(logs)
        return {tp: 7 for tp in logs if tp not in unserved}

    monkeypatch.setattr(maintenance, "TIDY", 0.0)
    monkeypatch.setattr(maintenance, "interrupted", look)
    topology = load("big-blue", env={})
    followed = {FIRST: frozenset({"a->tokyo"}), LAST: frozenset({"a->tokyo"})}
    link = SimpleNamespace(name="a->tokyo", cluster=object(), link=SimpleNamespace(start="latest"))
    upkeep = Upkeep(
        topology,
        "tokyo",
        [cast(SourceLink, link)],
        catalog=Catalog(topology),
        ledger=Ledger(topology, "tokyo", PlanChanges()),
        followed=lambda: followed,
        here=dict,
        share=WorkShare(group=False),
    )
    trimmed: dict[TopicPartition, int] = {}
    trimmer = SimpleNamespace(delete_before=trimmed.__setitem__)
    work = asyncio.create_task(upkeep.keep_tidy(cast(Cluster, None), cast(Trimmer, trimmer)))
    await until(lambda: FIRST in trimmed)
    followed[LATER] = frozenset({"a->tokyo"})
    unserved.clear()
    upkeep.on_planned(None)
    await until(lambda: LATER in trimmed)
    work.cancel()
    assert (trimmed, asked) == (dict.fromkeys((FIRST, LATER, LAST), 7), [FIRST, LAST, LAST, LATER])
