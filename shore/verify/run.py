"""``verify``: every check of the catalogue, one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Literal

from fairlead.endpoint import KafkaEndpoint
from shore.damage import READING, damaged, made_again
from shore.feeds.readers import readers_here
from shore.feeds.tables import customers_tables, kept_tables
from shore.opened import check_tables, mending
from shore.places import CUSTOMERS, Places
from shore.tables import TABLES
from shore.verify.catalogue import DERIVED, FROM_LOGS
from shore.verify.derived import check_derived
from shore.verify.feeds import check_customer, check_feeds
from shore.verify.logs import check_logs
from shore.verify.model import TableCheck, Verification
from topologies.model import Topology

Tell = Callable[[str], None]


def verify(
    topology: Topology,
    endpoint: KafkaEndpoint,
    folder: Path,
    tables: Collection[str] | None = None,
    *,
    tell: Tell = lambda what: None,
) -> Verification:
    """Prove that tables equal logs. Writes nothing; shore may run meanwhile.

    A table that cannot be read (somebody changed or deleted its files) is one that differs; what is made from it is not
    compared, the others are.

    Args:
        endpoint: Kafka of the site where shore runs.
        folder: The topology's state folder.
        tables: Only the checks that these tables are part of; all when None.
        tell: Told what is being compared.

    Raises:
        UnknownNameError: there is no such table.
        CheckpointDamagedError: it is not known how far a job has read.
        ConnectionLost, RequestTimeout: Kafka does not answer.
    """
    check_tables(tables or (), kept_tables(topology))
    places = Places.of(folder, topology.shore.storage if topology.shore else None)
    began = time.monotonic()
    checks = tuple(_checks(topology, endpoint, places, frozenset(tables) if tables else None, tell))
    return Verification(tables=checks, seconds=round(time.monotonic() - began, 1))


def _checks(
    topology: Topology, endpoint: KafkaEndpoint, places: Places, wanted: frozenset[str] | None, tell: Tell
) -> Iterator[TableCheck]:
    for entry in FROM_LOGS:
        if wanted is None or not wanted.isdisjoint(entry.tables):
            tell(f"comparing {entry.name} with the logs")
            check = partial(check_logs, entry, topology, endpoint, places)
            yield _read(places, entry.name, "logs", entry.tables, (), check)
    for derived in DERIVED:
        if wanted is None or derived.table in wanted:
            tell(f"comparing {derived.table} with what {' and '.join(derived.inputs)} give")
            check = partial(check_derived, derived, places)
            yield _read(places, derived.table, "derived", (derived.table,), derived.inputs, check)
    readers = readers_here(topology)
    if readers and (wanted is None or "feeds" in wanted):
        tell("comparing feeds with the customers' feeds")
        check = partial(check_feeds, readers, endpoint, places)
        yield _read(places, "feeds", "logs", ("feeds",), tuple(TABLES), check)
    for name in customers_tables(topology):
        if wanted is None or not wanted.isdisjoint(("feeds", name)):
            tell(f"comparing {name} with the feed")
            check = partial(check_customer, endpoint, places, name.removeprefix(CUSTOMERS))
            yield _read(places, name, "logs", (), (), check, made_again(places, name))


def _read(
    places: Places,
    name: str,
    kind: Literal["logs", "derived"],
    own: tuple[str, ...],
    inputs: tuple[str, ...],
    check: Callable[[], TableCheck],
    todo: str = "",
) -> TableCheck:
    """One check; ``todo`` is what is to be done when something cannot be read that is no table of shore's own."""
    try:
        return check()
    except READING as error:
        bad = damaged(places, dict.fromkeys((*own, *inputs)))
        notes = [f"table {each} cannot be read: {bad[each]}; {made_again(places, each)}" for each in own if each in bad]
        if bad and not notes:
            note = f"it is made from {', '.join(bad)}, which cannot be read"
            return TableCheck(table=name, kind=kind, same=None, notes=(note,))
        if not bad:
            why = (str(error).splitlines() or [type(error).__name__])[0]
            todo = mending(why) or todo or made_again(places, own[0])
            notes = [f"it, or a table that it is made from, cannot be read: {why}; {todo}"]
        return TableCheck(table=name, kind=kind, same=False, unreadable=True, notes=tuple(notes))
