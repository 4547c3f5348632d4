"""What a route takes from the logs, and what ends it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping

import pytest
from pydantic import SecretStr, ValidationError

from fairlead.errors import UnavailableError
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.record import NewRecord, Record
from fairlead.kafka.protocol.types import TP
from fairlead.records import encode
from fairlead.waiting import in_background
from notify import service
from notify.sender import sender_for
from notify.service import KnownBookings, RouteRunner, _decoded
from replication.groups.rules import Commit
from tests.support.kafka.fake_broker import FakeCluster
from tests.support.kafka.fake_log import begin, damage, put
from tests.support.notices import alert, booking, fleet
from tests.support.receivers import web_receiver
from tests.support.waits import PATIENCE, until

KEY = base64.b64encode(bytes(32)).decode()


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
    again, stop, troubles = asyncio.Event(), asyncio.Event(), list[str]()

    def kafka() -> KafkaEndpoint:
        troubles.append(runner.trouble)
        if len(troubles) == 2:
            again.set()
        raise UnicodeEncodeError("ascii", "ä", 0, 1, "ordinal not in range(128)")

    sender = sender_for("r", topology.notify.routes["r"], lambda: SecretStr(KEY), "")
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


# --- damaged batches


class Groups:
    """What a route has committed, in memory."""

    def __init__(self, **committed: int) -> None:
        self.committed = {TP(f"alerts.{site}"): Commit(offset, "") for site, offset in committed.items()}

    async def offsets(self, _group: str) -> dict[TP, Commit]:
        return dict(self.committed)

    async def commit(self, _group: str, commits: Mapping[TP, Commit]) -> dict[TP, Commit]:
        self.committed |= commits
        return {}


@pytest.mark.parametrize("committed", [0, 3], ids=["before the route", "behind it"])
async def test_a_damaged_batch_of_one_log_holds_up_no_other(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch, committed: int
) -> None:
    """The route waits for it in that log alone; of what it has told of that log it knows no more."""
    groups = Groups(tokyo=committed, yokohama=0)
    monkeypatch.setattr(service, "LOOK", 0.05)
    monkeypatch.setattr(service, "GroupClient", lambda _endpoint: groups)
    log = "alerts.tokyo"
    begin(fake, log, encode(alert("a")))
    put(fake.logs[log], NewRecord(encode(alert("b")), timestamp_ms=5))
    put(fake.logs[log], NewRecord(encode(alert("c")), timestamp_ms=5))
    begin(fake, "alerts.yokohama")
    damage(fake.logs[log], 1)
    with web_receiver() as web:
        topology = fleet({"r": {"to": {"webhook": web.url}}})
        assert topology.notify is not None
        sender = sender_for("r", topology.notify.routes["r"], lambda: SecretStr(KEY), "")
        runner = RouteRunner("r", topology, sender, fake.endpoint, KnownBookings(topology, "tokyo"))
        stop = asyncio.Event()
        running = asyncio.create_task(runner.run(stop))

        async def heard(*names: str) -> None:
            await asyncio.to_thread(until, lambda: len(web.about()) >= len(names), f"{names}, not {web.about()}")
            assert web.about() == [("opened", name) for name in names]

        before = ["c"] if committed else ["a"]
        await heard(*before)
        for n in range(3):
            put(fake.logs["alerts.yokohama"], NewRecord(encode(alert(f"y{n}", raised_at="yokohama")), timestamp_ms=5))
            fake.change()
            before.append(f"y{n}")
            await heard(*before)
        assert runner.snapshot()["failing"] is not bool(committed)
        damage(fake.logs[log], 1)
        fake.change()
        await heard(*before, *(() if committed else ("b", "c")))
        await asyncio.to_thread(until, lambda: not runner.snapshot()["failing"], "the log to be whole")
        stop.set()
        await running


async def test_a_route_for_customers_waits_while_bookings_cannot_be_known(fake: FakeCluster, cluster: Cluster) -> None:
    """A cancellation may be behind the damaged batch. The other routes go on."""
    begin(fake, "bookings.tokyo", encode(booking("ducks")))
    damage(fake.logs["bookings.tokyo"])
    known = KnownBookings(fleet({}), "tokyo")
    await known.catch_up(cluster)
    with pytest.raises(UnavailableError, match=r"damaged batch in bookings\.tokyo"):
        await known.read_to_ends()


async def test_a_route_does_not_wait_for_a_batch_of_bookings_that_proves_damaged_meanwhile(
    fake: FakeCluster, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says what is wrong instead, as when the batch was known to be damaged."""
    monkeypatch.setattr(service, "LOOK", 0.05)
    log = "bookings.tokyo"
    begin(fake, log, encode(booking("ducks")))
    known = KnownBookings(fleet({}), "tokyo")
    await known.catch_up(cluster)
    put(fake.logs[log], NewRecord(encode(booking("ducks")), timestamp_ms=5))
    damage(fake.logs[log], 1)
    async with in_background(known.follow()):
        with pytest.raises(UnavailableError, match=r"damaged batch in bookings\.tokyo"):
            async with asyncio.timeout(PATIENCE):
                await known.read_to_ends()
