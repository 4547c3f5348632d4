"""The player publishes to a real Mosquitto: all messages arrive in order, also when the broker restarts."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import socket
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from fairlead.errors import RefusedError
from fairlead.kafka.endpoint import MqttEndpoint
from fairlead.local.sites import LocalSites
from fairlead.records import decoder
from fairlead.records.reading import Reading
from simulators.fleet.scenario_file import load as load_scenario
from simulators.steps import BarrierKind, MessageKind, Publish, Step, VoyageBarrier
from simulators.voyage.player import BarrierTimeout, Player, Progress
from simulators.voyage.recording import ReplayedVoyage, recording
from simulators.voyage.truth import Truth
from simulators.voyage.voyage import Voyage
from tests.integration.simulators.conftest import Listener
from tests.support.simulators.worlds import no_wait
from tests.support.waits import PATIENCE
from topologies.loader.load import load as load_topology

pytestmark = [pytest.mark.long, pytest.mark.integration]

Endpoints = Callable[..., MqttEndpoint]
Listen = Callable[[str], Listener]
reading = decoder(Reading)


@pytest.fixture(scope="module")
def voyage() -> Voyage:
    return Voyage(
        load_scenario("duck-voyage").adjusted(containers=20, reading_interval=dt.timedelta(hours=12)),
        load_topology("big-blue", env={}),
        seed=7,
        with_bad=True,
    )


def at(site: str, steps: Iterable[Step]) -> Iterator[Step]:
    """Yield the same steps, all published at one site's broker."""
    for step in steps:
        yield dataclasses.replace(step, site=site) if isinstance(step, Publish) else step


def sent(steps: Iterable[Step]) -> list[tuple[str, bytes]]:
    return [(step.topic, step.payload) for step in steps if isinstance(step, Publish)]


def order(messages: Iterable[tuple[str, bytes]]) -> dict[str, list[tuple[int, int]]]:
    """Return (boot, sequence) of each box's readings in the order of their first arrival."""
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for topic, payload in messages:
        if "/containers/" in topic and payload.endswith(b"}"):
            try:
                device = reading.decode(payload).device
            except ValueError:
                continue  # an invalid message
            if device.device_id.startswith("rmm-") and (device.boot_id, device.sequence) not in found[topic]:
                found[topic].append((device.boot_id, device.sequence))
    return found


async def test_all_messages_arrive_once_and_in_order(voyage: Voyage, mqtt: Endpoints, listen: Listen) -> None:
    """All messages arrive once and in order; ports publish to one broker, ships and headquarters to the other."""
    topology = load_topology("big-blue", env={})
    site_of = {name: "alpha" if site.kind == "port" else "beta" for name, site in topology.sites.items()}
    alpha, beta = listen("alpha"), listen("beta")
    truth = Truth(voyage.plan)
    player = Player(lambda site: mqtt(site_of[site], "device"), no_wait, on_published=truth.record)
    played = await player.play(voyage.steps())
    wanted: dict[str, list[tuple[str, bytes]]] = {"alpha": [], "beta": []}
    for step in voyage.steps():
        if isinstance(step, Publish):
            wanted[site_of[step.site]].append((step.topic, step.payload))
    alpha.wait_for(lambda got: len(got) >= len(wanted["alpha"]))
    beta.wait_for(lambda got: len(got) >= len(wanted["beta"]))
    assert sorted(alpha.messages) == sorted(wanted["alpha"])
    assert sorted(beta.messages) == sorted(wanted["beta"])
    assert order(alpha.messages) == order(wanted["alpha"])
    assert order(beta.messages) == order(wanted["beta"])
    assert played.published == played.acknowledged
    assert played.published.total() == len(wanted["alpha"]) + len(wanted["beta"])
    assert played.published == played.acknowledged
    readings = sum(1 for step in voyage.steps() if isinstance(step, Publish) and step.kind is MessageKind.READING)
    assert truth.readings == readings > 500


async def test_a_recorded_voyage_is_published_again(
    voyage: Voyage, mqtt: Endpoints, listen: Listen, tmp_path: Path
) -> None:
    """A voyage recorded while it is published, with a pause, can be replayed to another broker."""
    alpha, beta = listen("alpha"), listen("beta")
    stood: list[Progress] = []

    def stops(_message: Publish, _time: dt.datetime) -> None:
        if player.played.published.total() == 300:
            player.pause()

    def goes_on(now: Progress) -> None:
        if now.phase == "paused":
            stood.append(now)
            player.resume()

    player = Player(lambda _: mqtt("alpha", "device"), no_wait, on_progress=goes_on, on_published=stops)
    with recording(voyage, tmp_path / "voyage.gz", with_bad=True) as sailed:
        await player.play(sailed.steps(), speed=3_000_000)
    [paused] = stood
    assert paused.published == paused.acknowledged > 300
    replay = ReplayedVoyage(tmp_path / "voyage.gz", load_topology("big-blue", env={}))
    played = await Player(lambda _: mqtt("beta", "device"), no_wait).play(replay.steps())
    assert played.published == played.acknowledged
    wanted = sorted(sent(voyage.steps()))
    for listener in (alpha, beta):
        listener.wait_for(lambda got: len(got) >= len(wanted))
        assert sorted(listener.messages) == wanted


async def test_a_restarted_broker_loses_nothing(
    voyage: Voyage, sites: LocalSites, mqtt: Endpoints, listen: Listen
) -> None:
    """If the broker restarts in the middle, messages may arrive twice, but none is missing or early."""
    listener = listen("beta")
    steps = list(at("beta", voyage.steps()))
    troubles: list[str] = []
    half, away = asyncio.Event(), asyncio.Event()

    def watch(progress: Progress) -> None:
        troubles.extend(why for why in progress.troubles.values() if why not in troubles)
        if troubles:
            away.set()

    async def last_waits(step: Step) -> None:
        if step is steps[-1]:
            await away.wait()

    # At this speed the second half takes two seconds; the broker restarts in that time, or before the last step.
    player = Player(lambda site: mqtt(site, "device"), no_wait, on_progress=watch, on_step=last_waits)

    def with_a_break() -> Iterator[Step]:
        for n, step in enumerate(steps):
            if n == len(steps) // 2:
                half.set()
            yield step

    task = asyncio.create_task(player.play(with_a_break(), speed=500_000))
    await half.wait()
    await asyncio.to_thread(sites.restart, "beta", "mqtt")
    played = await asyncio.wait_for(task, PATIENCE)
    wanted = sent(steps)
    listener.wait_for(lambda got: set(got) >= set(wanted))
    assert set(listener.messages) == set(wanted)
    assert order(listener.messages) == order(wanted)
    assert played.acknowledged == played.published
    assert any("lost" in why or "refused" in why.lower() for why in troubles)


async def test_a_broker_that_is_away_is_waited_for(voyage: Voyage, mqtt: Endpoints) -> None:
    """The player reports a broker that is away, and continues when it starts."""
    real = mqtt("beta", "device")
    steps = [step for step in at("beta", voyage.steps()) if isinstance(step, Publish)][:200]
    away = asyncio.Event()

    def watch(progress: Progress) -> None:
        if "beta" in progress.troubles:
            away.set()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ahead = await asyncio.open_connection(real.host, real.port)
        await asyncio.gather(_copy(reader, ahead[1]), _copy(ahead[0], writer))

    door = socket.socket()
    door.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused, and nobody else gets the port
    port = door.getsockname()[1]
    player = Player(lambda _: dataclasses.replace(real, port=port), no_wait, on_progress=watch)
    task = asyncio.create_task(player.play(steps))
    await asyncio.wait_for(away.wait(), PATIENCE)
    assert not task.done()
    async with await asyncio.start_server(forward, sock=door):
        played = await asyncio.wait_for(task, PATIENCE)
    assert played.acknowledged["beta"] == 200


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def test_a_barrier_behind_a_dead_broker_names_it(voyage: Voyage, mqtt: Endpoints) -> None:
    nowhere = dataclasses.replace(mqtt("beta", "device"), port=1)
    first = next(step for step in at("beta", voyage.steps()) if isinstance(step, Publish))
    stop = VoyageBarrier(first.sim_time, BarrierKind.RECORDED, "everything is recorded", site="beta")
    with pytest.raises(BarrierTimeout, match=r"everything is recorded; MQTT broker of beta: .*refused"):
        await Player(lambda _: nowhere, no_wait, patience=0.5).play([first, stop])


async def test_a_wrong_password_is_refused_at_once(voyage: Voyage, mqtt: Endpoints) -> None:
    wrong = dataclasses.replace(mqtt("beta", "device"), password=SecretStr("guessed"))
    with pytest.raises(RefusedError, match="beta does not let user 'device' in") as error:
        await asyncio.wait_for(Player(lambda _: wrong, no_wait).play(at("beta", voyage.steps())), PATIENCE)
    assert "guessed" not in str(error.value)
    assert "FAIRLEAD_SECRET_BETA_DEVICE" in error.value.hint


async def test_an_interrupted_voyage_leaves_nothing_behind(voyage: Voyage, mqtt: Endpoints, listen: Listen) -> None:
    listener = listen("beta")
    begun = asyncio.Event()

    def watch(_message: Publish, _time: dt.datetime) -> None:
        if player.played.published["beta"] == 20:
            begun.set()

    player = Player(lambda site: mqtt(site, "device"), no_wait, on_published=watch)
    task = asyncio.create_task(player.play(at("beta", voyage.steps()), speed=100_000))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    count = player.played.published["beta"]
    assert not player.played.finished
    assert player.played.acknowledged["beta"] == count
    listener.wait_for(lambda got: len(got) >= count)
    assert listener.messages == sent(at("beta", voyage.steps()))[:count]
