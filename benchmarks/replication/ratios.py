"""Ratios of two sides' figures, and their targets. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

Figures = Mapping[str, Any]
GROWN: Final = {"rss_mb": 600.0, "core_percent": 3.0, "new_log_seconds": 10.0}
"""Targets for the largest number of logs."""


def compare(fairlead: Figures, mirrormaker: Figures) -> dict[str, float]:
    """Fairlead beside MirrorMaker.

    The speed ratios say how many times faster Fairlead is: the seconds of both count to the last record, from the start
    of the process or from the first record at the target. ``cpu_ratio`` is Fairlead's CPU as a part of MirrorMaker's
    (0.02 is a fiftieth), ``rss_mb`` Fairlead's memory, ``rss_ratio`` that as a part. ``floor_ratio`` is Fairlead's of
    ``benchmarks.replication.world.copy``.
    """
    from_start = mirrormaker["seconds_from_start"] / fairlead["seconds_from_start"]
    from_first = mirrormaker["seconds_from_first_record"] / fairlead["seconds_from_first_record"]
    return {
        "speed_ratio_from_start": round(from_start, 1),
        "speed_ratio_from_first_record": round(from_first, 1),
        "cpu_ratio": round(fairlead["cpu_seconds"] / mirrormaker["cpu_seconds"], 4),
        "rss_mb": fairlead["rss_mb"],
        "rss_ratio": round(fairlead["rss_mb"] / mirrormaker["rss_mb"], 3),
        "floor_ratio": fairlead["floor_ratio"],
    }


def tls_ratios(plain: Figures, tls: Figures) -> dict[str, float]:
    """Fairlead through TLS beside Fairlead without: ``throughput_ratio`` is the part of the speed that is left, by the
    clock that is less favourable to TLS; ``cpu_ratio`` how many times the CPU, ``broker_cpu_ratio`` the brokers'."""
    brokers = ("source_broker_cpu_seconds", "target_broker_cpu_seconds")
    clocks = ("seconds_from_start", "seconds_from_first_record")
    return {
        "throughput_ratio": round(min(plain[clock] / tls[clock] for clock in clocks), 2),
        "cpu_ratio": round(tls["cpu_seconds"] / plain["cpu_seconds"], 2),
        "broker_cpu_ratio": round(sum(tls[name] for name in brokers) / sum(plain[name] for name in brokers), 2),
    }


def growth_ratios(rows: Sequence[Figures]) -> dict[str, float]:
    """The largest set of logs against the smallest: how many times the logs, the time and the memory. And what that
    many logs take: memory, CPU of standing by, seconds until a new log is copied."""
    small, large = rows[0], rows[-1]
    logs = large["logs"] / small["logs"]
    return {
        "logs_ratio": logs,
        "seconds_ratio": round(large["seconds_from_start"] / small["seconds_from_start"], 1),
        "seconds_from_first_record_ratio": round(
            large["seconds_from_first_record"] / small["seconds_from_first_record"], 1
        ),
        "cpu_ratio": round(large["cpu_seconds"] / small["cpu_seconds"], 1),
        "rss_ratio": round(large["rss_mb"] / small["rss_mb"], 1),
        **{name: large[name] for name in GROWN},
    }


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least ``percent`` of all do not exceed (nearest rank)."""
    ordered = sorted(values)
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(0, int(rank) - 1)]


def growth_targets(rows: Sequence[Figures]) -> dict[str, float]:
    """No worse than linear: time and memory grow at most as many times as the logs; and ``GROWN``."""
    logs = rows[-1]["logs"] / rows[0]["logs"]
    return {"seconds_ratio": logs, "seconds_from_first_record_ratio": logs, "rss_ratio": logs, **GROWN}
