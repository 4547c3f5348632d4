"""Run a replicator that is killed right after it has deleted a copy to rebuild it.

Reads its topology and endpoints as one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys

from pydantic import SecretStr

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.endpoint import KafkaEndpoint
from replication.custody import rebuild as remake
from replication.replicator import Replicator
from topologies.model import Topology


async def die(cluster: Cluster, topic: str, topic_id: bytes) -> None:
    while True:
        there = (await cluster.topics([topic], refresh=True)).get(topic)
        if there is None or there.topic_id != topic_id:
            break
        await asyncio.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)


async def main() -> None:
    given = json.loads(sys.stdin.readline())

    def endpoint(site: str) -> KafkaEndpoint:
        bootstrap, user, password = given["kafka"][site]
        return KafkaEndpoint(site, tuple((host, port) for host, port in bootstrap), user, SecretStr(password))

    remake.until_gone = die
    topology, site = Topology.model_validate(given["topology"]), given["site"]
    await Replicator(topology, site, endpoint(site), endpoint).run(asyncio.Event())


if __name__ == "__main__":
    asyncio.run(main())
