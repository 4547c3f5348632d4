"""A ship starts a box's log without its history and later grants it to a port that has the history: one log results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fairlead.kafka.endpoint import KafkaEndpoint, MqttEndpoint
from tests.integration.replication.convoy import Convoy
from tests.support.edge.fleet import EVENTS, handled, hears, make_fleet, until

pytestmark = pytest.mark.integration


@pytest.fixture
def convoy(kafka: Callable[..., KafkaEndpoint], mqtt: Callable[..., MqttEndpoint], tmp_path: Path) -> Iterator[Convoy]:
    made = Convoy(make_fleet(kafka, mqtt, tmp_path))
    yield made
    made.fleet.forget_sessions()


@pytest.mark.parametrize(
    ("when", "start"),
    [
        pytest.param("always", "end", marks=pytest.mark.long),
        # Like "end"; test_policy.test_where_a_link_begins tests "latest".
        pytest.param("always", "latest", marks=pytest.mark.chaos),
        ("berthed", "end"),
    ],
)
async def test_one_log_again(convoy: Convoy, when: str, start: str) -> None:
    """The port has one complete log. With ``berthed`` the link is closed; the ship begins the log from the ledger."""
    fleet, port, ship = convoy.fleet, convoy.fleet.port, convoy.fleet.ship
    aboard = {convoy.boxes: "aboard"}
    if when == "always":
        inward = [{"from": port, "to": ship, "start": start, "streams": {"custody": convoy.sites, **aboard}}]
    else:
        inward = [
            {"from": port, "to": ship, "streams": {"custody": convoy.sites}},
            {"from": port, "to": ship, "start": start, "when": "berthed", "streams": aboard},
        ]
    convoy.link(*inward, {"from": ship, "to": port, "streams": convoy.everything()})
    box = fleet.new_box()
    log = fleet.log(box)
    async with fleet.running(port) as quay, fleet.running(ship) as deck, convoy.linked(port, ship):
        with fleet.publisher(port) as device:
            await device.publish(EVENTS, fleet.event("GTIN", box))
            await device.readings(box, range(5))
            await device.publish(EVENTS, fleet.event("LOAD", box))
        await handled(quay, 7)
        await until(lambda: deck.snapshot()["custody"]["held"] == 1, what="custody on board")
        await hears(deck, fleet, ship, box, range(5, 8))
        assert fleet.sequences(ship, box) == [5, 6, 7]
        with fleet.publisher(ship) as device:
            await device.publish(EVENTS, fleet.event("DISC", box))
        await until(lambda: quay.snapshot()["custody"]["held"] == 1, what="custody ashore again")
        await hears(quay, fleet, port, box, range(8, 10))
        await convoy.well(port, ship)
    assert fleet.sequences(port, box) == list(range(10))
    stored = {record.offset: record for record in fleet.read(port, log)}
    assert [stored[record.offset] for record in fleet.read(ship, log)] == [stored[offset] for offset in (7, 8, 9)]
    await convoy.same(port, ship)
