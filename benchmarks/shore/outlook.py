"""Part ``outlook``: table ``outlook`` against the simulator's physics, over boxes of all cargoes and climates.

Each kind of trouble comes to every box at a random time. ``hours_after`` it, the table says when the cargo leaves its
band; the simulator knows. ``shown`` of ``boxes`` still in band have enough data; errors are relative to the time left.
"""

from __future__ import annotations

import argparse
from typing import Any, Final, get_args

from benchmarks.harness import Say
from benchmarks.shore.outages import Trouble, judge, play
from benchmarks.shore.session import session
from shore.delta.commit import conform
from shore.tables.outlook import USED_BY_OUTLOOK, outlook
from shore.tables.readings import READINGS

_HOURS: Final = (3, 4, 6, 12)
TARGET: Final = 0.2  # median relative error


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--outlook-boxes", type=int, default=500, help="boxes of each kind of trouble")


def measure(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    found: dict[str, Any] = {"boxes": options.outlook_boxes, "target": {"median_error_worst": TARGET}}
    errors = []
    with session() as work:
        for seed, kind in enumerate(get_args(Trouble)):
            played = play(options.outlook_boxes, seed, kind)
            for hours in _HOURS:
                readings = conform(work.spark.createDataFrame(played.readings(hours)), READINGS)
                rows = outlook(readings.select(*USED_BY_OUTLOOK)).where("minutes_left is not null").collect()
                times = {
                    row["equipment_reference"]: (row["minutes_left"], row["minutes_left_low"], row["minutes_left_high"])
                    for row in rows
                }
                judged = judge(times, played.left(hours))
                found[f"{kind.lower()}_{hours}_hours_after"] = judged._asdict()
                errors.append(judged.median_error)
                say(f"{kind} {hours} h after: {judged}")
    found["median_error_worst"] = max(errors)
    return found
