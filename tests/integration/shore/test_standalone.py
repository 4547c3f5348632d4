"""Shore on a real standalone Spark cluster: a worker dies in the middle of a batch, and the table equals the logs."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from fairlead.kafka.convention import is_data
from tests.integration.shore.victim import start
from tests.support.shore.world import MINUTE, T0, World, reading
from tests.support.spark_cluster import EXECUTOR_SETTINGS, SECRET, free_port, spark_cluster
from tests.support.waits import until

pytestmark = [pytest.mark.integration, pytest.mark.chaos]

BOXES, READINGS, PER_BATCH = 10, 180, 600


@pytest.mark.timeout(570)
def test_a_worker_killed_in_the_middle_of_a_batch_changes_nothing(world: World, tmp_path: Path) -> None:
    boxes = [world.box(index) for index in range(BOXES)]
    world.append({world.log(box): [reading(box, i, T0 + i * MINUTE) for i in range(READINGS)] for box in boxes})
    shared = tmp_path / "storage"  # a folder that all machines of a cluster reach
    offsets, commits = (shared / "checkpoints" / "readings" / kind for kind in ("offsets", "commits"))
    with spark_cluster(tmp_path / "cluster") as cluster:
        where = {"master": cluster.url, "tables": str(shared), "settings": EXECUTOR_SETTINGS}
        with start(world, tmp_path / "state", max_records=PER_BATCH, **where) as driver:
            until(lambda: driver.poll() is not None or (commits / "0").exists(), "the first batch", patience=400)
            until(lambda: driver.poll() is not None or _under_way(offsets, commits), "a batch that is under way")
            assert driver.poll() is None, "the driver ended before a worker could be killed"
            done = len(list(commits.glob("[0-9]*")))
            cluster.workers[0].kill()
            assert driver.wait(240) == 0
        assert cluster.master.heard(r"Removing worker|Removing executor|Lost")
        assert len(list(commits.glob("[0-9]*"))) > done
    table = DeltaTable(str(shared / "delta" / "readings")).to_pyarrow_table(columns=["log", "log_offset", "payload"])
    found = [(row["log"], row["log_offset"], row["payload"]) for row in table.to_pylist()]
    logs = map(world.log, boxes)
    expected = {(log, r.offset, r.value) for log in logs for r in world.read(log) if is_data(r)}
    assert len(found) == len(expected) == BOXES * READINGS
    assert set(found) == expected


@pytest.mark.timeout(570)
@pytest.mark.parametrize("encrypted", [True, False])
def test_what_executors_are_sent_shows_no_password(world: World, tmp_path: Path, encrypted: bool) -> None:
    """A listener between driver and executors sees no password; without encryption, for comparison, it does see it."""
    box = world.box(0)
    world.append({world.log(box): [reading(box, i, T0 + i * MINUTE) for i in range(3)]})
    password = world.endpoint.password
    assert password is not None
    clear = {} if encrypted else {"spark.network.crypto.enabled": "false", "spark.network.crypto.saslFallback": "true"}
    shared = tmp_path / "storage"
    with spark_cluster(tmp_path / "cluster", workers=1, more=clear) as cluster, listening() as heard:
        settings = EXECUTOR_SETTINGS | clear | heard.settings
        where: dict[str, Any] = {"master": cluster.url, "tables": str(shared), "settings": settings}
        with start(world, tmp_path / "state", **where) as driver:
            assert driver.wait(400) == 0
    assert len(DeltaTable(str(shared / "delta" / "readings")).to_pyarrow_table()) == 3
    assert len(heard.bytes) > 100_000  # the jars at least
    for secret in (password.get_secret_value(), SECRET):  # executors are sent both
        assert (secret.encode() in heard.bytes) is not encrypted


@pytest.mark.timeout(300)
def test_nobody_without_the_secret_gets_an_executor(world: World, tmp_path: Path) -> None:
    with spark_cluster(tmp_path / "cluster", workers=1) as cluster:
        wrong = EXECUTOR_SETTINGS | {"spark.authenticate.secret": "a-guess"}
        where: dict[str, Any] = {"master": cluster.url, "tables": str(tmp_path / "storage"), "settings": wrong}
        with start(world, tmp_path / "state", **where) as driver:
            assert driver.wait(280) != 0
        assert not cluster.master.heard("Registered app")


@dataclass
class Heard:
    """What passed the listeners before the driver's two ports, and the settings that send executors to them."""

    settings: dict[str, str]
    bytes: bytearray


@contextlib.contextmanager
def listening() -> Iterator[Heard]:
    """Relay executors' connections from 127.0.0.2 to the driver at 127.0.0.1, and record every byte."""
    ports = {"spark.driver.port": free_port(), "spark.driver.blockManager.port": free_port()}
    heard = Heard({name: str(port) for name, port in ports.items()} | {"spark.driver.host": "127.0.0.2"}, bytearray())

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                heard.bytes += data
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(stop: asyncio.Event) -> None:
        def passing_to(port: int) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
            async def passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                there, back = await asyncio.open_connection("127.0.0.1", port)
                await asyncio.gather(pipe(reader, back), pipe(there, writer))

            return passed

        servers = [await asyncio.start_server(passing_to(port), "127.0.0.2", port) for port in ports.values()]
        await stop.wait()
        for server in servers:
            server.close()

    loop, stop = asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(stop),))
    thread.start()
    try:
        yield heard
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.close()


def _under_way(offsets: Path, commits: Path) -> bool:
    begun = {int(file.name) for file in offsets.glob("[0-9]*")}
    return any(not (commits / str(batch)).exists() for batch in begun)
