"""Decide which tests share a worker process, and which start first.

A file stays together. Two workers start with the files of shore that use Spark, each with one session for all of them;
they keep both cores busy: a voyage beside them waits longer for a Python worker than Spark allows (ten seconds). A
third worker starts with the others. Long files come first, so that no worker is still running one when the others have
finished.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from xdist.scheduler.loadscope import LoadScopeScheduling

SPARK: Final = "tests/integration/shore/"
SESSIONS: Final = 2  # workers that start with Spark
LONG: Final = (
    "tests/integration/replication/test_seizure.py",
    "tests/integration/replication/test_states_of_history.py",
    "tests/integration/replication/test_faults_leaders.py",
    "tests/e2e/test_duck_voyage.py",
    "tests/integration/replication/test_faults_kills.py",
    "tests/e2e/test_trouble.py",
    "tests/e2e/test_cut_link.py",
    "tests/integration/edge/test_faults.py",
    "tests/integration/acl/test_rotation.py",
    "tests/integration/replication/test_policy.py",
    "tests/integration/replication/test_states_of_disks.py",
    "tests/integration/replication/test_copies.py",
    "tests/integration/edge/test_seizure.py",
    "tests/integration/replication/test_tails.py",
    "tests/unit/edge/custody/model/test_model.py",
    "tests/integration/replication/test_histories.py",
    "tests/integration/edge/test_kills.py",
    "tests/integration/replication/test_without_past.py",
    "tests/integration/replication/test_graphs.py",
    "tests/integration/replication/test_audit_voids.py",
    "tests/integration/fairlead/kafka/test_faults.py",
    "tests/integration/replication/test_faults_disk.py",
    "tests/integration/fairlead/local/test_brokers.py",
    "tests/integration/replication/test_faults_network.py",
    "tests/integration/edge/test_alert_first.py",
    "tests/integration/replication/test_links.py",
    "tests/integration/replication/test_content_wrap.py",
    "tests/integration/replication/test_faults_credentials.py",
)
"""Other groups of more than ten seconds, in the order in which they start.

After them start the other groups that run sites, and last those of ``tests/unit``, the ones with many tests first.
"""
UNIT: Final = "tests/unit/"


def scope_of(nodeid: str) -> str:
    """Return the name of the group that a test belongs to; a group runs in one worker."""
    return nodeid.partition("::")[0]


def longest(waiting: Collection[str], worker: int) -> str | None:
    """Return the waiting group that a worker (counted from 0) must start with; None when only short ones wait."""
    spark = [scope for scope in waiting if scope.startswith(SPARK)]
    others = [scope for scope in LONG if scope in waiting]
    others += [scope for scope in waiting if scope not in LONG and not scope.startswith((SPARK, UNIT))]
    return next(iter([*spark, *others] if worker < SESSIONS else [*others, *spark]), None)


class FileScheduling(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist publishes no types
    """Schedule whole files to workers.

    pytest-xdist's own ``loadgroup`` groups nothing with pytest 9.2: it appends the group to ``Item._nodeid``, which
    pytest does not read any more.
    """

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        first = longest(self.workqueue, self.nodes.index(node))
        if first is not None:
            self.workqueue.move_to_end(first, last=False)
        super()._assign_work_unit(node)
