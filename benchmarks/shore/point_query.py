"""Part ``point_query``: one container among 100 million readings, through ``shore.read.sql``.

The table is generated as ingest leaves it, every file with a stretch of time of all boxes, then compacted as
``fairlead shore compact`` does. The same query is asked before (once) and after (of many boxes), each time as a user
asks it: tables are opened, the query runs, all rows of all columns but the payload come back as Arrow.
``point_query_seconds`` is the slowest of those after compaction.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable

from benchmarks.harness import FOLDER, Say
from benchmarks.readings import generate, numbers
from fairlead.errors import UnavailableError
from shore.maintenance import compact, maintenance_session, plan_compaction
from shore.paths import TablePaths
from shore.read import sql
from shore.session import close, spark

_TARGET: Final = 2.0
_BYTES_A_ROW: Final = 60  # the table before and after it is compacted, and what Spark writes aside: 36 were seen


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--point-rows", type=int, default=100_000_000, help="readings in the table of point_query")
    parser.add_argument("--point-boxes", type=int, default=20_000, help="containers among them")
    parser.add_argument("--point-queries", type=int, default=20, help="containers that are asked for")
    parser.add_argument(
        "--point-folder",
        type=Path,
        default=FOLDER,
        help="a disk for the table and what Spark writes aside: 6 GB for 100 million readings",
    )


def measure(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    rows, boxes = options.point_rows, options.point_boxes
    options.point_folder.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="fairlead-point-", dir=options.point_folder))
    os.environ["TMPDIR"] = str(folder)  # Spark spills there; memory, where tests have it, has not that much room
    try:
        _check_room(folder, rows)
        return _measure(folder, rows // boxes * boxes, boxes, options.point_queries, say)
    finally:
        shutil.rmtree(folder)


def _measure(folder: Path, rows: int, boxes: int, queries: int, say: Say) -> dict[str, Any]:
    paths = TablePaths.of(folder)
    location = paths.table("readings")
    say(f"generating {rows:,} readings of {boxes:,} containers in {folder}")
    began = time.perf_counter()
    session = spark(folder)
    generate(session, location, rows, boxes=boxes, file_rows=1_000_000)
    generated = time.perf_counter() - began
    names = numbers(boxes)
    asked = names[7 :: max(1, boxes // queries)][:queries]
    before, bytes_before = _ask(folder, asked[0], rows // boxes), _bytes(location)
    say(f"{bytes_before / 1e9:.2f} GB after {generated:.0f} s; one query before clustering: {before:.2f} s")
    began = time.perf_counter()
    (step,) = plan_compaction(paths, ["readings"])
    files_before, files = compact(maintenance_session(session), paths, step)
    close(session)
    clustered = time.perf_counter() - began
    say(f"put together in {clustered:.0f} s: {files_before} files, now {files}")
    taken = [_ask(folder, name, rows // boxes) for name in asked]
    return {
        "point_query_seconds": round(max(taken), 3),
        "median_seconds": round(statistics.median(taken), 3),
        "before_clustering_seconds": round(before, 3),
        "queries": len(taken),
        "rows": rows,
        "containers": boxes,
        "rows_a_query": rows // boxes,
        "columns": len(DeltaTable(location).schema().fields),
        "files": {"before": files_before, "after": files},
        "gigabytes": {"before": round(bytes_before / 1e9, 2), "after": round(_bytes(location) / 1e9, 2)},
        "generating_seconds": round(generated, 1),
        "clustering_seconds": round(clustered, 1),
        "peak_memory_gigabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),
        "target": {"point_query_seconds": _TARGET},
        "met": max(taken) <= _TARGET,
    }


def _ask(folder: Path, number: str, expected: int) -> float:
    """Seconds until all readings of one container are there."""
    query = f"""
        select * exclude (payload) from readings where equipment_reference = '{number}'
        order by device_date_time, log_offset
    """  # noqa: S608  # a number of ours
    began = time.perf_counter()
    found = sql(folder, query)
    taken = time.perf_counter() - began
    if found.num_rows != expected:
        raise UnavailableError(f"{number} has {found.num_rows:,} readings instead of {expected:,}")
    return taken


def _bytes(location: str) -> int:
    """What the table's newest version takes."""
    return sum(pa.table(DeltaTable(location).get_add_actions(flatten=True))["size_bytes"].to_pylist())


def _check_room(folder: Path, rows: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < rows * _BYTES_A_ROW:
        raise UnavailableError(
            f"{folder} has room for {free / 1e9:.1f} GB, and {rows * _BYTES_A_ROW / 1e9:.1f} GB may be needed",
            hint="--point-folder names another place, --point-rows makes it smaller",
        )
