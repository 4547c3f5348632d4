"""One port with its brokers in a folder of their own, and the logs of very many containers in them.

A Kafka broker keeps a file open for each log and maps two more: with the 20,000 open files that many machines allow, it
opens no log beyond about 18,400. So beyond 10,000 logs the site has three brokers, which share them; each log has one
copy.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from benchmarks.custody.devices import connect
from benchmarks.edge.names import SITE
from benchmarks.replication.world import BROKER, broker_heap
from fairlead.local.sites import LocalSites, SiteSpec
from fairlead.local.state import Profile

LOGS_OF_ONE_BROKER: Final = 10_000
_ONE_COPY: Final = dict.fromkeys(
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


def brokers_for(logs: int) -> int:
    """How many brokers the site gets; local sites have odd numbers."""
    return 1 if logs <= LOGS_OF_ONE_BROKER else 3


@contextlib.contextmanager
def fresh(logs: int, profile: Profile = Profile.FAST) -> Iterator[LocalSites]:
    """A site that nobody has used, with brokers for so many logs; gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="fairlead-bench-") as name:
        sites = LocalSites(Path(name) / "sites")
        try:
            with broker_heap():
                spec = SiteSpec(SITE, properties=BROKER | _ONE_COPY, brokers=brokers_for(logs), mqtt_profile=profile)
                sites.up([spec])
            yield sites
        finally:
            sites.down(purge=True)


def forget_session(sites: LocalSites, client_id: str) -> None:
    """Let the MQTT broker drop what it keeps for a client, so that it queues nothing more for it."""
    client = paho.Client(CallbackAPIVersion.VERSION2, client_id, clean_session=True)
    connect(client, sites.mqtt(SITE, "bridge"))
    client.loop_start()
    until = time.monotonic() + 60
    while not client.is_connected():
        if time.monotonic() > until:
            raise SystemExit(f"the MQTT broker does not let {client_id} in")
        time.sleep(0.01)
    client.disconnect()
    client.loop_stop()
