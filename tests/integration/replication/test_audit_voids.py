"""Audits of logs whose end offset is above their last readable record, because compaction removed the tail."""

from __future__ import annotations

import uuid

import pytest

from fairlead.kafka.protocol.record import NewRecord
from fairlead.local.sites import LocalSites
from tests.integration.replication.audits import both, found, own, planted
from tests.integration.replication.segments import lose_tail, stopped
from tests.support.replication.consumers import producer, send
from tests.support.replication.lab import NOW_MS, Lab, records

pytestmark = [pytest.mark.long, pytest.mark.integration]


async def test_logs_whose_ends_hold_nothing_are_compared(lab: Lab, sites: LocalSites) -> None:
    same = records(0, 30)
    gone = [NewRecord(value=None, key=b"%d" % n, timestamp_ms=NOW_MS) for n in range(30)]
    keys = ("full", "void", "tail", "lost", "other")
    topics = await planted(lab, {key: (own(same), own(same)) for key in keys})
    compacted, committed = lab.log("alpha.compacted"), lab.log("alpha.committed")
    for site in ("alpha", "beta"):
        await lab.make(site, compacted, **{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1"})
        for batch in own(gone):
            await lab.append(site, {compacted: batch})
        await lab.make(site, committed)
        client = producer(lab.kafka(site), **{"transactional.id": uuid.uuid4().hex})
        client.init_transactions(30)
        for first in (0, 10):
            client.begin_transaction()
            send(client, committed, first, 9)
            client.commit_transaction(30)
        await lab.reaches(site, committed, 20)  # the commit returns before its marker is written
    async with stopped(sites, "beta"):
        lose_tail(sites, "beta", topics["void"], 0, 30)
        lose_tail(sites, "beta", topics["tail"], 10, 30)
        lose_tail(sites, "beta", topics["lost"], 20, 30)
        lose_tail(sites, "beta", compacted, 0, 30)
        lose_tail(sites, "beta", committed, 10, 20)  # the last entry is a commit marker
    async with stopped(sites, "alpha"):
        lose_tail(sites, "alpha", topics["void"], 0, 30)
        lose_tail(sites, "alpha", topics["tail"], 10, 30)
        lose_tail(sites, "alpha", committed, 10, 20)
    wanted = sorted([(topics["lost"], 20)])
    for result in await both(lab, lab.one_way()):
        assert found(result) == wanted, result.as_json()
        assert result.compared == 7
        assert (result.behind, result.apart, result.compacted) == (0, [], 1)
        assert result.differences[0].a is not None
        assert result.differences[0].b is None
