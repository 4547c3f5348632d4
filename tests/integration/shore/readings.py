"""Write readings of many containers to logs, find them in tables, and undo Spark's commits of batches."""

from __future__ import annotations

from pathlib import Path

from fairlead.kafka.convention import is_data
from fairlead.kafka.protocol.record import NewRecord
from tests.integration.shore.conftest import Shore
from tests.support.shore.world import MINUTE, T0, World, reading


def write(world: World, boxes: int, count: int, first: int = 0, supply: float = 4.0) -> None:
    """Append ``count`` readings to the log of each box, five minutes apart."""
    world.append(
        {
            world.log(world.box(index)): [
                reading(world.box(index), i, T0 + i * 5 * MINUTE, supply) for i in range(first, first + count)
            ]
            for index in range(boxes)
        }
    )


def records(world: World, boxes: int) -> set[tuple[str, int]]:
    """Return log and offset of every data record of the boxes."""
    logs = [world.log(world.box(index)) for index in range(boxes)]
    return {(log, record.offset) for log in logs for record in world.read(log) if is_data(record)}


def rows(shore_of: Shore) -> list[tuple[object, object]]:
    """Return log and offset of every row of table ``readings``."""
    return [(row["log"], row["log_offset"]) for row in shore_of.sql("select log, log_offset from readings")]


def undo_commit(folder: Path, job: str) -> None:
    """Leave the state of a crash between a job's last write and Spark's own commit."""
    commits = folder / "checkpoints" / job / "commits"
    last = max((f for f in commits.iterdir() if f.name.isdecimal()), key=lambda f: int(f.name))
    last.unlink()
    (commits / f".{last.name}.crc").unlink(missing_ok=True)


def readings_of(world: World, boxes: int, count: int, first: int = 0) -> dict[str, list[NewRecord]]:
    """Return readings of each box by log, a minute apart, without writing them."""
    found = {}
    for index in range(boxes):
        box = world.box(index)
        found[world.log(box)] = [reading(box, i, T0 + i * MINUTE) for i in range(first, first + count)]
    return found


def forget_commit(folder: Path, batch: int) -> None:
    """Leave the state of a crash between a batch's write and Spark's own commit."""
    commits = folder / "checkpoint" / "commits"
    (commits / str(batch)).unlink()
    (commits / f".{batch}.crc").unlink(missing_ok=True)
