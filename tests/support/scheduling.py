"""Decide which tests share a worker process, and which start first.

A file stays together. Two kinds of files keep both cores busy, and a Spark that waits longer than ten seconds for a
Python worker gives up: so at most two run at a time. The first worker starts with the files of shore, which then share
one Spark session; the second starts with voyages. Further workers start with the others, which mostly wait for brokers.
Long files come first, so that no worker is still running one when the others have finished. A worker stays in a folder
as long as it has files, because they share sites and a browser.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from xdist.scheduler.loadscope import LoadScopeScheduling

SPARK: Final = "tests/integration/shore/"
VOYAGES: Final = "tests/e2e/"
LONG: Final = (
    "tests/integration/replication/test_seizure.py",
    "tests/integration/replication/test_states_of_history.py",
    "tests/integration/replication/test_faults_leaders.py",
    "tests/integration/replication/test_faults_kills.py",
    "tests/integration/fairlead/kafka/test_logins.py",
    "tests/integration/replication/test_sharing.py",
    "tests/integration/board/test_pages.py",
    "tests/integration/board/test_board.py",
    "tests/integration/trust/test_stolen_ship.py",
    "tests/integration/board/test_portal.py",
    "tests/integration/board/test_sharing.py",
    "tests/integration/board/test_isolation.py",
    "tests/integration/board/test_oidc.py",
    "tests/integration/edge/test_custody.py",
    "tests/integration/fairlead/local/test_wheel.py",
    "tests/integration/board/test_files.py",
    "tests/integration/replication/test_faults_quotas.py",
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


def folder_of(scope: str) -> str:
    return scope.rpartition("/")[0]


def longest(waiting: Collection[str], worker: int, last: str = "") -> str | None:
    """Return the waiting group that a worker (counted from 0) must start with; None when only short ones wait.

    Args:
        last: The group that the worker was given last.
    """
    spark = [scope for scope in waiting if scope.startswith(SPARK)]
    voyages = [scope for scope in waiting if scope.startswith(VOYAGES)]
    others = [scope for scope in LONG if scope in waiting]
    others += [scope for scope in waiting if scope not in LONG and not scope.startswith((SPARK, VOYAGES, UNIT))]
    others.sort(key=lambda scope: folder_of(scope) != folder_of(last))
    short = [scope for scope in waiting if scope.startswith(UNIT)] if spark or voyages else []
    match worker:
        case 0:
            order = [*spark, *voyages, *others]
        case 1:
            order = [*voyages, *others, *spark]
        case _:
            order = [*others, *short, *voyages, *spark]
    return next(iter(order), None)


class FileScheduling(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist publishes no types
    """Schedule whole files to workers.

    pytest-xdist's own ``loadgroup`` groups nothing with pytest 9.2: it appends the group to ``Item._nodeid``, which
    pytest does not read any more.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._last: dict[Any, str] = {}

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        first = longest(self.workqueue, self.nodes.index(node), self._last.get(node, ""))
        if first is not None:
            self.workqueue.move_to_end(first, last=False)
        self._last[node] = next(iter(self.workqueue))
        super()._assign_work_unit(node)
