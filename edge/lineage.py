"""Whether this site's copy of a log is still the log: a seizure cuts off whatever the lost holder did after it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fairlead.custody import CustodyView
from fairlead.wire.batch import split
from fairlead.wire.cluster import Cluster
from fairlead.wire.errors import OFFSET_OUT_OF_RANGE, broker_error
from fairlead.wire.guard import read_positions
from fairlead.wire.types import TP, LogPosition


class Stale(NamedTuple):
    """A copy that goes on beyond a seizure in an older term."""

    cut: int  # offset from which on its records are no part of the log
    end: int
    term: int  # of its last record
    newest: int  # term of the newest seizure


async def stale_copies(cluster: Cluster, view: CustodyView, logs: Iterable[str]) -> Mapping[str, Stale]:
    """Of these logs, those whose copy here is another history than the log.

    A copy is stale when it has, at the offset of a seizure's marker, a record of an older term. Its last term says
    less: a later marker may have landed behind the stale part, because the first record of a term is taken at any end.

    Raises:
        BrokerError, ConnectionLost: the site's Kafka cannot be asked.
    """
    seized = {TP(topic) for topic in logs if view.seizures(topic)}
    here = {TP(topic) for topic in await cluster.topics([tp.topic for tp in seized], refresh=True)} if seized else set()
    found: dict[str, Stale] = {}
    for tp, position in (await read_positions(cluster, here)).items():
        if not isinstance(position, LogPosition):
            continue
        seizures = view.seizures(tp.topic)
        for marker, term in sorted((each.marker, each.term) for each in seizures):
            if marker >= position.end:
                break
            there = await _term_at(cluster, tp, marker)
            if (position.term if there is None else there) < term:
                found[tp.topic] = Stale(marker, position.end, position.term, seizures[-1].term)
                break
    return found


async def _term_at(cluster: Cluster, tp: TP, offset: int) -> int | None:
    """The term of the record at an offset; None when it is not here any more."""
    answer = (await cluster.fetch({tp: offset}, partition_max_bytes=64 * 1024))[tp]
    if answer.error_code == OFFSET_OUT_OF_RANGE:
        return None
    if answer.error_code:
        raise broker_error(answer.error_code, tp)
    for view in split(answer.records):
        if view.header.last_offset >= offset:
            return view.header.producer_epoch
    return None
