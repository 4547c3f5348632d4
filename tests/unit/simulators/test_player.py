"""The player and its pace without brokers; tests/integration/simulators plays to real ones."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections.abc import Iterator

import pytest

from fairlead.endpoint import MqttEndpoint
from fairlead.errors import ExitCode, UnavailableError
from simulators.pace import Pace
from simulators.player import BarrierTooLong, Player, Progress, no_wait
from simulators.steps import Barrier, BarrierKind, LinkChange, Step

START = dt.datetime(2026, 9, 1, tzinfo=dt.UTC)
MINUTE = dt.timedelta(minutes=1)


def nobody(site: str) -> MqttEndpoint:
    raise AssertionError(f"no broker of {site} is wanted here")


def barrier(minute: int = 0) -> Barrier:
    return Barrier(
        START + minute * MINUTE,
        BarrierKind.DEPARTURE,
        "duck-star takes custody of 3 boxes at tokyo",
        site="tokyo",
        peer="duck-star",
    )


async def test_barriers_are_waited_for_in_order_and_timed() -> None:
    seen: list[int] = []

    async def wait(one: Barrier) -> None:
        seen.append((one.sim_time - START) // MINUTE)

    played = await Player(nobody, wait).play([barrier(0), barrier(5), barrier(5)])
    assert seen == [0, 5, 5]
    assert played.finished
    assert [one.sim_time for one, _ in played.waited] == [START, START + 5 * MINUTE, START + 5 * MINUTE]
    assert played.seconds_waited >= 0


async def test_a_barrier_that_takes_too_long_names_what_was_awaited() -> None:
    async def never(_: Barrier) -> None:
        await asyncio.Event().wait()

    with pytest.raises(BarrierTooLong, match="duck-star takes custody of 3 boxes at tokyo") as error:
        await Player(nobody, never, barrier_timeout=0.05).play([barrier()])
    assert error.value.exit_code == ExitCode.UNAVAILABLE
    assert "tokyo and duck-star" in error.value.hint
    assert error.value.fields["barrier"] == "departure"


async def test_a_time_limit_of_the_waiter_is_its_own() -> None:
    async def gives_up(_: Barrier) -> None:
        raise TimeoutError("not the player's")

    with pytest.raises(TimeoutError, match="not the player's"):
        await Player(nobody, gives_up, barrier_timeout=60).play([barrier()])


async def test_links_are_switched_by_the_caller_or_refused() -> None:
    change = LinkChange(START, ("duck-star", "los-angeles"), up=False)
    with pytest.raises(UnavailableError, match="duck-star and los-angeles"):
        await Player(nobody, no_wait).play([change])
    switched: list[LinkChange] = []

    async def switch(one: LinkChange) -> None:
        switched.append(one)

    await Player(nobody, no_wait, on_link=switch).play([change])
    assert switched == [change]


async def test_a_step_waits_for_whom_it_was_told_to() -> None:
    order: list[tuple[str, dt.datetime]] = []
    told, go_on = asyncio.Event(), asyncio.Event()

    async def tell(step: Step) -> None:
        order.append(("told", step.sim_time))
        told.set()
        await go_on.wait()

    async def wait(one: Barrier) -> None:
        order.append(("waited", one.sim_time))

    playing = asyncio.create_task(Player(nobody, wait, on_step=tell).play([barrier(0), barrier(5)]))
    await told.wait()
    assert order == [("told", START)]
    go_on.set()
    await playing
    later = START + 5 * MINUTE
    assert order == [("told", START), ("waited", START), ("told", later), ("waited", later)]


async def test_progress_names_the_phase() -> None:
    phases: list[str] = []

    def tell(progress: Progress) -> None:
        phases.append(progress.phase)

    await Player(nobody, no_wait, on_progress=tell).play([barrier()])
    assert phases[:2] == ["waiting: duck-star takes custody of 3 boxes at tokyo", "publishing"]


async def test_waiting_does_not_make_the_voyage_hurry_afterwards() -> None:
    """A minute at 600 times is 0.1 s, also after a barrier that took longer than that."""
    moments: list[float] = []

    async def wait(_: Barrier) -> None:
        moments.append(time.monotonic())
        if len(moments) == 1:
            await asyncio.sleep(0.3)
            moments.append(time.monotonic())

    await Player(nobody, wait, speed=600).play([barrier(0), barrier(1)])
    _, opened, second = moments
    assert second - opened >= 0.09


async def test_pause_stops_simulated_time() -> None:
    player: Player
    reached: list[Barrier] = []
    first = asyncio.Event()

    async def wait(one: Barrier) -> None:
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


async def test_an_interrupted_voyage_says_how_far_it_came() -> None:
    waits = asyncio.Event()

    async def never(_: Barrier) -> None:
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
def test_speed_is_above_zero(speed: float) -> None:
    with pytest.raises(ValueError, match="above zero"):
        Player(nobody, no_wait, speed=speed)


async def test_a_pace_without_speed_never_sleeps() -> None:
    pace = Pace(START, None)
    began = time.monotonic()
    await pace.until(START + dt.timedelta(days=365))
    assert time.monotonic() - began < 1


async def test_real_time_is_real() -> None:
    pace = Pace(START, 1)
    began = time.monotonic()
    await pace.until(START)
    await pace.until(START + dt.timedelta(seconds=0.2))
    assert time.monotonic() - began >= 0.2
