"""The bridge, detection on board, and digests.

    python -m benchmarks.edge [--only bridge,detection,digest] [--logs N] [--readings N] [--queued N] ...

``bridge``: Fairlead's bridge beside a plain one of paho and confluent-kafka, QoS 1 in, acks=all out, one log per
container; and Fairlead's after a stop, with readings waiting at the MQTT broker (``catch_up``). ``detection``: the cost
of the alert rules for a reading. ``digest``: the bytes of what a ship says of 2,000 boxes over its satellite.
All parts take about a quarter of an hour on a machine that does nothing else. The options make them smaller, for trying
out.

Readings per second are those of the whole chain, when all share the machine's cores: devices, MQTT broker, bridge,
Kafka. The devices publish so fast that the bridge is never idle, and never more than 4,000 messages ahead of it. CPU is
that of the bridge's process, all threads; ``per_core`` is readings per second of it. ``speed_ratio`` compares the
chains, ``cpu_ratio`` the processes. All readings are counted in the logs afterwards.
"""

from __future__ import annotations

import argparse
from typing import Final

from benchmarks import detection, digest
from benchmarks.edge import bridge
from benchmarks.harness import main
from fairlead.local.state import Profile

PARTS: Final = {
    "bridge": bridge.measure,
    "detection": detection.measure,
    "digest": digest.measure,
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--logs", type=int, default=20_000)
    parser.add_argument("--readings", type=int, default=100_000, help="through the bridge")
    parser.add_argument("--plain-readings", type=int, default=40_000, help="through the plain bridge")
    parser.add_argument("--queued", type=int, default=1_000_000, help="readings that wait for the bridge")
    parser.add_argument(
        "--mqtt-profile",
        type=Profile,
        choices=list(Profile),
        default=Profile.FAST,
        help="of the site; durable writes all that is queued every other second, fast every sixth",
    )
    detection.add_options(parser)
    digest.add_options(parser)


if __name__ == "__main__":
    main("edge", PARTS, __doc__, add_options)
