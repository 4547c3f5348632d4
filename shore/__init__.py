"""PySpark: the source that reads thousands of logs, the Delta tables, the jobs that keep them, and reading them back.

In: a site's logs. Out: Delta tables, and the customers' feeds. Imports ``fairlead``'s shared parts and ``topologies``,
nothing else. ``shore.run`` runs the jobs; ``shore.read`` reads the tables without a JVM; ``shore.datasource`` is what
Spark calls. ``source`` and ``sink`` are its two halves, ``tables`` defines the tables, ``delta`` opens and writes them,
``jobs`` keeps them. Open ``jobs/runner.py`` first.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # this module is imported in every worker process of Spark: it must cost nothing
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
    """Run shore's jobs; see ``shore.jobs.runner.run``, whose other arguments are ``more``."""
    from shore.jobs.runner import run as run_jobs  # readers of tables need no Spark

    return run_jobs(topology, endpoint, folder, jobs, once=once, **more)
