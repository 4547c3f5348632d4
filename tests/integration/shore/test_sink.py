"""The sink against a real broker: every row becomes one record, wherever the writing breaks off."""

from __future__ import annotations

import asyncio
import random
import re
import textwrap
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from fairlead.kafka.admin import create_logs
from fairlead.kafka.client.appender import Appender
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import is_data
from fairlead.kafka.protocol.record import NewRecord, Record
from fairlead.kafka.protocol.types import TP
from fairlead.records import headers
from shore.errors import LogMovedError
from shore.feeds.records import opening
from shore.sink.append import append_batch, stamp_of
from tests.integration.shore.crashing import register_crashing
from tests.integration.shore.readings import forget_commit
from tests.integration.shore.world import MINUTE, T0, World, reading

pytestmark = [pytest.mark.long, pytest.mark.integration, pytest.mark.spark]


def content(records: list[Record]) -> Counter[tuple[object, ...]]:
    """Return data records without their offsets and the sink's own header."""
    return Counter(
        (r.timestamp_ms, r.key, r.value, tuple(h for h in r.headers if h[0] != headers.SINK))
        for r in records
        if is_data(r)
    )


def test_a_batch_that_breaks_off_anywhere_is_there_once(spark: SparkSession, world: World, tmp_path: Path) -> None:
    sources = {world.log(world.box(index)): count for index, count in enumerate((2_300, 10))}
    copies = {log: log.replace("boxes-", "copies-") for log in sources}
    fuse = tmp_path / "fuse"
    register_crashing(spark, world.endpoint, fuse)
    written = 0

    def grow() -> None:
        nonlocal written
        world.append(
            {
                log: [reading(world.box(0), written + i, T0 + (written + i) * MINUTE) for i in range(count)]
                for log, count in sources.items()
            }
        )
        written += max(sources.values())

    def run(appends: int) -> None:
        fuse.write_text(str(appends))
        rows = spark.readStream.format("fairlead").option("streams", world.stream).load()
        changed = rows.select(
            F.regexp_replace("topic", "^boxes-", "copies-").alias("topic"), "key", "value", "headers", "timestamp"
        )
        query = (
            changed.repartition(3)  # in another order at each try
            .writeStream.format("fairlead")
            .queryName(f"copies-{world.tag}")
            .option("createLogs", "true")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def check() -> None:
        for log, copy in copies.items():
            found = world.read(copy)
            assert content(found) == content(world.read(log))
            assert len(found) == 1 + content(found).total()  # no second marker, nothing else
            stamps = [stamp for record in found if (stamp := stamp_of(record)) is not None]
            by_batch = {b: [s.index for s in stamps if s.batch == b] for b in {s.batch for s in stamps}}
            assert all(indexes == list(range(len(indexes))) for indexes in by_batch.values())

    grow()
    for appends in (1, 2):  # 1,000 records are an append: the first try ends after the first, the second after two more
        with pytest.raises(Exception, match="Python"):
            run(appends)
    run(0)
    check()
    forget_commit(tmp_path, 0)  # all is there, and Spark does not know
    grow()
    run(0)
    check()
    assert sum(content(world.read(copy)).total() for copy in copies.values()) == 2 * (2_300 + 10)


def test_a_batch_write_repeats_nothing_and_respects_who_holds_a_log(source: SparkSession, world: World) -> None:
    rows = source.createDataFrame([(f"v{i}", f"k{i}") for i in range(20)], "value string, key string")

    def save(log: str, frame: DataFrame = rows, **options: str) -> None:
        writer = frame.write.format("fairlead").mode("append").options(log=log, createLogs="true", **options)
        writer.save()

    log = f"notes-{world.tag}.tokyo"
    for _ in range(2):
        save(log, app="first")
    save(log, app="second")
    records = [r for r in world.read(log) if is_data(r)]
    assert Counter(r.value for r in records) == {f"v{i}".encode(): 2 for i in range(20)}
    with pytest.raises(Exception, match="ChangedBatchError"):
        save(log, rows.limit(3), app="first")

    async def open_elsewhere(theirs: str) -> None:
        async with await Cluster.open(world.endpoint, client_id="test") as cluster:
            await asyncio.to_thread(create_logs, world.endpoint, {theirs: {}})
            await cluster.wait_writable([theirs])
            appender = Appender(cluster)
            await appender.ensure_open(TP(theirs), opening(theirs, "elsewhere"))
            await appender.append(TP(theirs), [NewRecord(b"theirs", timestamp_ms=1)])
            await appender.close()

    theirs = f"notes-{world.tag}.theirs"
    asyncio.run(open_elsewhere(theirs))
    with pytest.raises(Exception, match=r"NotHeldError: log .* is held by site elsewhere"):
        save(theirs, app="first")
    assert [r.value for r in world.read(theirs) if is_data(r)] == [b"theirs"]
    with pytest.raises(Exception, match="there is no log"):
        rows.write.format("fairlead").mode("append").options(log="notes-absent.x", app="a").save()
    with pytest.raises(Exception, match="did you mean 'log'"):
        rows.write.format("fairlead").mode("append").options(logs=log, app="a").save()


class _Crash(Exception):
    pass


def test_drivers_that_do_not_know_of_each_other_append_a_batch_once(world: World) -> None:
    """The driver of before still lives while the new one repeats its batch, and both may end anywhere. No Spark."""
    logs = [f"race-{world.tag}.{key}" for key in ("a", "b")]
    chance = random.Random(world.tag)  # noqa: S311

    def crash(log: str, count: int) -> None:
        if chance.random() < 0.15:
            raise _Crash

    async def drive(batch: int) -> None:
        rows = {log: [NewRecord(b"%d" % i, timestamp_ms=i) for i in range(3_000)] for log in logs}
        for records in rows.values():
            chance.shuffle(records)
        while True:
            async with await Cluster.open(world.endpoint, client_id="test") as cluster:
                try:
                    await append_batch(cluster, rows, app="race", batch=batch, timed=True, create=True, appended=crash)
                    return
                except (_Crash, LogMovedError):
                    continue

    async def race() -> None:
        await drive(0)
        for batch in range(1, 4):
            await asyncio.gather(drive(batch), drive(batch), drive(batch))

    asyncio.run(race())
    for log in logs:
        found = Counter((stamp_of(r), r.value) for r in world.read(log) if is_data(r))
        by_batch = [Counter(value for stamp, value in found if stamp and stamp.batch == b) for b in range(4)]
        assert by_batch == [Counter(b"%d" % i for i in range(3_000))] * 4
        assert set(found.values()) == {1}
        stamps = [stamp for stamp, _ in found if stamp is not None]
        assert sorted((s.batch, s.index) for s in stamps) == [(b, i) for b in range(4) for i in range(3_000)]


def test_the_example_of_the_documentation_runs(source: SparkSession, world: World, tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "docs" / "spark.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- run by a test -->\n```python\n(.*?)```", text, re.DOTALL)
    assert found is not None
    example = textwrap.dedent(found[1])
    for name, here in (("containers", world.stream), ("notices", f"notices-{world.tag}")):
        assert f'"{name}' in example
        example = example.replace(f'"{name}', f'"{here}')
    late = reading(world.box(0), 1, T0 + MINUTE, supply=9.0)
    world.append({world.log(world.box(0)): [reading(world.box(0), 0, T0), late]})
    names = {"session": source, "checkpoint": str(tmp_path / "checkpoint")}
    for _ in range(2):
        exec(compile(example, "docs/spark.md", "exec"), dict(names))  # noqa: S102  # our own documentation
    (notice,) = [r for r in world.read(f"notices-{world.tag}.warm") if is_data(r)]
    assert notice.key == world.box(0).encode()
    assert notice.value is not None
    assert b'"return_temperature":9.5' in notice.value
    assert notice.timestamp_ms == late.timestamp_ms
