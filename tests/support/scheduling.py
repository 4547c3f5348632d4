"""Which tests share a worker process: those of a file, and all of shore's with Spark and brokers."""

from __future__ import annotations

from xdist.scheduler.loadscope import LoadScopeScheduling

SPARK = "tests/integration/shore/"  # one Spark session, started once


def scope_of(nodeid: str) -> str:
    """The name of the group that a test belongs to; a group runs in one worker."""
    return SPARK if nodeid.startswith(SPARK) else nodeid.partition("::")[0]


class FileScheduling(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist publishes no types
    """Hands out whole files. (pytest-xdist's own ``loadgroup`` groups nothing with pytest 9.2: it appends the group to
    ``Item._nodeid``, which pytest does not read any more.)"""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)
