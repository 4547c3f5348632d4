"""Measure the way in, print, and write ``build/bench/edge.json``.

    python -m benchmarks.edge [--only bridge,catch_up,detection,simulator] [--logs N] [--readings N] [--queued N] ...

``bridge``: Fairlead's bridge beside a plain one of paho and confluent-kafka, QoS 1 in, acks=all out, one log per
container. ``catch_up``: the bridge is down while readings pile up at the MQTT broker, then it starts. ``detection``:
what looking at a reading on board costs. ``simulator``: a day of a large ship, model only. Everything takes about a
quarter of an hour and wants a machine that does nothing else; the numbers make it smaller, for trying out. A part that
fails has an ``error`` in the file, the others go on, and the exit code is 1. With ``--only`` the other parts keep what
the file has of them.

Readings per second are those of the whole chain, when all share the machine's cores: devices, MQTT broker, bridge,
Kafka. The devices publish so fast that the bridge is never idle, and never more than 4,000 messages ahead of it. CPU is
that of the bridge's process, all threads; ``per_core`` is readings per second of it. ``speed_ratio`` compares the
chains, ``cpu_ratio`` the processes. All readings are counted in the logs afterwards.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from benchmarks import detection, simulator
from benchmarks._results import FOLDER, machine, write
from benchmarks.edge import chain
from benchmarks.edge.measured import SPAWN
from fairlead.errors import FairleadError
from fairlead.local.state import Profile

PARTS: Final = ("bridge", "catch_up", "detection", "simulator")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything; the defaults are what the targets are about."""

    logs: int = 20_000
    readings: int = 100_000
    plain_readings: int = 40_000
    queued: int = 1_000_000
    mqtt_profile: Profile = Profile.FAST
    detection_boxes: int = 2_000
    containers: int = 20_000
    hours: float = 24.0


class Report:
    """What is known so far; the file is written after each part, whatever becomes of the next."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.found = found
        self.failed: list[str] = []

    @contextlib.contextmanager
    def part(self, *names: str) -> Iterator[dict[str, Any]]:
        """Fill in the figures of these parts. What goes wrong is said in those that are not complete by then, without
        their ``target``."""
        here, new = machine(), dict[str, Any]()
        try:
            yield new
        except (SystemExit, Exception) as error:
            traceback.print_exc()
            why = error.what if isinstance(error, FairleadError) else f"{type(error).__name__}: {error}"
            for name in names:
                if "target" not in new.get(name, {}):
                    new[name] = {**new.get(name, {}), "error": why}
                    self.failed.append(name)
        for name, figures in new.items():
            self.found[name] = {**figures, "machine": here, "at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds")}
        write("edge", self.found)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    usual = Sizes()
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    parser.add_argument("--logs", type=int, default=usual.logs)
    parser.add_argument("--readings", type=int, default=usual.readings, help="through the bridge")
    parser.add_argument("--plain-readings", type=int, default=usual.plain_readings, help="through the plain bridge")
    parser.add_argument("--queued", type=int, default=usual.queued, help="readings that wait for the bridge")
    parser.add_argument(
        "--mqtt-profile",
        type=Profile,
        choices=list(Profile),
        default=usual.mqtt_profile,
        help="of the site; durable writes all that is queued every other second, fast every sixth",
    )
    parser.add_argument("--detection-boxes", type=int, default=usual.detection_boxes)
    parser.add_argument("--containers", type=int, default=usual.containers, help="of the simulator")
    parser.add_argument("--hours", type=float, default=usual.hours, help="of the simulator")
    options = vars(parser.parse_args(arguments))
    chosen = options.pop("only").split(",")
    if unknown := set(chosen) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    sizes = Sizes(**options)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: nothing may be left behind
    report = Report(_before() if set(chosen) != set(PARTS) else {})
    brokers = [name for name in ("bridge", "catch_up") if name in chosen]
    if brokers:
        with report.part(*brokers) as new:
            chain.measure(
                brokers, sizes.logs, sizes.readings, sizes.plain_readings, sizes.queued, sizes.mqtt_profile, new, _say
            )
    if "detection" in chosen:
        with report.part("detection") as new:
            new["detection"] = _alone(detection.measure, sizes.detection_boxes)
            report.found["detection_us"] = round(new["detection"]["detection_us"], 2)
    if "simulator" in chosen:
        with report.part("simulator") as new:
            new["simulator"] = _alone(simulator.measure, sizes.containers, sizes.hours)
    print(json.dumps(report.found, indent=1))
    if report.failed:
        raise SystemExit(f"failed: {', '.join(report.failed)}")


def _alone(measure: Callable[..., dict[str, Any]], *given: Any) -> dict[str, Any]:
    """The figures of a measurement in a process of its own, where nothing else has been before."""
    _say(measure.__module__)
    with ProcessPoolExecutor(1, mp_context=SPAWN) as pool:
        return pool.submit(measure, *given).result()


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def _before() -> dict[str, Any]:
    file = FOLDER / "edge.json"
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return {name: part for name, part in known.items() if name in (*PARTS, "detection_us")}


if __name__ == "__main__":
    main()
