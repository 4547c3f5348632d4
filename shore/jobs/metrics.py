"""Prometheus metrics of a running shore: state, rows, lag, batch time and kept state of each query, lost records, and
the last maintenance of its tables.

The label ``query`` names the job, because Prometheus uses the label ``job`` for the scrape target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from fairlead.scrape import Snapshot
from shore.jobs.status import State

_Family = type[CounterMetricFamily] | type[GaugeMetricFamily]
_OF_QUERIES: Final[tuple[tuple[str, str, _Family, Callable[[Any], float | None]], ...]] = (
    (
        "fairlead_shore_rows",
        "Rows that the query has read since the run began.",
        CounterMetricFamily,
        lambda job: job.rows,
    ),
    (
        "fairlead_shore_batches",
        "Batches with rows since the run began.",
        CounterMetricFamily,
        lambda job: job.batches,
    ),
    ("fairlead_shore_starts", "Starts of the query in this run.", CounterMetricFamily, lambda job: job.starts),
    (
        "fairlead_shore_batch_seconds",
        "How long the last batch took.",
        GaugeMetricFamily,
        lambda job: job.batch_seconds,
    ),
    ("fairlead_shore_state_rows", "Rows of state that the query keeps.", GaugeMetricFamily, lambda job: job.state_rows),
    ("fairlead_shore_state_bytes", "Memory of that state.", GaugeMetricFamily, lambda job: job.state_bytes),
)
_OF_LAGS: Final[tuple[tuple[str, str, Callable[[Any], float | None]], ...]] = (
    (
        "fairlead_shore_lag_seconds",
        "Query of logs: how much newer the newest record is than the newest that was read. Others: since when the "
        "oldest unread row is there.",
        lambda lag: lag.seconds,
    ),
    (
        "fairlead_shore_lag_records",
        "Records of logs, or rows of tables, not read yet.",
        lambda lag: lag.records,
    ),
)
_OF_UPKEEP: Final[tuple[tuple[str, str, Callable[[Any], float | None]], ...]] = (
    (
        "fairlead_shore_maintenance_timestamp_seconds",
        "When compact, vacuum or expire was last carried out.",
        lambda done: done.at.timestamp(),
    ),
    (
        "fairlead_shore_maintenance_failed",
        "1 where a table could not be looked after the last time.",
        lambda done: float(done.error is not None),
    ),
)


def _add(
    families: Iterable[tuple[Callable[[Any], float | None], Metric]], topology: str, found: Mapping[str, Any]
) -> None:
    """Add one sample for each name and family; unknown values get none."""
    for name, each in found.items():
        for how, family in families:
            value = how(each)
            if value is not None:
                family.add_metric([topology, name], value)  # type: ignore[attr-defined]  # both families have it


def shore_metrics(taken: Sequence[Snapshot]) -> Iterator[Metric]:
    """Yield all metrics of the runs with these snapshots."""
    state = GaugeMetricFamily(
        "fairlead_shore_job_state", "1 for the state that the job is in.", labels=["topology", "query", "state"]
    )
    records = GaugeMetricFamily(
        "fairlead_shore_lost_records",
        "Records that were gone from their logs before the job read them, and nobody has acknowledged it.",
        labels=["topology", "query"],
    )
    logs = GaugeMetricFamily(
        "fairlead_shore_lost_logs",
        "Logs of which the job lost some.",
        labels=["topology", "query"],
    )
    queries = [(how, family(name, help_, labels=["topology", "query"])) for name, help_, family, how in _OF_QUERIES]
    lags = [(how, GaugeMetricFamily(name, help_, labels=["topology", "query"])) for name, help_, how in _OF_LAGS]
    kept = [(how, GaugeMetricFamily(name, help_, labels=["topology", "verb"])) for name, help_, how in _OF_UPKEEP]
    for each in taken:
        topology, losses = str(each["topology"]), each["losses"]
        _add(queries, topology, each["jobs"])
        _add(lags, topology, each["lags"])
        _add(kept, topology, each["maintenance"])
        for name, job in each["jobs"].items():
            for known in get_args(State):
                state.add_metric([topology, name, known], float(job.state == known))
        for name in sorted({*each["jobs"], *(loss.job for loss in losses)}):
            own = [loss for loss in losses if loss.job == name]
            records.add_metric([topology, name], sum(loss.records for loss in own))
            logs.add_metric([topology, name], len(own))
    yield from (state, records, logs, *(family for _, family in (*queries, *lags, *kept)))
