"""Link operations on two real sites with ordinary producers: copying starts, stops, or is refused."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from fairlead.cli import app as cli
from fairlead.cli.commands import link
from fairlead.errors import ExitCode, RefusedError, UnavailableError
from fairlead.kafka.endpoint import KafkaEndpoint
from replication.operations.links.access import append_orders, open_access, status_file
from replication.operations.links.facts import LinkOperation, LinkScope
from replication.operations.links.steps import LinkRun, carry_out
from replication.overrides import ORDERS_TOPIC, Override, OverrideKind
from tests.integration.replication.operating import Two, two
from tests.integration.replication.resolving import Desk
from tests.support.replication.consumers import producer, send
from tests.support.replication.lab import Lab, states, until
from tests.support.waits import PATIENCE
from topologies.model import Topology

pytestmark = [pytest.mark.long, pytest.mark.integration]
__all__ = ["two"]


async def test_pause_stops_a_log_or_a_link_and_survives_a_restart(two: Two) -> None:
    topology, lab = two.topology(), two.lab
    topic, other = lab.log("orders"), lab.log("others")
    await two.make(topic)
    await two.make(other)
    east = two.replicator(topology, two.east)
    async with lab.running(east):
        two.send(two.west, topic, 0, 5)
        await two.even(topic, 5)
        await two.do(LinkOperation.PAUSE, topology, LinkScope(log=topic))
        two.send(two.west, topic, 5, 5)
        two.send(two.west, other, 0, 5)
        await two.even(other, 5)
        assert await lab.end("beta", topic) == 5
        assert states(east.snapshot()) == {topic: "paused"}
    again = two.replicator(topology, two.east)
    async with lab.running(again):
        two.send(two.west, other, 5, 5)
        await two.even(other, 10)
        assert await lab.end("beta", topic) == 5
        await two.do(LinkOperation.RESUME, topology, LinkScope(log=topic))
        await two.even(topic, 10)
        await two.do(LinkOperation.PAUSE, topology, LinkScope())
        assert again.snapshot()["links"][0]["state"] == "paused"
        two.send(two.west, topic, 10, 5)
        assert await lab.end("beta", topic) == 10
        await two.do(LinkOperation.RESUME, topology, LinkScope())
        await two.even(topic, 15)


async def test_what_is_promoted_is_written_here_and_nothing_comes_any_more(two: Two) -> None:
    """A promoted log can be written here, and receives no more records from the source."""
    topology, lab = two.topology(), two.lab
    topic, other = lab.log("orders"), lab.log("others")
    await two.make(topic, 3)
    two.send(two.west, topic, 0, 30, 3)

    async def told() -> bool:
        return "unavailable" not in status_file(two.folder, two.east).read_text()

    async with lab.running(two.replicator(topology, two.east)):
        await two.even(topic, 30)
        plan = await two.plan(LinkOperation.PROMOTE, topology, LinkScope(log=topic))
        two.send(two.west, topic, 30, 3, 3)
        with pytest.raises(RefusedError, match="still written"):
            await carry_out(plan, LinkRun(two.access))
        await two.even(topic, 33)  # copying continues as before
        await two.do(LinkOperation.PROMOTE, topology, LinkScope(log=topic))
        two.send(two.west, topic, 33, 3, 3)
        await two.do(LinkOperation.RESTORE, topology, LinkScope(log=topic))
        await two.even(topic, 39)  # the promotion was undone; it leaves a filler in each partition
        await until(told, f"{topic} is still shown as promoted")
        outcome = await two.do(LinkOperation.PROMOTE, topology, LinkScope(stream=lab.stream))
        assert outcome.pending == []
        two.send(two.east, topic, 36, 30, 3)
        two.send(two.west, topic, 100, 3, 3)  # the promoted log does not get these
        await two.make(other)
        two.send(two.west, other, 0, 1)
        await two.even(other, 1)  # other logs are still copied
        assert set((await two.ends(two.east, topic)).values()) == {24}
        with pytest.raises(RefusedError, match="ends at 24, there at 15"):
            await two.do(LinkOperation.RESTORE, topology, LinkScope(log=topic))


async def test_failover_under_load_is_where_the_log_ends_from_then_on(two: Two) -> None:
    """A failover under load names the offset where the log ends; nothing is copied from then on."""
    topology, lab = two.topology(), two.lab
    topic = lab.log("orders")
    await two.make(topic)
    stop = asyncio.Event()

    async def load() -> None:
        count = 0
        while not stop.is_set():
            await asyncio.to_thread(two.send, two.west, topic, count, 200)
            count += 200

    async with lab.running(two.replicator(topology, two.east)):
        writing = asyncio.ensure_future(load())
        await lab.reaches("beta", topic, 200)
        outcome = await two.do(LinkOperation.FAILOVER, topology, LinkScope(log=topic))
        end = await lab.end("beta", topic) - 1  # without the filler
        [said] = [text for text in outcome.done if text.startswith(f"{topic} ends at ")]
        # Between two sends of the load the copy may have everything.
        lacks = f"{topic} ends at {end}: {two.west} has offsets {end} to "
        assert said.startswith(lacks) or said == f"{topic} ends at {end}: {two.east} has every record of {two.west}"
        two.send(two.east, topic, 0, 1)
        stop.set()
        await writing
        assert await lab.end("beta", topic) == end + 2
        assert (await two.values(two.east, topic))[:end] == (await two.values(two.west, topic))[:end]


async def test_failover_with_the_source_gone(two: Two) -> None:
    topology, lab = two.topology(), two.lab
    topic = lab.log("orders")
    await two.make(topic)
    two.send(two.west, topic, 0, 5)
    async with lab.running(two.replicator(topology, two.east)):
        await two.even(topic, 5)
    two.gone.add(two.west)
    async with lab.running(two.replicator(topology, two.east)), open_access(two.kafka, two.folder) as two.access:
        with pytest.raises(RefusedError, match="cannot be reached"):
            await two.do(LinkOperation.PROMOTE, topology, LinkScope(log=topic))
        outcome = await two.do(LinkOperation.FAILOVER, topology, LinkScope(log=topic))
        assert f"{topic} ends at 5: {two.west} may have records from offset 5 on that {two.east} lacks" in outcome.done
        two.send(two.east, topic, 5, 5)
        assert await lab.end("beta", topic) == 11


@pytest.mark.parametrize("ends", [6, 10], ids=["nothing", "a transaction"])
async def test_a_failover_that_is_taken_back_is_diverged_where_the_source_went_on(two: Two, ends: int) -> None:
    """The failover left a filler in place of the source's next record, which nobody may pass over; nor the mark of a
    transaction that clients wrote here then."""
    topology, lab = two.topology(), two.lab
    topic = lab.log("orders")
    await two.make(topic)
    two.send(two.west, topic, 0, 5)
    replicator = two.replicator(topology, two.east)
    async with lab.running(replicator):
        await two.even(topic, 5)
        await two.do(LinkOperation.FAILOVER, topology, LinkScope(log=topic))
        two.send(two.west, topic, 5, 15)
        if ends > 6:
            client = producer(two.kafka(two.east), **{"transactional.id": topic})
            client.init_transactions(PATIENCE)
            client.begin_transaction()
            send(client, topic, 6, 3)
            client.commit_transaction(PATIENCE)
            await lab.reaches("beta", topic, ends)  # the call returns before the mark is written
        await two.do(LinkOperation.RESTORE, topology, LinkScope(log=topic))

        async def diverged() -> bool:
            return states(replicator.snapshot()).get(topic) == "diverged"

        await until(diverged, f"{topic}: {states(replicator.snapshot())}")
        assert await lab.end("beta", topic) == ends


@contextlib.asynccontextmanager
async def sleeping(two: Two, topology: Topology, topic: str, offset: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a replicator of east that copies everything before this offset and is suspended before it sends more."""
    kafka = {
        site: [each.bootstrap, each.user, each.password.get_secret_value() if each.password else None]
        for site in (two.west, two.east)
        for each in [two.kafka(site)]
    }
    given = {
        "topology": topology.model_dump(mode="json", by_alias=True),
        "site": two.east,
        "kafka": kafka,
        "topic": topic,
        "offset": offset,
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.integration.replication.sleeper"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(given, default=str).encode() + b"\n")
        yield process
    finally:
        process.kill()
        await process.wait()


async def said(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    return (await asyncio.wait_for(process.stdout.readline(), PATIENCE)).decode().strip()


@pytest.mark.parametrize("verb", [LinkOperation.FAILOVER, LinkOperation.PROMOTE])
@pytest.mark.parametrize("copied", [5, 0], ids=["in the middle of a log", "before the first record"])
async def test_a_replicator_that_slept_appends_nothing_to_a_log_that_is_written_here(
    two: Two, verb: LinkOperation, copied: int
) -> None:
    """A suspended replicator appends nothing to a log that was promoted meanwhile.

    It was stopped right before it sent the next records; clients have since written at their offsets.
    """
    topology, lab, topic = two.topology(), two.lab, two.lab.log("orders")
    await two.make(topic)
    two.send(two.west, topic, 0, copied)
    async with sleeping(two, topology, topic, copied) as sleeper:
        await lab.reaches("beta", topic, copied)
        two.send(two.west, topic, copied, 30)
        assert await said(sleeper) == "asleep"
        missing = 30
        if verb is LinkOperation.PROMOTE:  # another replicator has taken over and copied everything
            missing = 0
            async with lab.running(two.replicator(topology, two.east)):
                await two.even(topic, copied + 30)
                await two.do(verb, topology, LinkScope(log=topic))
        else:
            await two.do(verb, topology, LinkScope(log=topic))
        two.send(two.east, topic, 1000, 10)
        end = await lab.end("beta", topic)
        assert end == copied + 30 - missing + 1 + 10
        sleeper.send_signal(signal.SIGCONT)
        assert await said(sleeper) == "answered 47"
        before = await lab.stored("beta", topic)
        two.send(two.west, topic, 2000, 50)  # new records at the source are not copied either
        other = lab.log("others")
        await two.make(other)
        two.send(two.west, other, 0, 1)
        await two.even(other, 1)  # the suspended replicator runs again and has read the order
        assert await lab.stored("beta", topic) == before
    values = await two.values(two.east, topic)
    assert values[-10:] == [f"value {n}" for n in range(1000, 1010)]
    assert values[:-10] == [f"value {n}" for n in range(copied + 30 - missing)]


async def test_orders_are_their_own_history(kafka: Callable[..., KafkaEndpoint], two: Two, tmp_path: Path) -> None:
    """Every order is read in order; an unreadable record is passed over."""
    endpoint, at, name = kafka("beta"), dt.datetime(2026, 3, 1, tzinfo=dt.UTC), f"{two.west}->{two.east}"
    orders = [Override(kind, at, "ann", link=name) for kind in (OverrideKind.PAUSE, OverrideKind.RESUME)]
    async with open_access(kafka, tmp_path) as access:
        position = append_orders(endpoint, orders[:1])
        rubbish = Producer({**endpoint.librdkafka(), "log_level": 0})
        rubbish.produce(ORDERS_TOPIC, value=b"no order")
        assert rubbish.flush(PATIENCE) == 0
        assert (await access.orders("beta")).link_paused(name) == orders[0]
        assert append_orders(endpoint, orders[1:]) == position + 2
        assert (await access.orders("beta")).link_paused(name) is None
    with pytest.raises(UnavailableError):
        append_orders(replace(endpoint, bootstrap=(("127.0.0.1", 1),)), orders, timeout=1)


async def test_the_command_line_with_the_rights_that_the_topology_gives(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command and the replicator need only the rights that the topology grants; the replicator is no super user."""
    desk = Desk.open(lab, tmp_path, monkeypatch)
    monkeypatch.setattr(cli, "app", link.app)
    topic = lab.log("alpha.orders")
    await lab.make("alpha", topic)

    async def run(*arguments: str, code: int = ExitCode.OK) -> Any:
        done = await asyncio.to_thread(cli.run, [*arguments, "--topology", str(desk.file), "--json"])
        told = capsys.readouterr()
        assert done == code, told.err
        return json.loads(told.out)

    async with desk.replicating():
        await lab.open_term("alpha", topic, term=1, at=0)
        await lab.reaches("beta", topic, 1)
        paused = await run("pause", "alpha->beta", "--stream", lab.stream, "--yes")
        assert paused["applied"] and paused["pending"] == []
        (listed,) = await run("list")
        assert (listed["state"], listed["logs"]) == ("mirroring", 1)
        assert [each["stream"] for each in listed["parts_paused"]] == [lab.stream]
        await lab.write("alpha", topic, 5, at=1)
        described = await run("describe", "alpha->beta")
        assert described["source"]["user"] == "replicator.beta" and described["target"]["reachable"]
        assert described["logs_in_trouble"][topic]["state"] == "paused"
        assert described["checks_error"] is None
        assert await lab.end("beta", topic) == 1
        assert (await run("resume", "alpha->beta", "--stream", lab.stream, "--yes"))["applied"]
        await lab.reaches("beta", topic, 6)
