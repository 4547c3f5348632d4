"""The PySpark part: a source that reads thousands of logs, jobs that keep Delta tables, and readers of these tables.

In: a site's logs. Out: Delta tables, and the customers' feeds. Of our own packages, this one imports only ``fairlead``
and ``topologies``. ``shore.run`` runs the jobs; ``shore.read`` reads the tables without a JVM; Spark calls
``shore.datasource``. ``source`` reads from Kafka and ``sink`` writes to it, ``tables`` defines the tables, ``delta``
opens and writes them, ``jobs`` keeps them up to date. Open ``jobs/runner.py`` first.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # every worker process of Spark imports this module, so it must cost nothing
    from fairlead.kafka.endpoint import Endpoint
    from shore.jobs.status import JobStatus
    from topologies.model import Topology


def run(
    topology: Topology,
    endpoint: Endpoint,
    folder: Path,
    jobs: Sequence[str] | None = None,
    *,
    once: bool = False,
    **more: Any,
) -> dict[str, JobStatus]:
    """Run shore's jobs: ``shore.jobs.runner.run``, which gets ``more`` as its other arguments."""
    from shore.jobs.runner import run as run_jobs  # reading tables needs no Spark

    return run_jobs(topology, endpoint, folder, jobs, once=once, **more)
