"""The data source against a real broker: every data record is one row, whatever happens to the logs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from fairlead.kafka.admin import create_logs, delete_logs
from fairlead.kafka.convention import is_data
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.record import NewRecord
from shore.datasource import register
from simulators.network.proxy import TcpProxy
from tests.integration.shore.readings import forget_commit, readings_of
from tests.support.patience import patient, spark_errors
from tests.support.shore.world import MINUTE, T0, World, reading
from tests.support.waits import PATIENCE

pytestmark = [pytest.mark.long, pytest.mark.integration, pytest.mark.spark]


class Follower:
    """A streaming query over one test's logs: each ``run`` reads to their present ends and keeps the batches."""

    def __init__(self, spark: SparkSession, world: World, folder: Path, **options: str) -> None:
        self._spark, self._world, self._folder = spark, world, folder
        self._options = {"streams": world.stream} | options
        self.batches: list[list[tuple[str, int]]] = []
        self.progress: list[Any] = []

    def run(self) -> None:
        patient(lambda: spark_errors(self._run))

    def _run(self) -> None:
        rows = self._spark.readStream.format("fairlead").options(**self._options).load()
        query = (
            rows.writeStream.option("checkpointLocation", str(self._folder / "checkpoint"))
            .foreachBatch(lambda batch, _: self.batches.append([(r.topic, r.offset) for r in _collect(batch)]))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        self.progress = list(query.recentProgress)

    def rows(self) -> Iterator[tuple[str, int]]:
        return (row for batch in self.batches for row in batch)


def _collect(batch: Any) -> list[Any]:
    found: list[Any] = batch.select("topic", "offset").collect()
    return found


def test_a_batch_read_gives_every_data_record_and_nothing_else(source: SparkSession, world: World) -> None:
    written = readings_of(world, boxes=30, count=40)
    world.append(written)
    found = source.read.format("fairlead").option("streams", world.stream).load().toArrow().to_pylist()
    expected = {
        (log, record.offset): record for log in written for record in world.read(log) if is_data(record)
    }  # fmt: skip
    assert len(found) == len(expected) == 30 * 40
    for row in found:
        record = expected[(row["topic"], row["offset"])]
        assert (row["key"], row["value"]) == (record.key, record.value)
        assert int(row["timestamp"].timestamp() * 1000) == record.timestamp_ms
        assert [(h["key"], h["value"]) for h in row["headers"]] == list(record.headers)
        assert (row["site"], row["stream"], row["partition"], row["term"]) == ("alpha", world.stream, 0, 1)
        assert row["received"].timestamp() == pytest.approx(row["timestamp"].timestamp() + 1.5)


def test_a_stream_goes_on_where_it_stopped_and_finds_new_logs(
    source: SparkSession, world: World, tmp_path: Path
) -> None:
    follower = Follower(source, world, tmp_path)
    world.append(readings_of(world, boxes=3, count=10))
    follower.run()
    assert len(follower.batches) == 1
    world.append(readings_of(world, boxes=5, count=10, first=10))  # two logs are new, three have more
    follower.run()
    found = list(follower.rows())
    assert len(found) == len(set(found)) == 3 * 10 + 5 * 10
    assert {offset for topic, offset in found if topic == world.log(world.box(0))} == set(range(1, 21))
    follower.run()
    assert len(list(follower.rows())) == 80


def test_starting_a_query_adds_no_variable_to_the_map_that_all_queries_share(
    source: SparkSession, world: World, tmp_path: Path
) -> None:
    """Two threads that add to Spark's HashMap at once damage it, and from then on no task of the session starts."""
    session = source._jsparkSession  # noqa: SLF001  # only the JVM shows this map
    manager = session.sessionState().dataSourceManager()
    variables = manager.lookupDataSource("fairlead").dataSourceCls().envVars()
    registered = set(variables)
    world.append(readings_of(world, boxes=1, count=1))
    follower = Follower(source, world, tmp_path)
    follower.run()
    assert len(list(follower.rows())) == 1
    assert set(variables) == registered


def test_admission_bounds_every_batch_and_loses_nothing(source: SparkSession, world: World, tmp_path: Path) -> None:
    world.append(readings_of(world, boxes=4, count=50) | {world.log(world.box(9)): []})
    follower = Follower(source, world, tmp_path, maxRecordsPerTrigger="60")
    follower.run()
    found = list(follower.rows())
    assert len(found) == len(set(found)) == 200
    assert len(follower.batches) == -(-(200 + 5) // 60)  # the five markers are offsets, too
    assert all(len(batch) <= 60 for batch in follower.batches)
    assert all(len({topic for topic, _ in batch}) == 4 for batch in follower.batches[:-1])  # no log waits for another


def test_admission_by_bytes_goes_by_the_size_of_what_is_there(
    source: SparkSession, world: World, tmp_path: Path
) -> None:
    large = [NewRecord(bytes(5_000), timestamp_ms=1)] * 20
    small = [NewRecord(bytes(50), timestamp_ms=1)] * 20
    world.append({world.log(world.box(0)): large, world.log(world.box(1)): small})
    follower = Follower(source, world, tmp_path, maxBytesPerTrigger="30000")
    follower.run()
    found = list(follower.rows())
    assert len(found) == len(set(found)) == 40
    first, second = world.log(world.box(0)), world.log(world.box(1))
    assert sum(topic == second for topic, _ in follower.batches[0]) == 20  # small records do not wait for large ones
    assert all(sum(topic == first for topic, _ in batch) <= 6 for batch in follower.batches)
    assert 4 <= len(follower.batches) <= 6


def test_reading_between_offsets_and_times(source: SparkSession, world: World) -> None:
    world.append(readings_of(world, boxes=2, count=20))  # offsets 1 to 20, a minute apart
    one, other = world.log(world.box(0)), world.log(world.box(1))

    def offsets(**options: str) -> dict[str, list[int]]:
        rows = source.read.format("fairlead").options(streams=world.stream, **options).load()
        found: dict[str, list[int]] = {one: [], other: []}
        for row in rows.select("topic", "offset").collect():
            found[row.topic].append(row.offset)
        return {log: sorted(numbers) for log, numbers in found.items()}

    everything = [*range(1, 21)]
    by_log = {"startingOffsets": json.dumps({one: 5}), "endingOffsets": json.dumps({one: 9, other: -1})}
    assert offsets(**by_log) == {one: [5, 6, 7, 8], other: everything}
    by_time = {"startingTimestamp": (T0 + 3 * MINUTE).isoformat(), "endingTimestamp": (T0 + 6 * MINUTE).isoformat()}
    assert offsets(**by_time) == {one: [4, 5, 6], other: [4, 5, 6]}
    assert offsets(startingTimestamp=(T0 + 30 * MINUTE).isoformat()) == {one: [], other: []}
    assert offsets(startingOffsets="latest") == {one: [], other: []}
    assert offsets(tasks="3", keepLogsWhole="true") == {one: everything, other: everything}


def test_a_stream_from_the_latest_offsets_misses_nothing_after_a_crash(
    source: SparkSession, world: World, tmp_path: Path
) -> None:
    """The first batch fails and is repeated when there are more records; its start was fixed the first time."""
    follower = Follower(source, world, tmp_path, startingOffsets="latest")
    world.append(readings_of(world, boxes=2, count=10))
    follower.run()
    assert list(follower.rows()) == []
    forget_commit(tmp_path, 0)
    world.append(readings_of(world, boxes=3, count=10, first=10))
    follower.run()
    found = list(follower.rows())
    assert len(found) == len(set(found)) == 2 * 10 + 10  # a new log is read from its beginning
    assert {offset for log, offset in found if log == world.log(world.box(0))} == set(range(11, 21))
    follower.run()
    assert len(list(follower.rows())) == 30


def test_a_site_that_cannot_be_reached_for_a_while_is_waited_for(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    batches: list[list[tuple[str, int]]] = []
    world.append(readings_of(world, boxes=2, count=10))
    with line_to(world.endpoint) as line:
        register(spark, replace(world.endpoint, address_overrides=line.address_overrides))
        rows = spark.readStream.format("fairlead").option("streams", world.stream).load()
        query = (
            rows.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
            .foreachBatch(lambda batch, _: batches.append([(r.topic, r.offset) for r in _collect(batch)]))
            .trigger(processingTime="100 milliseconds")
            .start()
        )
        try:
            wait_until(lambda: sum(map(len, batches)) == 20, query)
            line.cut()
            world.append(readings_of(world, boxes=2, count=10, first=10))  # bypasses the proxy
            wait_until(lambda: any("waiting since" in p.json for p in query.recentProgress), query)
            line.mend()
            wait_until(lambda: sum(map(len, batches)) == 40, query)
        finally:
            query.stop()
        found = [row for batch in batches for row in batch]
        assert len(found) == len(set(found)) == 40


@contextlib.contextmanager
def line_to(endpoint: KafkaEndpoint) -> Iterator[TcpProxy]:
    """Yield a TCP proxy to a site's brokers; it runs in its own thread because Spark's calls block this one."""
    ready: SimpleQueue[tuple[TcpProxy, asyncio.AbstractEventLoop, asyncio.Event]] = SimpleQueue()

    async def serve() -> None:
        async with TcpProxy(endpoint.bootstrap) as line:
            ready.put((line, asyncio.get_running_loop(), end := asyncio.Event()))
            await end.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    line, loop, end = ready.get(timeout=PATIENCE)
    try:
        yield _FromOutside(line, loop)  # type: ignore[misc]  # the attributes that the test needs
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join(PATIENCE)


class _FromOutside:
    def __init__(self, line: TcpProxy, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._line, self.address_overrides = loop, line, line.address_overrides

    def cut(self) -> None:
        self._loop.call_soon_threadsafe(self._line.cut)

    def mend(self) -> None:
        self._loop.call_soon_threadsafe(self._line.mend)


def wait_until(true: Callable[[], bool], query: StreamingQuery) -> None:
    pause = threading.Event()
    for _ in range(round(PATIENCE / 0.1)):
        if true():
            return
        assert query.isActive, query.exception()
        pause.wait(0.1)
    raise AssertionError(f"still not so after two minutes: {[p.json for p in query.recentProgress[-1:]]}")


def test_a_log_that_vanishes_is_told_and_holds_nothing_up(source: SparkSession, world: World, tmp_path: Path) -> None:
    """A deleted log is reported and delays no other."""
    follower = Follower(source, world, tmp_path, failOnDataLoss="false")
    world.append(readings_of(world, boxes=3, count=5))
    follower.run()
    gone = world.log(world.box(2))
    delete_logs(world.endpoint, [gone])
    world.append(readings_of(world, boxes=2, count=5, first=5))
    follower.run()
    assert len(list(follower.rows())) == 25
    backlog = json.loads(follower.progress[-1]["sources"][0]["latestOffset"])
    assert (backlog["vanished"], backlog["examples"], backlog["behind"]) == (1, [gone], 0)
    world.append({gone: [reading(world.box(2), 0, T0)]})  # recreated, and shorter than what was read
    follower.run()
    assert len(list(follower.rows())) == 25
    backlog = json.loads(follower.progress[-1]["sources"][0]["latestOffset"])
    assert (backlog["vanished"], backlog["lost"]) == (0, 0)
    assert backlog["examples"] == [f"{gone} ends at 2, before 6, up to where it was read: truncated, or made anew"]
    with pytest.raises(Exception, match=f"DataLossError: {gone} ends at 2, before 6"):
        Follower(source, world, tmp_path).run()


def test_what_retention_took_is_skipped_or_raised(source: SparkSession, world: World, tmp_path: Path) -> None:
    world.append(readings_of(world, boxes=2, count=20))
    log = world.log(world.box(0))
    careful = Follower(source, world, tmp_path / "careful")
    careless = Follower(source, world, tmp_path / "careless", failOnDataLoss="false")
    for follower in (careful, careless):
        follower.run()
        assert len(list(follower.rows())) == 40
    world.append(readings_of(world, boxes=2, count=20, first=20))
    world.delete_before(log, 31)
    careless.run()
    assert sorted(offset for topic, offset in careless.rows() if topic == log) == [*range(1, 21), *range(31, 41)]
    backlog = json.loads(careless.progress[-1]["sources"][0]["latestOffset"])
    told = f"records 21 to 30 of {log} were deleted before they were read"
    assert (backlog["lost"], backlog["examples"]) == (10, [told])
    with pytest.raises(Exception, match=f"DataLossError: {told}"):
        careful.run()


def test_foreign_records_are_rows_too(source: SparkSession, world: World) -> None:
    from confluent_kafka import Producer

    topic = f"{world.stream}.foreign"
    create_logs(world.endpoint, {topic: {}})
    producer = Producer(world.endpoint.librdkafka() | {"compression.type": "lz4", "linger.ms": 20})
    for index in range(10):
        producer.produce(topic, value=f"v{index}".encode(), key=None, headers=[("a", b"1"), ("a", b"2")])
    assert producer.flush(PATIENCE) == 0
    found = source.read.format("fairlead").option("pattern", topic.replace(".", r"\.")).load().collect()
    assert sorted(bytes(row.value) for row in found) == [f"v{index}".encode() for index in range(10)]
    assert {row.term for row in found} == {None}
    assert [(h.key, h.value) for h in found[0].headers] == [("a", bytearray(b"1")), ("a", bytearray(b"2"))]


def test_the_password_is_in_no_plan_setting_or_checkpoint(source: SparkSession, world: World, tmp_path: Path) -> None:
    assert world.endpoint.password is not None
    secret = world.endpoint.password.get_secret_value()
    assert len(secret) > 10
    world.append(readings_of(world, boxes=1, count=3))
    frame = source.read.format("fairlead").option("streams", world.stream).load()
    execution = frame._jdf.queryExecution()  # noqa: SLF001  # explain() only prints
    plans = execution.toString() + execution.analyzed().treeString() + execution.executedPlan().treeString()
    assert "fairlead" in plans.lower()
    assert secret not in plans
    rows = source.readStream.format("fairlead").option("streams", world.stream).load()
    query = (
        rows.writeStream.format("memory")
        .queryName(f"q{world.tag}")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
        told = query._jsq.explainInternal(True) + query.lastProgress.json  # type: ignore[union-attr]  # noqa: SLF001
    finally:
        query.stop()
    assert source.table(f"q{world.tag}").count() == 3
    assert secret not in told
    assert secret not in str(source.sparkContext.getConf().getAll())
    files = [file for file in (tmp_path / "checkpoint").rglob("*") if file.is_file()]
    assert len(files) > 3
    assert all(secret.encode() not in file.read_bytes() for file in files)


def test_a_mistake_in_the_options_is_told(source: SparkSession) -> None:
    with pytest.raises(Exception, match="did you mean 'streams'"):
        source.read.format("fairlead").option("stream", "containers").load()


def test_a_wrong_password_is_told_without_it(spark: SparkSession, world: World) -> None:
    from pydantic import SecretStr

    register(spark, replace(world.endpoint, password=SecretStr("not-the-password-at-all")))
    with pytest.raises(Exception, match="AuthenticationFailed") as error:
        spark.read.format("fairlead").option("streams", world.stream).load().collect()
    assert "not-the-password-at-all" not in str(error.value)


def test_the_example_of_the_documentation_runs(source: SparkSession, world: World, tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "docs" / "spark.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- run by a test -->\n```python\n(.*?)```", text, re.DOTALL)
    assert found is not None
    example = found[1].replace('"containers"', f'"{world.stream}"').replace("/var/lib/warm", str(tmp_path))
    assert example.count(str(tmp_path)) == 2
    late = reading(world.box(0), 1, T0 + MINUTE, supply=9.0)
    world.append({world.log(world.box(0)): [reading(world.box(0), 0, T0), late]})
    for _ in range(2):
        exec(compile(example, "docs/spark.md", "exec"), {"session": source})  # noqa: S102  # our own documentation
    (warm,) = source.read.format("delta").load(str(tmp_path / "table")).collect()
    assert (warm["equipment_reference"], warm["return_temperature"]) == (world.box(0), 9.5)
