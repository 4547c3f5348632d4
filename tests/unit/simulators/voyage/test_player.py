"""The player and its pace without brokers; tests/integration/simulators plays to real ones."""

from __future__ import annotations

import asyncio
import datetime as dt
import itertools
import time
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairlead.errors import ExitCode
from fairlead.kafka.endpoint import MqttEndpoint
from simulators.steps import BarrierKind, Publish, Step, VoyageBarrier
from simulators.voyage.player import BarrierTimeout, Player, Progress, VoyageClock
from tests.support.examples import examples
from tests.support.simulators.worlds import no_wait, small_steps
from tests.unit.simulators.voyage.fakes import nobody

START = dt.datetime(2026, 9, 1, tzinfo=dt.UTC)
MINUTE = dt.timedelta(minutes=1)


def barrier(minute: int = 0) -> VoyageBarrier:
    return VoyageBarrier(
        START + minute * MINUTE,
        BarrierKind.DEPARTURE,
        "duck-star takes custody of 3 boxes at tokyo",
        site="tokyo",
        peer="duck-star",
    )


async def test_barriers_are_waited_for_in_order_and_timed() -> None:
    seen: list[int] = []

    async def wait(one: VoyageBarrier) -> None:
        seen.append((one.sim_time - START) // MINUTE)

    played = await Player(nobody, wait).play([barrier(0), barrier(5), barrier(5)])
    assert seen == [0, 5, 5]
    assert played.finished
    assert [one.sim_time for one, _ in played.waited] == [START, START + 5 * MINUTE, START + 5 * MINUTE]
    assert played.seconds_waited >= 0


async def test_brokers_that_acknowledge_nothing_end_a_barrier(broker: Recorder) -> None:
    broker.answers.clear()
    first = next(step for step in small_steps() if isinstance(step, Publish))
    with pytest.raises(BarrierTimeout, match="duck-star takes custody of 3 boxes at tokyo") as error:
        await Player(anywhere, no_wait, patience=0.05).play([first, barrier()])
    assert error.value.exit_code == ExitCode.UNAVAILABLE
    assert f"MQTT broker of {first.site}: it acknowledges nothing" in str(error.value)


async def test_brokers_that_acknowledge_slowly_are_waited_for(broker: Recorder) -> None:
    broker.answers.clear()
    broker.one_at_a_look = 12
    first = next(step for step in small_steps() if isinstance(step, Publish))
    played = await Player(anywhere, no_wait, patience=0.01).play([first, barrier()])
    assert played.finished
    assert played.seconds_waited > 0.03  # many times its patience


async def test_on_step_holds_the_voyage() -> None:
    order: list[tuple[str, dt.datetime]] = []
    told, go_on = asyncio.Event(), asyncio.Event()

    async def tell(step: Step) -> None:
        order.append(("told", step.sim_time))
        told.set()
        await go_on.wait()

    async def wait(one: VoyageBarrier) -> None:
        order.append(("waited", one.sim_time))

    playing = asyncio.create_task(Player(nobody, wait, on_step=tell).play([barrier(0), barrier(5)]))
    await told.wait()
    assert order == [("told", START)]
    go_on.set()
    await playing
    later = START + 5 * MINUTE
    assert order == [("told", START), ("waited", START), ("told", later), ("waited", later)]


async def test_a_voyage_does_not_catch_up_after_a_barrier() -> None:
    """A minute at 600 times is 0.1 s, also after a barrier that took longer than that."""
    moments: list[float] = []

    async def wait(_: VoyageBarrier) -> None:
        moments.append(time.monotonic())
        if len(moments) == 1:
            await asyncio.sleep(0.3)
            moments.append(time.monotonic())

    await Player(nobody, wait).play([barrier(0), barrier(1)], speed=600)
    _, opened, second = moments
    assert second - opened >= 0.09


async def test_pause_stops_simulated_time() -> None:
    player: Player
    reached: list[VoyageBarrier] = []
    first = asyncio.Event()

    async def wait(one: VoyageBarrier) -> None:
        reached.append(one)
        if len(reached) == 1:
            player.pause()
            first.set()

    def steps() -> Iterator[Step]:
        yield barrier(0)
        yield barrier(1)

    player = Player(nobody, wait)
    task = asyncio.create_task(player.play(steps()))
    await first.wait()
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(reached) == 1
    player.resume()
    await task
    assert len(reached) == 2


class Recorder:
    """Brokers that take everything, and acknowledge it while ``answers`` is set."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, str, bytes]] = []
        self.answers = asyncio.Event()
        self.answers.set()
        self.acknowledged = 0
        self.one_at_a_look = 0  # how often a look at ``acknowledged`` finds one more, before all are

    def __call__(self, endpoint: MqttEndpoint, client_id: str, **_: object) -> FakeSender:
        return FakeSender(self, endpoint.site)


class FakeSender:
    """Stands in for ``simulators.voyage.sender.MqttSender``."""

    trouble = None
    full = False

    def __init__(self, recorder: Recorder, site: str) -> None:
        self._recorder, self._site = recorder, site

    async def __aenter__(self) -> FakeSender:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def room(self) -> None: ...

    @property
    def acknowledged(self) -> int:
        if self._recorder.one_at_a_look:
            self._recorder.acknowledged += 1
            self._recorder.one_at_a_look -= 1
            if not self._recorder.one_at_a_look:
                self._recorder.answers.set()
        return self._recorder.acknowledged

    @property
    def waiting(self) -> int:
        return len(self._recorder.messages) - self._recorder.acknowledged

    def send(self, topic: str, payload: bytes) -> None:
        self._recorder.messages.append((self._site, topic, payload))

    async def flush(self) -> None:
        await self._recorder.answers.wait()
        self._recorder.acknowledged = len(self._recorder.messages)


def anywhere(site: str) -> MqttEndpoint:
    return MqttEndpoint(site=site, host="127.0.0.1", port=1)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr("simulators.voyage.player.MqttSender", recorder)
    return recorder


@given(pauses=st.sets(st.integers(0, 400), max_size=12), long=st.booleans())
@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_voyage_paused_at_any_moment_publishes_the_same_bytes(pauses: set[int], long: bool, broker: Recorder) -> None:
    steps = small_steps()[:400]
    broker.messages.clear()

    async def play() -> None:
        loop, nth = asyncio.get_running_loop(), iter(range(len(steps)))

        async def now_and_then(_: Step) -> None:
            if next(nth) in pauses:
                player.pause()
                loop.call_later(0.002 * long, player.resume)

        player = Player(anywhere, no_wait, on_step=now_and_then)
        played = await player.play(iter(steps))
        assert played.finished

    asyncio.run(play())
    assert broker.messages == [(s.site, s.topic, s.payload) for s in steps if isinstance(s, Publish)]


async def test_a_paused_voyage_waits_for_acknowledgements(broker: Recorder) -> None:
    phases: list[str] = []
    reached = asyncio.Event()
    steps = [step for step in small_steps() if isinstance(step, Publish)][:9]

    def tell(progress: Progress) -> None:
        phases.append(progress.phase)
        if progress.phase == "pausing":
            broker.answers.set()
        elif progress.phase == "paused":
            reached.set()

    async def at_the_fifth(step: Step) -> None:
        if step is steps[4]:
            broker.answers.clear()
            player.pause()

    player = Player(anywhere, no_wait, on_progress=tell, on_step=at_the_fifth)
    playing = asyncio.create_task(player.play(steps))
    await reached.wait()
    assert broker.acknowledged == len(broker.messages) == 5
    assert player.clock == steps[4].sim_time
    player.resume()
    await playing
    assert len(broker.messages) == 9
    assert [phase for phase, _ in itertools.groupby(phases)] == ["publishing", "pausing", "paused", "publishing"]


async def test_a_voyage_can_be_paused_before_it_begins(broker: Recorder) -> None:
    pausing = asyncio.Event()
    player = Player(anywhere, no_wait, on_progress=lambda now: pausing.set() if now.phase == "pausing" else None)
    player.pause()
    playing = asyncio.create_task(player.play([step for step in small_steps() if isinstance(step, Publish)][:3]))
    await pausing.wait()
    assert broker.messages == []
    player.resume()
    await playing
    assert len(broker.messages) == 3


async def test_simulated_time_stops_while_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    wall = [100.0]
    monkeypatch.setattr("simulators.voyage.player.time.monotonic", lambda: wall[0])

    async def sleep(seconds: float) -> None:
        wall[0] += seconds
        if wall[0] >= 103 and not paused:
            paused.append(pace.now)
            pace.pause()

    monkeypatch.setattr("simulators.voyage.player.asyncio.sleep", sleep)
    paused: list[dt.datetime] = []
    pace = VoyageClock(START, 10)
    assert await pace.due(START)
    assert not await pace.due(START + MINUTE)
    wall[0] += 1000
    assert paused == [pace.now] == [START + MINUTE / 2]
    pace.resume()
    assert await pace.due(START + MINUTE)
    assert wall[0] == pytest.approx(1106)
    assert pace.now == START + MINUTE


async def test_simulated_time_stops_while_the_process_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    wall = [100.0]
    monkeypatch.setattr("simulators.voyage.player.time.monotonic", lambda: wall[0])
    stops = [500.0]

    async def sleep(seconds: float) -> None:
        wall[0] += seconds
        if wall[0] >= 103 and stops:
            wall[0] += stops.pop()  # Ctrl-Z, and fg
            pace.continued()

    monkeypatch.setattr("simulators.voyage.player.asyncio.sleep", sleep)
    pace = VoyageClock(START, 10)
    assert await pace.due(START)
    assert await pace.due(START + MINUTE)
    assert wall[0] == pytest.approx(606, abs=0.3)


async def test_an_interrupted_voyage_reports_its_progress() -> None:
    waits = asyncio.Event()

    async def never(_: VoyageBarrier) -> None:
        waits.set()
        await asyncio.Event().wait()

    player = Player(nobody, never)
    task = asyncio.create_task(player.play([barrier(7)]))
    await waits.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert player.played.sim_time == START + 7 * MINUTE
    assert not player.played.finished


@pytest.mark.parametrize("speed", [0.0, -1.0, float("nan")])
async def test_speed_is_above_zero(speed: float) -> None:
    with pytest.raises(ValueError, match="above zero"):
        await Player(nobody, no_wait).play([], speed=speed)
