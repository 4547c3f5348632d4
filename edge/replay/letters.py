"""A site's dead letters, and which of them were replayed, from its Kafka."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import AsyncIterator, Iterable
from typing import Final

from edge.replay.choose import Choice, Plan, add
from fairlead.endpoint import KafkaEndpoint
from fairlead.errors import UnavailableError
from fairlead.order_topic import append_records
from fairlead.records import UNREADABLE, decoder, encode
from fairlead.records.edge import REPLAYS, DeadLetter, Replay
from fairlead.wire.cluster import Cluster
from fairlead.wire.convention import is_data
from fairlead.wire.reader import read_log
from fairlead.wire.types import TP

_letter: Final = decoder(DeadLetter)
_replay: Final = decoder(Replay)


def log_of(site: str) -> str:
    """The site's dead-letter log."""
    return f"deadletters.{site}"


async def look(cluster: Cluster, site: str, choice: Choice) -> Plan:
    """What could be replayed at a site now.

    Raises:
        BrokerError, ConnectionLost: the site's logs cannot be read.
    """
    made = Plan()
    log = log_of(site)
    topics = await cluster.topics(refresh=True)
    if log not in topics:  # its bridge has never run
        return made
    replayed = {each.offset for each in await _replays(cluster, log)} if REPLAYS in topics else set[int]()
    async for offset, letter in letters(cluster, log):
        add(made, offset, letter, replayed, choice)
    return made


async def letters(
    cluster: Cluster, log: str, start: int | None = None, end: int | None = None
) -> AsyncIterator[tuple[int, DeadLetter]]:
    """The letters of a log with their offsets; what no bridge has written is passed over. Raises as ``look``."""
    async for record in read_log(cluster, TP(log), start, end):
        if record.value is not None and is_data(record):
            with contextlib.suppress(*UNREADABLE):
                yield record.offset, _letter.decode(record.value)


async def _replays(cluster: Cluster, log: str) -> list[Replay]:
    found: list[Replay] = []
    async for record in read_log(cluster, TP(REPLAYS)):
        if record.value is not None:
            with contextlib.suppress(*UNREADABLE):
                found.append(_replay.decode(record.value))
    return [each for each in found if each.log == log]


def remember(endpoint: KafkaEndpoint, log: str, offsets: Iterable[int], by: str) -> None:
    """Write that the MQTT broker has these letters' messages again. Blocking; the topic is made at its first use.

    Raises:
        RefusedError: the user may not. UnavailableError: the site does not answer; some may be written.
    """
    now = dt.datetime.now(dt.UTC)
    records = [
        (f"{log}@{offset}".encode(), encode(Replay(log=log, offset=offset, replayed_date_time=now, replayed_by=by)))
        for offset in offsets
    ]
    landed = append_records(endpoint, REPLAYS, records, client_id="fairlead-replay")
    if len(landed) < len(records):
        raise UnavailableError(
            f"{endpoint.site}'s Kafka did not confirm what was replayed",
            hint="these messages went to the bridge; the same command would send up to "
            f"{len(records)} of them once more, which the bridge recognises",
            site=endpoint.site,
        )
