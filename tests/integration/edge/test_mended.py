"""A valid log recovers from a refused append without a restart of the bridge."""

from __future__ import annotations

import pytest

from edge.logwriter import records
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import term_batch
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import TP
from tests.support.batches import seal
from tests.support.edge.fleet import EVENTS, Fleet, handled, now, until
from tests.support.edge.samples import reading

pytestmark = pytest.mark.integration


def said(box: str, sequence: int) -> NewRecord:
    body = reading(sequence, number=box, at=now(), name=f"dev-{box}")
    return records.published(body, key=box, at_ms=int(now().timestamp() * 1000), received_ms=0)


@pytest.mark.parametrize("late", [1, 2])
async def test_the_last_append_of_a_killed_bridge_arrives_after_the_next_has_looked(fleet: Fleet, late: int) -> None:
    """If the last append of a killed bridge arrives after its successor has read the log, the successor continues.

    The append was on its way when the process was killed. It has the same site and term, so it is part of the log.
    """
    box = fleet.new_box()
    log, port = TP(fleet.log(box)), fleet.port
    async with fleet.running(port) as ashore, await Cluster.open(fleet.kafka[port], client_id="killed") as killed:
        with fleet.publisher(port) as quay:
            await quay.publish(EVENTS, fleet.event("GTIN", box))
            await quay.readings(box, range(3))
            await handled(ashore, 4)
            batch = term_batch([said(box, n) for n in range(3, 3 + late)], term=1, offset=4, marker=0)
            assert (await killed.produce({log: batch}))[log].base_offset == 4
            await quay.readings(box, range(3, 6))  # the MQTT broker sends again what was not acknowledged
            await handled(ashore, 7)
            await until(lambda: len(fleet.sequences(port, box)) == 6, what="all readings in the log")
            assert fleet.sequences(port, box) == list(range(6))
            assert ashore.snapshot()["custody"]["held"] == 1
            await quay.publish(EVENTS, fleet.event("LOAD", box))
            await until(lambda: ashore.metrics.grants == 1, what="the grant")


async def test_a_record_that_is_no_part_of_the_term_ends_appending_for_good(fleet: Fleet) -> None:
    """A record that does not belong to the term stops appends to the log for good.

    A client without the append convention has written to the log: its intended content cannot be known.
    """
    box = fleet.new_box()
    log, port = TP(fleet.log(box)), fleet.port
    async with fleet.running(port) as ashore, await Cluster.open(fleet.kafka[port], client_id="stranger") as stranger:
        with fleet.publisher(port) as quay:
            await quay.publish(EVENTS, fleet.event("GTIN", box))
            await quay.readings(box, range(3))
            await handled(ashore, 4)
            batch = term_batch([said(box, 3)], term=1, offset=4, marker=0)
            foreign = bytearray(batch)
            foreign[43:57] = b"\xff" * 14  # producer id, epoch and base sequence: none
            seal(foreign)
            assert (await stranger.produce({log: foreign}))[log].base_offset == 4
            await quay.readings(box, range(3, 6))
            await handled(ashore, 7)
            assert ashore.snapshot()["custody"]["broken"] == 1
            assert ashore.snapshot()["strays_waiting"] == 3
