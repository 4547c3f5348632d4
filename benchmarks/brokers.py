"""The brokers that benchmarks start, in folders of their own."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.harbour import SITE
from fairlead.local.sites import LocalSites, SiteSpec
from fairlead.local.state import Profile

# 256 MB is enough for 10,000 logs, and too little for twice that many. One of seven brokers with 100,000 logs keeps
# half a gigabyte; in an old generation that is nearly full, it collects garbage for seconds, again and again.
BROKER_HEAP: Final = "-Xms1200m -Xmx1200m -Xmn200m"
# A broker that gives 20,000 logs all it has must not be taken for dead: local ones have 3 s, Kafka's default is 9.
BROKER: Final = {"broker.session.timeout.ms": "30000"}
LOGS_OF_ONE_BROKER: Final = 10_000
MOST_LOGS_OF_A_BROKER: Final = 15_000
ONE_COPY: Final = dict.fromkeys(
    (
        "default.replication.factor",
        "min.insync.replicas",
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
        "transaction.state.log.min.isr",
        "share.coordinator.state.topic.replication.factor",
        "share.coordinator.state.topic.min.isr",
    ),
    "1",
)
"""Properties of a site with several brokers that has one copy of each log."""


def brokers_for(logs: int) -> int:
    """How many brokers a site needs for so many logs; local sites have odd numbers.

    A Kafka broker keeps a file open for each log and maps two more: with the 20,000 open files that many machines
    allow, it opens no log beyond about 18,400.
    """
    if logs <= LOGS_OF_ONE_BROKER:
        return 1
    return max(3, -(-logs // MOST_LOGS_OF_A_BROKER) | 1)


@contextlib.contextmanager
def broker_heap() -> Iterator[None]:
    """The Java that is started now gets another heap: this variable wins over the command line."""
    before = os.environ.get("_JAVA_OPTIONS")
    os.environ["_JAVA_OPTIONS"] = BROKER_HEAP
    try:
        yield
    finally:
        if before is None:
            del os.environ["_JAVA_OPTIONS"]
        else:
            os.environ["_JAVA_OPTIONS"] = before


@contextlib.contextmanager
def fresh_port(logs: int, profile: Profile = Profile.FAST) -> Iterator[LocalSites]:
    """A fresh port with brokers for so many logs; removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="fairlead-bench-") as name:
        sites = LocalSites(Path(name) / "sites")
        try:
            with broker_heap():
                spec = SiteSpec(SITE, properties=BROKER | ONE_COPY, brokers=brokers_for(logs), mqtt_profile=profile)
                sites.up([spec])
            yield sites
        finally:
            sites.down(purge=True)
