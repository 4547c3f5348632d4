"""A voyage over a fleet in containers, with TLS, while machines and networks fail one after the other: nothing is lost
or differs.

One fleet and one voyage for all of it: what takes long is starting a fleet and sailing. Each test spoils one thing
while readings come in, sees that the system notices and goes on, and the last one waits for the voyage's report. A
single test may be chosen as well (``-k half_open``); the report is then asked for by choosing the last one, too.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from simulators.network.registry import Order
from simulators.network.weather import Conditions
from tests.containers.conftest import Project
from tests.containers.lines import BACK, BOTH, Lines
from tests.containers.sailing import SATELLITE, TO_SHIP, Sailing, link, readings, replicator

pytestmark = [pytest.mark.containers, pytest.mark.timeout(3600)]

VOYAGE = (
    "--scenario /etc/fairlead/long-harbour.yaml --calm --no-workers --interval 5m --patience 300 --report /report"
).split()
SPEED, QUIET = 900, 100.0  # the voyage takes seven minutes; seconds in which a fleet starts on two quiet cores
AT_SEA = ("duck-star-kafka-1", "duck-star-replicator")


@pytest.fixture(scope="module")
def voyage(project: Project) -> Iterator[Sailing]:
    """Under way, with the first reading in a log."""
    # Where a fleet starts slowly its machines come back slowly, too: the voyage must not be over before that.
    speed = SPEED * QUIET / max(QUIET, project.started)
    topology = f"/etc/fairlead/{project.fleet.topology.name}.yaml"
    sailing = Sailing(project, ["voyage", "run", topology, *VOYAGE, "--speed", f"{speed:.0f}"])
    try:
        sailing.await_(lambda: readings(project, "tokyo") > 0, "the first reading is in a log")
        yield sailing
    finally:
        sailing.end()


def brokers(project: Project) -> tuple[str, ...]:
    """Those of the port."""
    return next(site.brokers for site in project.fleet.sites if site.name == "tokyo")


# --- networks, while boxes are in the yard: the ship is not there yet, and no barrier waits for it


def test_a_ship_is_cut_off_and_catches_up(project: Project, voyage: Sailing) -> None:
    """The ship loses its network; connections are not closed."""
    with voyage.while_it_sails("the ship lost its link for a while"):
        for service in AT_SEA:
            project.cut("wan", service)
        voyage.await_readings("tokyo")
        for service in AT_SEA:
            project.join("wan", service)


def test_a_port_loses_its_network(project: Project, voyage: Sailing) -> None:
    """All that the port has outside is gone; inside it goes on."""
    outside = (*brokers(project), "tokyo-replicator")
    with voyage.while_it_sails("the port lost its network"):
        for service in outside:
            project.cut("wan", service)
        voyage.await_link(TO_SHIP, "unavailable")
        voyage.await_link(SATELLITE, "unavailable")
        voyage.await_readings("tokyo")
        for service in outside:
            project.join("wan", service)
        voyage.await_link(TO_SHIP, "mirroring")
        voyage.await_link(SATELLITE, "mirroring")


def test_a_ports_brokers_lose_each_other(project: Project, voyage: Sailing) -> None:
    """Nobody can append with min ISR 2; sensors' readings wait in Mosquitto."""
    with voyage.while_it_sails("the port's brokers lost each other"):
        _apart(project, *brokers(project))
        voyage.await_link(TO_SHIP, "unavailable")  # 10 s at the least: longer than brokers' sessions
        _together(project, *brokers(project))
        voyage.await_link(TO_SHIP, "mirroring")
        voyage.await_readings("tokyo")


def test_a_leader_loses_its_network(project: Project, voyage: Sailing) -> None:
    """The broker that leads the port's ledger is alone, and believes to lead; others take over."""
    with voyage.while_it_sails("a leader lost its network"):
        alone = _leader(project, "custody.tokyo")
        _apart(project, alone)
        voyage.await_(lambda: _leader(project, "custody.tokyo") not in ("", alone), "another broker leads")
        voyage.await_readings("tokyo")
        _together(project, alone)
        project.healthy(alone)
        voyage.await_readings("tokyo")


# --- machines


def test_every_broker_dies_and_returns(project: Project, voyage: Sailing) -> None:
    for broker in brokers(project):  # each leads some logs, one of them the controllers
        with voyage.while_it_sails(f"{broker} died and came back"):
            project.kill(broker)
            project.start(broker)


# --- the link between the ship and the port, at the berth, where there is most to carry


def test_a_half_open_link_loses_nothing(project: Project, voyage: Sailing) -> None:
    """Data from the ship no longer arrives, while its connections stay. Both replicators must notice by themselves."""
    with voyage.while_it_sails("the ship could hear and was not heard"), Lines(project) as lines:
        voyage.await_berth()
        lines.give(Order(close=(BACK,)))
        for name in (SATELLITE, TO_SHIP):
            assert "within" in voyage.await_link(name, "unavailable")["cause"]
        lines.give(Order(open=(BACK,)))  # with what was on its way, late
        voyage.await_link(SATELLITE, "mirroring")
        voyage.await_link(TO_SHIP, "mirroring")
        voyage.await_readings("duck-star")


def test_a_slow_link_loses_nothing(project: Project, voyage: Sailing) -> None:
    """300 ms each way, 2 % lost, 256 kbit/s: a slow link is not taken for a dead one."""
    always = (SATELLITE, TO_SHIP)
    with voyage.while_it_sails("the link was slow"), Lines(project) as lines:
        voyage.await_berth()
        before = {name: voyage.await_link(name, "mirroring") for name in always}
        thin = Conditions(latency=300.0, loss=0.02, rate=32_000)
        began = lines.give(Order(shape=tuple((way, thin) for way in BOTH)))

        def carried() -> int:
            return sum(now.bytes - began[name].bytes for name, now in lines.give().items())

        with voyage.sailing_on():
            voyage.await_(lambda: carried() > 100_000, "the link has carried 100 kB")
        assert sum(now.lost - began[name].lost for name, now in lines.give().items()) > 0
        after = {name: link(project, name) for name in always}
    for name in always:
        assert (after[name]["state"], after[name]["since"]) == ("mirroring", before[name]["since"]), after[name]


def test_connections_reset_in_the_middle_lose_nothing(project: Project, voyage: Sailing) -> None:
    """Connections end by RST in the middle of requests and answers, again and again."""
    with voyage.while_it_sails("connections were reset again and again"), Lines(project) as lines:
        voyage.await_berth()
        with voyage.sailing_on():
            for size in (1, 700, 2_000, 5_000, 9_000, 3_000, 12_000, 6_000):
                lines.reset_in_the_middle(size)
        voyage.await_link(SATELLITE, "mirroring")
        voyage.await_link(TO_SHIP, "mirroring")


# --- machines again


def test_every_broker_is_restarted(project: Project, voyage: Sailing) -> None:
    for broker in brokers(project):
        with voyage.while_it_sails(f"{broker} was restarted"):
            project.compose("restart", broker)
            project.healthy(broker)


def test_a_frozen_broker_loses_nothing(project: Project, voyage: Sailing) -> None:
    """The ship's Kafka is frozen: its connections stay, and it answers neither port nor ship."""
    with voyage.while_it_sails("the ship's broker stood still"):
        project.compose("pause", "duck-star-kafka-1")
        try:
            voyage.await_link(SATELLITE, "unavailable")
            voyage.await_(lambda: replicator(project, "duck-star")["target"]["state"] != "up", "the ship has noticed")
        finally:
            project.compose("unpause", "duck-star-kafka-1")
        voyage.await_link(SATELLITE, "mirroring")
        voyage.await_(lambda: replicator(project, "duck-star")["target"]["state"] == "up", "the ship has its own Kafka")
        voyage.await_readings("duck-star")


# --- upgrades


@pytest.mark.parametrize("service", ["tokyo-replicator", "tokyo-bridge"])
def test_a_service_is_replaced_by_a_new_one(project: Project, voyage: Sailing, service: str) -> None:
    """The container is recreated while everything else runs, as in an upgrade."""
    with voyage.while_it_sails(f"{service} was replaced by a new one"):
        project.compose("up", "--detach", "--no-deps", "--force-recreate", service)
        project.healthy(service)


def test_nothing_was_lost_and_logs_are_identical(project: Project, voyage: Sailing) -> None:
    report = voyage.report()
    assert report["readings_lost"] == 0, voyage.happened
    assert report["logs_differing"] == 0, voyage.happened
    assert report["readings_in_logs"] == report["readings_published"] > 500


def _apart(project: Project, *services: str) -> None:
    """Take containers off every network."""
    for service in services:
        for network in ("wan", "tokyo"):
            project.cut(network, service)


def _together(project: Project, *services: str) -> None:
    for service in services:
        for network in ("tokyo", "wan"):
            project.join(network, service)


_ASK = """
import asyncio
from topologies.context import open_topology
from fairlead.kafka.client.cluster import Cluster

async def ask():
    endpoint = open_topology("{topology}").resolver.kafka("tokyo", "bridge")
    async with await Cluster.open(endpoint, client_id="fairlead-test", request_timeout=5.0) as cluster:
        topics = await cluster.topics()
        print(cluster.metadata.brokers.get(topics["{log}"].partitions[0], ("",))[0])

asyncio.run(ask())
"""


def _leader(project: Project, log: str) -> str:
    """The broker that leads a log of the port; None without an answer."""
    ask = _ASK.format(topology=f"/etc/fairlead/{project.fleet.topology.name}.yaml", log=log)
    return project.compose("exec", "-T", "tokyo-bridge", "python", "-c", ask, check=False).strip()
