"""Waiting until every open link has brought everything: judged by the sites' log ends, not by the replicators' word."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fairlead.clusters import Clusters
from fairlead.errors import UnavailableError
from fairlead.names import parse_log
from fairlead.wire.cluster import Cluster
from fairlead.wire.types import TopicPartition
from topologies.directory import Directory
from topologies.model import Link, Topology
from topologies.users import ADMIN

INTERVAL = 0.2  # seconds between two looks
STATUS_SECONDS = 10.0  # a replicator that lives writes its status file each second


class NotSettled(UnavailableError):
    """A target did not get all that an open link carries."""


async def settle(topology: Topology, directory: Directory, folder: Path, *, patience: float) -> None:
    """Return when, over every link that is not closed by its policy, the target has what the source has.

    Args:
        folder: State folder with the replicators' status files, which tell what links are closed.
        patience: Seconds without any progress after which this fails.

    Raises:
        NotSettled: names a log that is still behind.
    """
    async with Clusters(lambda site: directory.kafka(site, ADMIN), client_id="fairlead-voyage") as clusters:
        before: dict[str, int] = {}
        since = time.monotonic()
        while behind := await behind_of(topology, clusters, folder):
            now = time.monotonic()
            if behind != before:
                before, since = behind, now
            if now - since > patience:
                example = next(iter(behind))
                raise NotSettled(
                    f"{sum(behind.values())} records in {len(behind)} logs are still missing after {patience:.0f} s, "
                    f"for example {example}",
                    hint="look at 'fairlead status'",
                    behind=behind,
                )
            await asyncio.sleep(INTERVAL)
    await told(topology, folder)


async def told(topology: Topology, folder: Path, patience: float = STATUS_SECONDS) -> None:
    """Return when no replicator's status file speaks of records still to come over an open link: it is written a moment
    after the records are there, and the report takes its figures from it. What it still says after ``patience`` seconds
    is for the report to tell."""
    end = time.monotonic() + patience
    while True:
        late = [link for link in links_told(topology, folder) if link["state"] != "closed" and link.get("lag")]
        if not late or time.monotonic() >= end:
            return
        await asyncio.sleep(INTERVAL)


async def behind_of(topology: Topology, clusters: Clusters, folder: Path) -> dict[str, int]:
    """Records missing per link and log."""
    ends = {site: await _ends(await clusters.at(site)) for site in topology.sites}
    closed = _closed(topology, folder)
    out = {}
    for link in topology.directed_links():
        if link.name in closed:
            continue
        there = ends[link.to]
        for topic, end in ends[link.from_].items():
            if _carries(topology, link, topic) and there.get(topic, 0) < end:
                out[f"{topic} over {link.name}"] = end - there.get(topic, 0)
    return out


def _carries(topology: Topology, link: Link, topic: str) -> bool:
    """Whether the target must have the log. What is ``aboard`` is the replicator's choice and not judged here."""
    log = parse_log(topic)
    if log is None or not link.takes(log) or topology.fixed_holder(topic) == link.to:
        return False
    return link.streams[log.stream] != "aboard"


def _closed(topology: Topology, folder: Path) -> set[str]:
    return {link["name"] for link in links_told(topology, folder) if link["state"] == "closed"}


def links_told(topology: Topology, folder: Path) -> Iterator[dict[str, Any]]:
    """Every link as the replicators' status files have it."""
    for site in topology.sites:
        file = folder / "run" / f"replicator.{site}.json"
        if file.exists():
            yield from json.loads(file.read_text(encoding="utf-8"))["links"]


async def _ends(cluster: Cluster) -> dict[str, int]:
    topics = [TopicPartition(topic) for topic in await cluster.topics(refresh=True) if parse_log(topic)]
    found = await cluster.end_offsets(topics)
    return {tp.topic: end for tp, end in found.items() if isinstance(end, int)}
