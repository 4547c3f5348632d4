"""A running shore as Prometheus metrics: the states of its jobs, and what it lost before it could read it.

The label ``query`` names the job: Prometheus itself calls what it scrapes ``job``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import get_args

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fairlead.scrape import ADDRESS, MetricsServer, Snapshot, serve
from shore.jobs.status import RunMonitor, State


class ShoreCollector(Collector):
    """Makes metrics of the snapshots at each scrape."""

    def __init__(self, snapshots: Callable[[], Iterable[Snapshot]]) -> None:
        self._snapshots = snapshots

    def collect(self) -> Iterator[Metric]:
        """All metrics, as they are now."""
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
        for each in self._snapshots():
            topology, losses = str(each["topology"]), each["losses"]
            for name, job in each["jobs"].items():
                for known in get_args(State):
                    state.add_metric([topology, name, known], float(job.state == known))
            for name in sorted({*each["jobs"], *(loss.job for loss in losses)}):
                own = [loss for loss in losses if loss.job == name]
                records.add_metric([topology, name], sum(loss.records for loss in own))
                logs.add_metric([topology, name], len(own))
        yield from (state, records, logs)

    def describe(self) -> Iterable[Metric]:
        """Nothing is collected just to be registered."""
        return ()


def start_metrics(watch: RunMonitor, port: int, address: str = ADDRESS) -> MetricsServer:
    """Serve the metrics of a run, see ``fairlead.scrape.serve``."""
    return serve(ShoreCollector, [watch], port, address)
