"""Fills the alert engine with the newest readings of every container at the site, before the first message.

Reads the logs that the site holds, and its own strays, most of them of containers whose log it does not hold yet. Reads
as far back as the longest dwell needs, at most ``DEEPEST`` records per log, and not beyond the marker of the site's own
term: what happened before was judged where the container was then.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Iterator, Sequence

from edge.alerts.engine import AlertEngine
from edge.holdings import CustodyState, Holdings
from edge.logwriter.tail_reader import LogTail, TailReader
from edge.messages import MessageId, ReadingMessage
from edge.strays.store import readable
from edge.writer_registry import WriterRegistry
from fairlead.kafka.convention import is_data, is_marker, received_ms
from fairlead.kafka.protocol.errors import BrokerError, CorruptBatch
from fairlead.kafka.protocol.record import Record
from fairlead.records import UNREADABLE, decoder
from fairlead.records.reading import Reading, milliseconds

log = logging.getLogger(__name__)

DEPTH = 28  # records per log: almost 7 hours of readings every 15 minutes
DEEPEST = 256
_AT_ONCE = 200  # logs per pass; their tails are in memory at the same time
_STRAYS = 20_000

_reading = decoder(Reading)


async def recall_readings(engine: AlertEngine, writers: WriterRegistry, holdings: Holdings, tails: TailReader) -> None:
    """Give the engine the newest stored readings, and append the alerts that are missing in the log."""
    started, seen = time.monotonic(), 0
    given = holdings.view.held_by(holdings.site)
    here = {topic.partition(".")[2] for topic in given}  # also containers whose log's copy here is not complete yet
    held = sorted(topic for topic in given if holdings.state(topic) is CustodyState.HELD)
    for first in range(0, len(held), _AT_ONCE):
        for topic, tail in await _tails(held[first : first + _AT_ONCE], tails, engine.reach_ms):
            own = own_term(tail)
            sure_from = sure_from_ms(own, engine.reach_ms)
            for message, came_ms in readings_of(topic, own.records):
                seen += 1
                sure = message.device_ms >= sure_from
                writers.alerts.append_alerts(engine.recall(message, topic, _now(), received_ms=came_ms, sure=sure))
        await asyncio.sleep(0)
    for message, came_ms in await _strays(writers, tails):
        if engine.yard is not None and message.log not in given:
            continue
        seen += 1
        here.add(message.number)
        # A log that the site holds has its strays already, or gets them now.
        stored_in = message.log if holdings.state(message.log) is CustodyState.HELD else writers.strays.log
        writers.alerts.append_alerts(engine.recall(message, stored_in, _now(), received_ms=came_ms))
    writers.alerts.append_alerts(engine.settle(here, _now()))
    log.info(
        "%s: the alert engine has read %d containers (%d readings) again in %.1f s",
        holdings.site,
        len(here),
        seen,
        time.monotonic() - started,
    )


def readings_of(topic: str, records: Iterable[Record]) -> Iterator[tuple[ReadingMessage, int]]:
    """Yield the readings in the records of a container's log, in order, each with its time of receipt."""
    for record in records:
        if record.value is not None and is_data(record):
            message = _message(topic, record.value)
            if message is not None:
                yield message, received_ms(record)


def own_term(tail: LogTail) -> LogTail:
    """Return the part of a held log's tail from its newest marker on: the readings since the site has the container."""
    marker = next((n for n in reversed(range(len(tail.records))) if is_marker(tail.records[n])), None)
    if marker is None:
        return tail
    first = tail.records[marker].offset
    return LogTail(first, first, tail.end, tail.records[marker + 1 :])


def deep_enough(tail: LogTail, reach_ms: int) -> bool:
    """Return whether a tail covers at least ``reach_ms`` of the container's past."""
    if tail.whole or not tail.records or any(is_marker(record) for record in tail.records):
        return True
    return tail.records[-1].timestamp_ms - tail.records[0].timestamp_ms >= reach_ms


def sure_from_ms(tail: LogTail, reach_ms: int) -> int:
    """Return the device time from which on readings of a tail can be judged; those before the tail are not known.

    Only an alert about one of the newest readings can be missing, so this leaves none out.
    """
    if tail.whole or not tail.records:
        return 0
    first, last = tail.records[0].timestamp_ms, tail.records[-1].timestamp_ms
    return first + min(reach_ms, max(0, last - first) // 2)


async def _tails(topics: Sequence[str], tails: TailReader, reach_ms: int) -> list[tuple[str, LogTail]]:
    found = await asyncio.gather(*(_tail(topic, tails, DEPTH) for topic in topics))
    short = [
        topic for topic, tail in zip(topics, found, strict=True) if tail is not None and not deep_enough(tail, reach_ms)
    ]
    deeper = dict(zip(short, await asyncio.gather(*(_tail(topic, tails, DEEPEST) for topic in short)), strict=True))
    return [
        (topic, better)
        for topic, tail in zip(topics, found, strict=True)
        if (better := deeper.get(topic) or tail) is not None
    ]


async def _tail(topic: str, tails: TailReader, depth: int) -> LogTail | None:
    try:
        return await tails.read(topic, depth)
    except (BrokerError, CorruptBatch) as error:
        log.warning("%s: cannot read the tail; the alert engine starts without history there: %s", topic, error)
        return None


async def _strays(writers: WriterRegistry, tails: TailReader) -> list[tuple[ReadingMessage, int]]:
    """Return the newest readings that wait in this site's strays log, each with its time of receipt."""
    index = writers.strays.index
    waiting = {topic: frozenset(index.offsets(topic)) for topic in index.logs()}
    offsets = [offset for each in waiting.values() for offset in each]
    if not offsets:
        return []
    first = max(min(offsets), index.end - _STRAYS)
    messages: list[tuple[ReadingMessage, int]] = []
    async for record in tails.records(writers.strays.log, first, index.end):
        stray = readable(record)
        if stray is None or stray.event or record.offset not in waiting.get(stray.log, ()):
            continue
        message = _message(stray.log, stray.payload)
        if message is not None:
            messages.append((message, milliseconds(stray.received_date_time)))
    return messages


def _message(topic: str, payload: bytes) -> ReadingMessage | None:
    try:
        reading = _reading.decode(payload)
    except UNREADABLE:
        return None
    device = reading.device
    sent_ms = milliseconds(device.device_date_time)
    identity = MessageId(device.device_id, device.boot_id, device.sequence)
    return ReadingMessage(topic, topic.partition(".")[2], reading, identity, sent_ms)


def _now() -> int:
    return time.time_ns() // 1_000_000
