"""One voyage against real sites: plays it, waits at its barriers, watches its alerts, and keeps its truth."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from fairlead.clusters import Clusters
from fairlead.errors import ConfigurationError
from fairlead.records.alert import Alert
from simulators.alertwatch import AlertWatch
from simulators.links.leader import Cut, Leader
from simulators.links.steering import already_switched, steered
from simulators.plan import Plan
from simulators.player import Played, Player, Progress
from simulators.report.collect import container_logs
from simulators.steps import Publish, Step
from simulators.truth import Truth
from simulators.voyage import Course
from simulators.waiting import Waiter
from topologies.directory import Directory
from topologies.model import SiteKind, Topology
from topologies.users import ADMIN

ALERT_PATIENCE = 20.0  # seconds after the last message for alerts that are still on their way


@dataclass(slots=True)
class Sailed:
    """What a voyage leaves for the report. ``alerts``: (site, container) to the wall time of first sight."""

    plan: Plan
    truth: Truth
    played: Played
    alerts: dict[tuple[str, str], float] = field(default_factory=dict)
    cuts: tuple[Cut, ...] = ()


def alert_sites(topology: Topology) -> list[str]:
    """The sites that must hear of an alert: ports and headquarters."""
    return [name for name, site in topology.sites.items() if site.kind in (SiteKind.PORT, SiteKind.HQ)]


def ships(topology: Topology) -> list[str]:
    return [name for name, site in topology.sites.items() if site.kind is SiteKind.SHIP]


async def sail(
    voyage: Course,
    topology: Topology,
    directory: Directory,
    *,
    speed: float | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    on_step: Callable[[Step], Awaitable[None]] | None = None,
    barrier_timeout: float = 60.0,
    check: Callable[[], None] = lambda: None,
    network: Leader | None = None,
    on_player: Callable[[Player], None] = lambda _: None,
    on_published: Callable[[Publish], None] = lambda _: None,
    on_alert: Callable[[Alert], None] = lambda _: None,
) -> Sailed:
    """Play the whole voyage and return when every message is in a log and every alert at every port.

    Args:
        on_step: Awaited before each step of the voyage (see ``Player``).
        check: Called while the voyage waits; raises when a worker it needs has ended.
        on_player: Given the player before it begins, for those who steer it.
        on_published: Told of every message as it is handed to its broker.
        on_alert: Told of every state of every alert, as each site has it.
        network: The lines under the replicators, if they have any; a voyage that cuts links needs them.

    Raises:
        ConfigurationError: the sites have logs of containers from before.
        BarrierTimeout: the system did not get where the voyage waited for it.
    """
    truth = Truth(voyage.plan)
    async with Clusters(lambda site: directory.kafka(site, ADMIN), client_id="fairlead-voyage") as clusters:
        await _refuse_second_voyage(topology, clusters)
        watch = AlertWatch(clusters, alert_sites(topology), ships(topology), on_alert=on_alert)
        stop = asyncio.Event()
        watching = asyncio.create_task(watch.run(stop))
        waiter = Waiter(
            topology, clusters, timeout=barrier_timeout, check=check, cut=lambda: network.cut_sites if network else ()
        )

        def publish(message: Publish, at: dt.datetime) -> None:
            truth.record(message, at)
            on_published(message)

        player = Player(
            lambda site: directory.mqtt(site, "device"),
            waiter.wait,
            speed=speed,
            on_progress=on_progress,
            on_published=publish,
            on_step=steered(network, on_step) if network else on_step,
            on_link=already_switched if network else None,
        )
        on_player(player)
        try:
            played = await _unless_failed(watching, player.play(voyage.steps()))
            await _all_alerts(truth, watch, alert_sites(topology))
        finally:
            stop.set()
            await asyncio.gather(watching, return_exceptions=True)
    return Sailed(voyage.plan, truth, played, dict(watch.seen), network.cuts if network else ())


async def _unless_failed(watching: asyncio.Task[None], playing: Coroutine[Any, Any, Played]) -> Played:
    """The player's result; a watcher that fails ends the voyage at once instead of at its end."""
    play = asyncio.create_task(playing)
    try:
        done, _ = await asyncio.wait({play, watching}, return_when=asyncio.FIRST_COMPLETED)
        if play not in done:
            watching.result()
        return await play
    finally:
        play.cancel()


async def _all_alerts(truth: Truth, watch: AlertWatch, sites: list[str]) -> None:
    """Wait until each lost box's alert is everywhere, or ``ALERT_PATIENCE`` is over: the report tells which."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(ALERT_PATIENCE):
            await watch.until({(site, loss.container) for site in sites for loss in truth.losses})


async def _refuse_second_voyage(topology: Topology, clusters: Clusters) -> None:
    """A report compares all logs with one voyage's truth, so there must be none of another."""
    for site in topology.sites:
        there = await container_logs(await clusters.at(site), topology)
        if there:
            raise ConfigurationError(
                f"{site} already has {len(there)} logs of containers, for example {there[0]}",
                hint="a voyage begins on empty sites; to forget the old data: fairlead down --purge",
                site=site,
                logs=len(there),
            )


def alert_seconds(sailed: Sailed, topology: Topology) -> dict[str, float | None]:
    """Per site, the slowest overboard alert: wall seconds from the deciding reading's publication; null: never seen."""
    out: dict[str, float | None] = {}
    for site in alert_sites(topology):
        seconds: list[float] = []
        for loss in sailed.truth.losses:
            seen = sailed.alerts.get((site, loss.container))
            if seen is None:
                break
            seconds.append(seen - loss.published_at.timestamp())
        else:
            if seconds:
                out[site] = round(max(seconds), 3)
            continue
        out[site] = None
    return out
