"""A replicator process that stops itself (SIGSTOP) right before it sends a certain batch.

Its argument is FOLDER. It reads a topology, a site, each site's address, a topic and an offset from stdin. It prints
a line before it stops, and the broker's answer after it was resumed.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping

from pydantic import SecretStr

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.batch import Buffer, parse_header
from fairlead.kafka.protocol.types import TP, ProduceResult
from replication.replicator import Replicator
from topologies.model import Topology


def sleep_before(log: TP, offset: int) -> None:
    """Stop this process once, before it sends the batch for this offset."""
    send = Cluster.produce_to
    slept = False

    async def sending(
        self: Cluster,
        node: int,
        batches: Mapping[TP, Buffer],
        timeout_ms: int,
        incarnation: int | None = None,
        topic_ids: Mapping[TP, bytes] | None = None,
    ) -> dict[TP, ProduceResult]:
        nonlocal slept
        is_it = not slept and log in batches and parse_header(batches[log]).base_sequence == offset
        if is_it:
            slept = True
            await self.pool.get("produce", node)  # the connection is open, as in the middle of copying
            say("asleep")
            os.kill(os.getpid(), signal.SIGSTOP)
        answers = await send(self, node, batches, timeout_ms, incarnation, topic_ids)
        if is_it:
            say(f"answered {answers[log].error_code}")
        return answers

    Cluster.produce_to = sending  # type: ignore[method-assign]


def say(words: str) -> None:
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


async def main() -> None:
    given = json.loads(sys.stdin.readline())

    def endpoint(site: str) -> KafkaEndpoint:
        bootstrap, user, password = given["kafka"][site]
        return KafkaEndpoint(site, tuple((host, port) for host, port in bootstrap), user, SecretStr(password))

    sleep_before(TP(given["topic"]), given["offset"])
    topology, site = Topology.model_validate(given["topology"]), given["site"]
    await Replicator(topology, site, endpoint(site), endpoint).run(asyncio.Event())


if __name__ == "__main__":
    asyncio.run(main())
