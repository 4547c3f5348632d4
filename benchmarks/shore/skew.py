"""Part ``skew``: one log with very many readings beside very many logs with few, and the same number spread evenly.

``small_logs_done_after_triggers``: after how many triggers all readings of the small logs are in the table.
"""

from __future__ import annotations

import argparse
from typing import Any, Final

import pyarrow.compute as pc
from deltalake import DeltaTable

from benchmarks.harbour import log_of
from benchmarks.harness import Say
from benchmarks.shore.session import Work, brief, drain, session
from benchmarks.shore.site import BenchmarkSite, fresh
from shore.tables.readings import READINGS

_EACH: Final = 10
_LARGE_BATCHES: Final = (500,)  # what a bridge makes of a backlog


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--small-logs", type=int, default=9_999, help="with ten readings each")
    parser.add_argument("--large-log", type=int, default=1_000_000, help="readings of the one large log")
    parser.add_argument("--skew-max-records", type=int, default=200_000, help="in one trigger")


def measure(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    found: dict[str, Any] = {
        "small_logs": options.small_logs,
        "readings_of_a_small_log": _EACH,
        "readings_of_the_large_log": options.large_log,
        "max_records": options.skew_max_records,
    }
    with fresh(options.small_logs + 1) as site:
        large, *small = site.open_logs(options.small_logs + 1, say)
        site.append([large], options.large_log, say, sizes=_LARGE_BATCHES)
        site.append(small, _EACH, say)
        rows = options.large_log + _EACH * len(small)
        with session() as work:
            for name in ("cold", "warm"):
                found[name] = _ingest(work, site, name, rows, large, options.skew_max_records)
                brief(found[name], say, name)
    found["rows_per_second"] = found["warm"]["rows_per_second"]
    return found


def _ingest(work: Work, site: BenchmarkSite, name: str, rows: int, large: str, max_records: int) -> dict[str, Any]:
    paths = work.paths(name)
    ran = drain(work.query(site, paths, max_records), site, paths, rows)
    return ran.figures(rows) | {
        "small_logs_done_after_triggers": _small_done(paths.table(READINGS.name), log_of(large))
    }


def _small_done(location: str, large: str) -> int:
    """In which trigger the last reading of a small log was stored; each trigger is a version of the table."""
    whole = _small(DeltaTable(location), large)
    last = DeltaTable(location).version()
    return next(v for v in range(1, last + 1) if _small(DeltaTable(location, version=v), large) == whole)


def _small(table: DeltaTable, large: str) -> int:
    return int(table.to_pyarrow_dataset().count_rows(filter=pc.field("log") != large))
