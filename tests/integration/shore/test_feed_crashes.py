"""A crash before or after every write of a delivery to a customer's feed, then the delivery again; without Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from fairlead.wire.convention import is_data
from shore.checkpoint import write_checkpoint
from shore.feeds.entitlement import TOUCHED
from shore.feeds.writer import create_feeds
from shore.jobs.feeds import deliver
from shore.places import Places
from shore.repair.logs import find_odd, repair
from shore.tables import TABLES
from shore.verify import verify
from shore.verify.catalogue import FROM_LOGS
from tests.integration.shore.world import MINUTE, T0, World, booking, reading
from tests.unit.shore.test_crash_points import crash_everywhere

pytestmark = pytest.mark.integration


def test_nobody_gets_a_record_twice_and_none_is_missing(world: World, tmp_path: Path) -> None:
    places, box, topology = Places.of(tmp_path), world.box(0), world.topology()
    for name in TABLES:
        TABLES[name].create(places.table(name))
    write_checkpoint(places, "feeds", {}, "{}")
    create_feeds(world.endpoint, [world.customer])
    world.append({world.bookings: [booking(f"B-{world.tag}", world.customer, box, T0, None)]})
    touched = pa.table([[box], pa.nulls(1), pa.nulls(1)], names=TOUCHED.names).cast(TOUCHED)

    rounds = 0

    def store(round_: int) -> None:
        """What jobs ``readings`` and ``operations`` do with four more readings."""
        more = [reading(box, round_ * 4 + i, T0 + (round_ * 4 + i) * MINUTE) for i in range(4)]
        world.append({world.log(box): more})
        positions = {world.log(box): 1 + (round_ + 1) * 4, world.bookings: 2}
        for entry in FROM_LOGS:
            if {"readings", "booking_changes"} & set(entry.tables):
                repair(find_odd(entry, topology, world.endpoint, places, positions), world.endpoint, places)

    def batch(number: int) -> Callable[[], None]:
        nonlocal rounds
        store(number)
        rounds += 1
        return lambda: deliver(touched, places, world.endpoint, [world.customer])

    def check() -> None:
        (found,) = verify(topology, world.endpoint, tmp_path, ["feeds"]).tables
        assert (found.same, found.rows, found.differences) == (True, rounds * 4, ())

    writes = crash_everywhere(batch, check, ("before", "after"))
    assert writes == 2  # to the feed, and of what was read back to the table
    feed = [record for record in world.read(f"feeds.{world.customer}") if is_data(record)]
    assert len({record.headers for record in feed}) == len(feed) == rounds * 4
    last = f"feed_offset = {feed[-1].offset}"
    write_deltalake(places.table("feeds"), TABLES["feeds"].plain_schema.empty_table(), mode="overwrite", predicate=last)
    (short,) = verify(topology, world.endpoint, tmp_path, ["feeds"]).tables
    assert (short.same, short.rows, short.expected) == (False, len(feed) - 1, len(feed))
    assert [each.what for each in short.differences] == ["missing"]
