"""The audits find every difference between two copies, and report nothing else."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead.kafka.admin import create_logs
from fairlead.kafka.convention import FOREIGN_PRODUCER_ID, term_batch
from fairlead.kafka.protocol.codecs import Codec
from fairlead.kafka.protocol.record import NewRecord, encode_batch
from fairlead.kafka.protocol.types import TopicPartition
from fairlead.records import headers as names
from replication.audit import Marks, compare, compare_records
from replication.audit.ranges import AuditPlan, Common, Inquiries
from tests.integration.replication.audits import both, changed, found, own, planted, store
from tests.support.replication.consumers import producer, send
from tests.support.replication.lab import Lab, records
from tests.support.steady_clock import SteadyClock
from tests.support.waits import PATIENCE
from topologies.model import Topology

pytestmark = pytest.mark.integration

FILLER = NewRecord(value=None, key=b"hole", headers=((names.KIND, names.FILLER),), timestamp_ms=1)


async def test_equal_copies_own_and_foreign(lab: Lab) -> None:
    topology = lab.one_way()
    topics = [lab.log(f"alpha.{n}") for n in range(30)]
    foreign = lab.log("alpha.foreign")
    await lab.make("alpha", *topics, foreign, lab.log("alpha.empty"))
    for topic in topics:
        await lab.write("alpha", topic, 10, at=await lab.open_term("alpha", topic, term=1, at=0))
    send(producer(lab.kafka("alpha"), **{"compression.type": "zstd"}), foreign, 0, 50)
    async with lab.running(lab.replicator(topology, "beta")):
        for topic in topics:
            await lab.reaches("beta", topic, 11)
        await lab.reaches("beta", foreign, 50)
        await lab.reaches("beta", lab.log("alpha.empty"), 0)
    await lab.write("alpha", topics[0], 10, at=11)  # a longer copy is no difference
    await lab.make("beta", lab.log("beta.only"))
    apart = lab.log("alpha.apart")  # no common offsets: not compared, and reported as such
    for site in ("alpha", "beta"):
        await lab.make(site, apart)
    await lab.write("alpha", apart, 5, at=await lab.open_term("alpha", apart, term=1, at=0))
    seen: list[tuple[int, int]] = []
    for result in await both(lab, topology, on_progress=lambda done, of: seen.append((done, of))):
        assert result.ok
        assert result.compared == 32
        assert result.records == 30 * 11 + 50
        assert (result.behind, result.apart) == (2, [apart])
        assert (result.only_a, result.only_b) == ([], [lab.log("beta.only")])
        assert result.as_json()["logs_differing"] == 0
        assert (result.rebuilt, result.compacted, result.resumed) == (0, 0, 0)
    assert seen == [(n, 32) for n in range(1, 33)] * 2


async def test_planted_differences_are_found_at_their_offsets(lab: Lab) -> None:
    same = records(0, 30)
    without = [*same[:22], FILLER, *same[23:]]
    logs = {
        "same": (own(same), own(same)),
        "value": (own(same), own(changed(7, value=b"other"))),
        "null": (own(changed(3, value=b"")), own(changed(3, value=None))),
        "key": (own(same), own(changed(0, key=b"other"))),
        "header": (own(same), own(changed(12, headers=(("h", b"2"),)))),
        "order": (own(changed(9, headers=(("a", b""), ("b", b"")))), own(changed(9, headers=(("b", b""), ("a", b""))))),
        "time": (own(same), own(changed(29, timestamp_ms=5))),
        "missing": (own(same), own(without)),
        "extra": (own(without), own(same)),
        "longer": (own(same), own(changed(21, value=b"other"))[:3] + own(same)[3:]),
        "deep": (own(same * 40, per=100), own(same * 39 + changed(17, value=b"other"), per=100)),
    }
    topics = await planted(lab, logs)
    wanted = {"value": 7, "null": 3, "key": 0, "header": 12, "order": 9, "time": 29, "missing": 22, "extra": 22}
    wanted |= {"longer": 21, "deep": 39 * 30 + 17}
    quick = await compare(lab.one_way(), lab.kafka("alpha"), lab.kafka("beta"), streams=[lab.stream])
    full = await compare_records(lab.one_way(), lab.kafka("alpha"), lab.kafka("beta"), chunk=100, streams=[lab.stream])
    for result in (quick, full):
        assert found(result) == sorted((topics[key], offset) for key, offset in wanted.items())
        assert not result.ok
        assert result.compared == len(logs)
        shown = {each.log: each for each in result.differences}
        a, b = shown[topics["header"]].a, shown[topics["header"]].b
        assert a is not None and b is not None
        assert (a["headers"], b["headers"]) == ([["h", "1"]], [["h", "2"]])
        assert a["value"] == b["value"] == "value 12 ".ljust(20, ".")
        missing, extra = shown[topics["missing"]], shown[topics["extra"]]
        assert missing.b is None and extra.a is None
        assert missing.a is not None and missing.a == extra.b


async def test_copies_written_in_other_batches_are_equal(lab: Lab) -> None:
    same = records(0, 30)
    gaps = [*same[:4], FILLER, *same[5:]]
    other = [*same[:4], NewRecord(value=b"", headers=FILLER.headers, timestamp_ms=9), *same[5:]]
    foreign = [
        encode_batch(same[at : at + 10], producer_id=FOREIGN_PRODUCER_ID, epoch=0, sequence=at) for at in (0, 10, 20)
    ]
    topics = await planted(
        lab,
        {
            "split": (own(same), [*own(same)[:1], *own(same, per=5)[2:4], *own(same)[2:]]),
            "fillers": (own(gaps), own(other)),
            "term": (own(same), [own(same)[0], term_batch(same[10:20], term=2, offset=10, marker=10)]),
            "codec": (foreign, [*foreign[:2], own(same, codec=Codec.LZ4)[2]][:2]),
        },
    )
    quick, full = await both(lab, lab.one_way())
    assert full.ok
    assert found(quick) == [(topics["term"], 10)]  # the records are equal, but their terms are not
    difference = quick.differences[0]
    assert difference.a is not None and difference.b is not None
    assert (difference.a["producer_epoch"], difference.b["producer_epoch"]) == (1, 2)
    assert quick.rebuilt == 2


async def test_every_partition_is_a_log(lab: Lab) -> None:
    topic = lab.log("alpha.several")
    for site, count in (("alpha", 4), ("beta", 3)):
        await asyncio.to_thread(create_logs, lab.kafka(site), {topic: {}}, partitions={topic: count})
        await (await lab.cluster(site)).wait_writable([topic])
    same = {TopicPartition(topic, n): own(records(n * 100, 20)) for n in range(3)}
    await store(lab, "alpha", same)
    await store(lab, "beta", {**same, TopicPartition(topic, 2): own(records(0, 20))})
    for result in await both(lab, lab.one_way()):
        assert found(result) == [(f"{topic}/2", 0)]
        assert result.compared == 3
        assert result.only_a == [f"{topic}/3"]


class Halting(Marks):
    """Marks that halt the audit at the first unfinished log, until the test releases it."""

    def __init__(self, path: Path, at: int) -> None:
        super().__init__(path)
        self.reached, self.go_on, self.at = threading.Event(), threading.Event(), at

    def mark_equal(self, log: Common, to: int) -> None:
        super().mark_equal(log, to)
        if to >= self.at and not self.reached.is_set():
            self.reached.set()
            assert self.go_on.wait(PATIENCE)


async def test_an_interrupted_audit_goes_on_where_it_was(lab: Lab, tmp_path: Path) -> None:
    """An interrupted audit skips logs that it found equal, and compares the others and new records."""
    same = records(0, 2000)
    other = [*same[:1900], *records(7, 1), *same[1901:]]
    topics = await planted(lab, {"long": (own(same, per=250), own(other, per=250))})
    topology, a, b = lab.one_way(), lab.kafka("alpha"), lab.kafka("beta")
    marks = Halting(tmp_path / "marks", at=500)
    running = asyncio.ensure_future(compare_records(topology, a, b, marks=marks, chunk=100, streams=[lab.stream]))
    assert await asyncio.to_thread(marks.reached.wait, PATIENCE)
    running.cancel()
    await asyncio.wait([running], timeout=0.1)
    assert not running.done()  # the audit waits for its halted thread
    marks.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    for resume, most in ((True, 1500), (True, 100), (False, 2000)):
        kept = Marks(tmp_path / "marks")
        again = await compare_records(topology, a, b, marks=kept, chunk=100, resume=resume, streams=[lab.stream])
        assert found(again) == [(topics["long"], 1900)]  # a log that differs never counts as done
        assert again.resumed == resume
        assert again.records <= most
    # The audit skips logs that were equal before, and compares new records.
    equal = await planted(lab, {"equal": (own(same[:20]), own(same[:20]))})
    for audit in (compare, compare_records):
        file = tmp_path / audit.__name__
        assert not (await audit(topology, a, b, marks=Marks(file), streams=[lab.stream])).ok
        more = {TopicPartition(equal["equal"]): [term_batch(records(20, 5), term=1, offset=20, marker=0)]}
        if audit is compare:
            for site in ("alpha", "beta"):
                await store(lab, site, more)
        again = await audit(topology, b, a, marks=Marks(file), resume=True, streams=[lab.stream])
        assert again.compared == 2
        assert again.records < 500


@pytest.mark.parametrize(("audit", "records_left"), [(compare_records, 35 + 25), (compare, 40 + 30)])
async def test_retention_goes_on_while_logs_are_compared(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, audit: Callable[..., Any], records_left: int
) -> None:
    """An audit reports no difference if retention deletes records while it runs.

    After the audit has planned, one log is shortened at one site, one at both, and one is emptied at one site.
    """
    same = records(0, 60)
    topics = await planted(lab, {key: (own(same), own(same)) for key in ("one", "two", "emptied")})
    at_alpha, at_beta = await lab.cluster("alpha"), await lab.cluster("beta")
    loop, plan = asyncio.get_running_loop(), Inquiries.plan

    async def shorten() -> None:
        one, two, emptied = (TopicPartition(topics[key]) for key in ("one", "two", "emptied"))
        await at_alpha.delete_records({one: 25, two: 15})
        await at_beta.delete_records({two: 35, emptied: 60})

    def planned(self: Inquiries, topology: Topology, streams: Any = None) -> AuditPlan:
        made = plan(self, topology, streams)
        asyncio.run_coroutine_threadsafe(shorten(), loop).result(30)
        return made

    monkeypatch.setattr(Inquiries, "plan", planned)
    result = await audit(lab.one_way(), lab.kafka("alpha"), lab.kafka("beta"), streams=[lab.stream])
    assert result.ok
    assert result.compared == 3
    assert result.records == records_left  # the quick audit counts whole batches


async def test_reading_keeps_to_a_rate(lab: Lab) -> None:
    same = [NewRecord(value=bytes(1000), timestamp_ms=5) for _ in range(150)]
    await planted(lab, {str(n): (own(same), own(same)) for n in range(4)})
    topology, a, b = lab.one_way(), lab.kafka("alpha"), lab.kafka("beta")

    async def seconds(audit: Callable[..., Any]) -> tuple[float, float]:
        began = time.monotonic()
        with SteadyClock() as clock:
            assert (await audit(topology, a, b, rate=400_000, streams=[lab.stream])).records == 600
            return time.monotonic() - began, clock.seconds

    # 600 kB at 400 kB/s; a burst may have half a second's worth.
    for took, counted in await asyncio.gather(seconds(compare), seconds(compare_records)):
        assert 0.9 < took
        assert counted < 15
