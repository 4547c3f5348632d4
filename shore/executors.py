"""Whether a cluster gives an executor: without one Spark waits for ever, and says so to nobody."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from fairlead.errors import UnavailableError

PATIENCE = 120.0  # seconds; an executor that can come is there after 5 to 20


def are_due(master: str, settings: Mapping[str, str]) -> bool:
    """Whether executors must come before there is work: not in one process, nor where they are made on demand."""
    on_demand = settings.get("spark.dynamicAllocation.enabled", "false").lower() == "true"
    return not master.startswith("local") and not on_demand


def await_first(count: Callable[[], int], master: str, *, patience: float = PATIENCE, pause: float = 0.5) -> None:
    """Return when the cluster has given an executor.

    Args:
        count: How many have registered with this driver.

    Raises:
        UnavailableError: none came in ``patience`` seconds.
    """
    end = time.monotonic() + patience
    while not count():
        if time.monotonic() > end:
            raise UnavailableError(
                f"Spark's master {master} gave no executor within {patience:.0f} s",
                hint="has it workers with free cores and memory? Can they reach this driver? They go to "
                "spark.driver.host, which must be a name of this machine that they can resolve, and this machine must "
                "listen there (spark.driver.bindAddress); their logs are in the workers' folders",
                master=master,
            )
        time.sleep(pause)
