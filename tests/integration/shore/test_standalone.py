"""Shore on a real standalone Spark cluster: a worker dies in the middle of a batch, and the table equals the logs."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from fairlead.wire.convention import is_data
from tests.integration.shore.victim import start
from tests.integration.shore.world import MINUTE, T0, World, reading
from tests.support.sparkcluster import EXECUTOR_SETTINGS, spark_cluster, until

pytestmark = [pytest.mark.integration, pytest.mark.chaos]

BOXES, READINGS, PER_BATCH = 10, 180, 600


@pytest.mark.timeout(570)
def test_a_worker_killed_in_the_middle_of_a_batch_changes_nothing(world: World, tmp_path: Path) -> None:
    boxes = [world.box(index) for index in range(BOXES)]
    world.append({world.log(box): [reading(box, i, T0 + i * MINUTE) for i in range(READINGS)] for box in boxes})
    shared = tmp_path / "storage"  # what all machines of a cluster reach
    offsets, commits = (shared / "checkpoints" / "readings" / kind for kind in ("offsets", "commits"))
    with spark_cluster(tmp_path / "cluster") as cluster:
        where = {"master": cluster.url, "storage": str(shared), "settings": EXECUTOR_SETTINGS}
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


def _under_way(offsets: Path, commits: Path) -> bool:
    begun = {int(file.name) for file in offsets.glob("[0-9]*")}
    return any(not (commits / str(batch)).exists() for batch in begun)
