"""What a route takes from the logs, and what ends it."""

from __future__ import annotations

import asyncio
import base64

import pytest
from pydantic import SecretStr, ValidationError

from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.record import Record
from fairlead.records import encode
from notify.sender import sender_for
from notify.service import KnownBookings, RouteRunner, _decoded
from tests.support.notices import alert, fleet
from tests.support.waits import PATIENCE


@pytest.mark.parametrize(("log", "taken"), [("alerts.tokyo", True), ("alerts.star", False), ("alerts.shore", False)])
def test_only_the_site_that_an_alert_names_is_heard(log: str, taken: bool) -> None:
    raised = alert("a")
    assert _decoded(log, Record(0, 0, None, encode(raised), ())) == (raised if taken else None)


@pytest.mark.parametrize("path", ["Häfen", "two words", "tab\t"])
def test_an_address_that_no_request_can_have_is_refused(path: str) -> None:
    with pytest.raises(ValidationError, match="percent-encoded"):
        fleet({"r": {"to": {"webhook": f"https://receiver.example/{path}"}}})


async def test_a_mistake_in_one_route_is_its_trouble_and_it_tries_again() -> None:
    topology = fleet({"r": {"to": {"webhook": "https://receiver.example/"}}})
    assert topology.notify is not None
    secret = SecretStr(base64.b64encode(bytes(32)).decode())
    again, stop, troubles = asyncio.Event(), asyncio.Event(), list[str]()

    def kafka() -> KafkaEndpoint:
        troubles.append(runner.trouble)
        if len(troubles) == 2:
            again.set()
        raise UnicodeEncodeError("ascii", "ä", 0, 1, "ordinal not in range(128)")

    sender = sender_for("r", topology.notify.routes["r"], lambda: secret, "")
    runner = RouteRunner("r", topology, sender, kafka, KnownBookings(topology, "tokyo"), delays=(0.01, 0.01))
    running = asyncio.create_task(runner.run(stop))
    done, _ = await asyncio.wait(
        {running, waiting := asyncio.create_task(again.wait())},
        timeout=PATIENCE,
        return_when=asyncio.FIRST_COMPLETED,
    )
    assert done == {waiting} and "UnicodeEncodeError" in troubles[1]
    stop.set()
    await running
