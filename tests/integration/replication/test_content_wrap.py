"""Terms and logs of more than 2^31 records: sequences wrap around to 0, and nothing else changes."""

from __future__ import annotations

import asyncio

import pytest

from fairlead.kafka.convention import PRODUCER_ID, is_filler, term_batch
from fairlead.kafka.protocol.batch import parse_header
from fairlead.kafka.protocol.codecs import Codec
from fairlead.local.sites import LocalSites, SiteSpec
from tests.integration.replication.shifted import shift
from tests.support.replication.consumers import producer, same, send
from tests.support.replication.lab import Lab, records, states
from tests.support.sites import SITES, USERS

pytestmark = [pytest.mark.long, pytest.mark.integration]

WRAP = 2**31


async def test_a_term_whose_sequences_begin_again(lab: Lab) -> None:
    """A term's record number 2^31 has sequence 0 again; it is not taken for a marker or another term."""
    topic = lab.log("alpha.long")
    await lab.make("alpha", topic)
    marker = -(WRAP - 12)  # the log has the last 12 records before that, and the following ones
    at = 0
    for _ in range(3):
        await lab.append("alpha", {topic: term_batch(records(at, 5), term=4, offset=at, marker=marker)})
        at += 5
    sequences = [parse_header(batch).base_sequence for batch in await lab.stored("alpha", topic)]
    assert sequences == [WRAP - 12, WRAP - 7, WRAP - 2]
    for _ in range(2):
        async with lab.running(beta := lab.replicator(lab.one_way(), "beta")):
            await lab.reaches("beta", topic, at)
            await lab.append("alpha", {topic: term_batch(records(at, 5), term=4, offset=at, marker=marker)})
            at += 5
            await lab.reaches("beta", topic, at)
            assert states(beta.snapshot()) == {}
    assert await lab.same(topic)


async def test_offsets_beyond_2_to_the_31(lab: Lab, sites: LocalSites) -> None:
    """Foreign logs are copied across offset 2^31, where their sequences (offsets modulo 2^31) wrap around."""
    foreign, own = lab.log("alpha.foreign"), lab.log("alpha.own")
    await lab.make("alpha", foreign, own)
    send(producer(lab.kafka("alpha"), **{"linger.ms": 50}), foreign, 0, 5)
    await lab.append("alpha", {own: term_batch(records(0, 5), term=1, offset=0, marker=0)})
    async with lab.running(lab.replicator(lab.one_way(), "beta")):
        await lab.reaches("beta", foreign, 5)
        await lab.reaches("beta", own, 5)
    first = WRAP - 8
    await asyncio.to_thread(sites.down, SITES)
    for site in SITES:
        shift(sites, site, foreign, first, sequences=site == "beta")
        shift(sites, site, own, first, sequences=True)
    await asyncio.to_thread(sites.up, [SiteSpec(name, USERS) for name in SITES])
    await (await lab.cluster("alpha")).wait_writable([foreign, own])
    client = producer(lab.kafka("alpha"), **{"linger.ms": 50})
    at = first + 5
    for n in range(4):  # within, across, after, and once more after a restart of the replicator
        beta = lab.replicator(lab.one_way(), "beta")
        async with lab.running(beta):
            send(client, foreign, n * 5, 5 if n else 2)
            batch = term_batch(records(at, 5 if n else 2), term=1, offset=at, marker=0, codec=Codec.LZ4)
            await lab.append("alpha", {own: batch})
            at += 5 if n else 2
            await lab.reaches("beta", foreign, at)
            await lab.reaches("beta", own, at)
            assert states(beta.snapshot()) == {}
    assert at > WRAP
    assert await lab.same(own)
    assert {parse_header(batch).producer_id for batch in await lab.stored("beta", own)} == {PRODUCER_ID}
    assert await same(lab, foreign) == at - first
    there = await lab.stored("beta", foreign)
    assert next(each.base_sequence for each in map(parse_header, there) if each.base_offset > WRAP) < 20
    assert not any(is_filler(record) for record in await lab.read("beta", foreign))
