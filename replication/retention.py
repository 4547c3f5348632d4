"""How long a site keeps its replicas: old records are deleted up to an offset, never the last batch of a log.

Kafka's own time retention would empty a log whose records are all old, and an emptied log forgets its producer state at
the next restart (docs/append-convention.md). So logs have ``retention.ms=-1``, and the replicator deletes what the
site's retention in the topology no longer covers. Age is counted back from the log's newest record, not from the wall
clock: a log that has been waiting for its ship keeps what it has. A record from the future counts as one of now. What
the site itself holds is not touched, since no other site may have it yet.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from fairlead.errors import FairleadError
from fairlead.names import parse_log
from fairlead.wire.cluster import Cluster
from fairlead.wire.types import ProducerState, TopicPartition
from replication.foreign_id import is_ordinary
from topologies.model import Topology

log = logging.getLogger(__name__)

SWEEP_SECONDS: Final = 600.0
AT_ONCE: Final = 1000  # logs in a request
_MILLISECOND: Final = dt.timedelta(milliseconds=1)


def limited(
    topology: Topology, site: str, topics: Mapping[str, int], holder: Callable[[str], str | None]
) -> dict[TopicPartition, int]:
    """Replicas that the site does not keep for ever, with their retention in milliseconds.

    ``topics`` are those of the site, with their number of partitions; ``holder`` tells the site that appends to a log,
    as far as it is known.
    """
    out: dict[TopicPartition, int] = {}
    for topic, partitions in topics.items():
        name = parse_log(topic)
        if name is None or name.stream not in topology.streams or holder(topic) == site:
            continue
        kept = topology.sites[site].retention_of(name.stream)
        if kept != dt.timedelta.max:
            out |= dict.fromkeys(map(TopicPartition, [topic] * partitions, range(partitions)), kept // _MILLISECOND)
    return out


def newest(states: Iterable[ProducerState]) -> int | None:
    """Time of the newest batch that was appended under the convention; None when the broker knows of none."""
    ours = [s.last_timestamp for s in states if not is_ordinary(s.producer_id)]
    return max((moment for moment in ours if moment >= 0), default=None)


async def sweep(cluster: Cluster, kept_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Delete what is older than its log's retention, but for the last record; the new start of each log that was cut.

    Raises:
        FairleadError: the cluster cannot be asked, or refuses.
    """
    cut: dict[TopicPartition, int] = {}
    every = list(kept_ms)
    for first in range(0, len(every), AT_ONCE):
        logs = every[first : first + AT_ONCE]
        states = await cluster.producer_states(logs)
        # A writer whose clock is ahead must not make everything before its record old, nor must this machine's clock.
        present = int(time.time() * 1000)
        times = {tp: min(found, present) for tp in logs if (found := newest(states[tp])) is not None}
        wanted = {tp: moment - kept_ms[tp] for tp, moment in times.items() if moment > kept_ms[tp]}
        if not wanted:
            continue
        offsets = await cluster.offsets_at_times(wanted)
        starts, ends = await cluster.start_offsets(list(wanted)), await cluster.end_offsets(list(wanted))
        before = {}
        for tp in wanted:
            offset, start, end = offsets[tp], starts[tp], ends[tp]
            if isinstance(offset, int) and isinstance(start, int) and isinstance(end, int):
                upto = min(offset, end - 1)
                if upto > start:
                    before[tp] = upto
        if before:
            done = await cluster.delete_records(before)
            cut |= {tp: start for tp, start in done.items() if isinstance(start, int)}
    return cut


async def keep_sweeping(cluster: Cluster, kept_ms: Callable[[], Mapping[TopicPartition, int]]) -> None:
    """Sweep every ``SWEEP_SECONDS`` until cancelled; a sweep that fails is tried again at the next."""
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        try:
            if cut := await sweep(cluster, kept_ms()):
                log.info("retention: deleted the oldest records of %d logs", len(cut))
        except FairleadError as error:
            log.warning("retention: %s", error.what)
