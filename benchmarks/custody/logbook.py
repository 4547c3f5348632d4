"""What the logs hold in the end, at both sites: every reading that was published, once, and one term after another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import is_data, is_marker
from fairlead.kafka.protocol.batch import split
from fairlead.kafka.protocol.record import decode_batch
from fairlead.kafka.protocol.types import TP

_AT_ONCE = 500
Content = tuple[list[tuple[int, int, int]], list[tuple[int, int]], list[int]]
"""Batches (offset, term, CRC), markers (offset, term), sequences of readings."""


async def check(port: Cluster, ship: Cluster, numbers: Sequence[str], *, before: int, after: int) -> None:
    """Compare the copies of every log with each other and with what was published.

    A reading from on board may be in the first term: as a stray it may come to the port before the LOAD does.

    Raises:
        SystemExit: a log is not as it must be.
    """
    for start in range(0, len(numbers), _AT_ONCE):
        logs = [f"containers.{number}" for number in numbers[start : start + _AT_ONCE]]
        ashore, aboard = await _read(port, logs), await _read(ship, logs)
        for log in logs:
            batches, markers, sequences = aboard[log]
            wrong = ashore[log] != aboard[log]
            wrong |= sequences != list(range(before + after))
            wrong |= [term for _, term in markers] != [1, 2] or not before < markers[-1][0] <= before + after + 1
            wrong |= any(term != (1 if offset < markers[-1][0] else 2) for offset, term, _ in batches)
            if wrong:
                raise SystemExit(f"{log} is not as it must be: on board {aboard[log]}, ashore {ashore[log]}")


async def _read(cluster: Cluster, logs: Sequence[str]) -> dict[str, Content]:
    found: dict[str, Content] = defaultdict(lambda: ([], [], []))
    ends = await cluster.end_offsets([TP(log) for log in logs])
    positions = {tp: 0 for tp, end in ends.items() if isinstance(end, int) and end > 0}
    while positions:
        for tp, part in (await cluster.fetch(positions, max_wait_ms=0)).items():
            for start, stop, header in split(part.records):
                batches, markers, sequences = found[tp.topic]
                batches.append((header.base_offset, header.producer_epoch, header.crc))
                for record in decode_batch(part.records, start, stop):
                    if is_marker(record):
                        markers.append((record.offset, header.producer_epoch))
                    elif is_data(record):
                        sequences.append(msgspec.json.decode(record.value or b"")["device"]["sequence"])
                positions[tp] = header.next_offset
        positions = {tp: at for tp, at in positions.items() if at < ends[tp]}  # type: ignore[operator]
    return found
