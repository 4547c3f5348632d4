"""Run one voyage against real sites: play it, switch links, wait at barriers, watch alerts, and record the truth."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

from edge.ingest.classifier import MAX_AHEAD
from fairlead.errors import ConfigurationError
from fairlead.kafka.clusters import Clusters
from simulators.fleet.plan import VoyagePlan
from simulators.network.controller import CutPeriod, NetworkController
from simulators.steps import BarrierKind, Step, VoyageBarrier
from simulators.voyage.alert_watch import AlertWatch
from simulators.voyage.losses import ShipLosses, Takeover
from simulators.voyage.player import Played, Player, Progress
from simulators.voyage.truth import Truth
from simulators.voyage.voyage import VoyageSource
from simulators.voyage.waiting import AheadOfShip, Waiter, container_logs
from topologies.endpoints import EndpointResolver
from topologies.model import SiteKind, Topology
from topologies.users import ADMIN

LEAST_CUT: Final = 5.0
OnStep = Callable[[Step], Awaitable[None]]


def steered(network: NetworkController, then: OnStep | None = None, *, least: float = LEAST_CUT) -> OnStep:
    """Return an ``on_step`` for the player: it sets links' conditions at the step's time, and mends them at the end.

    Args:
        least: Wall seconds that a cut lasts at least, so that a fast voyage does not skip it.
    """

    async def before(step: Step) -> None:
        if isinstance(step, VoyageBarrier) and step.kind is BarrierKind.FINISHED:
            network.mend_links(step.sim_time)
        else:
            if (missing := network.seconds_missing(step.sim_time, least)) > 0:
                await asyncio.sleep(missing)
            network.apply_weather(step.sim_time)
        if then is not None:
            await then(step)

    return before


ALERT_PATIENCE = 20.0  # seconds after the last message to wait for late alerts


@dataclass(slots=True)
class Sailed:
    """The result of a voyage. ``alerts``: (site, container) to the wall time when the alert was first seen.
    ``arrivals``: what each port had before a ship arrived from sea."""

    plan: VoyagePlan
    truth: Truth
    played: Played
    alerts: dict[tuple[str, str], float] = field(default_factory=dict)
    cuts: tuple[CutPeriod, ...] = ()
    arrivals: tuple[AheadOfShip, ...] = ()
    sunk: frozenset[str] = frozenset()
    takeovers: tuple[Takeover, ...] = ()


def alert_sites(topology: Topology) -> list[str]:
    """Return the sites that must get every alert: ports and headquarters."""
    return [name for name, site in topology.sites.items() if site.kind in (SiteKind.PORT, SiteKind.HQ)]


async def sail(
    voyage: VoyageSource,
    topology: Topology,
    resolver: EndpointResolver,
    *,
    speed: float | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    on_step: Callable[[Step], Awaitable[None]] | None = None,
    barrier_timeout: float = 60.0,
    check: Callable[[], None] = lambda: None,
    network: NetworkController | None = None,
    on_player: Callable[[Player], None] = lambda _: None,
    end_site: Callable[[str], None] | None = None,
    left_over: Callable[[], Topology] | None = None,
    source: str | None = None,
) -> Sailed:
    """Play the whole voyage. Return when every message is in a log, and the overboard alerts are at every port and
    headquarters or ``ALERT_PATIENCE`` seconds have passed.

    Args:
        on_step: Awaited before each step of the voyage (see ``Player``).
        check: Called while the voyage waits; raises if a worker that the voyage needs has ended.
        on_player: Called with the player before it begins.
        network: Controls the proxies of the links, if there are any; a voyage that cuts links needs them.
        barrier_timeout: Seconds without any progress after which a barrier fails.
        end_site: Ends every process of a site; a voyage that loses a ship needs it.
        left_over: Returns what is left of the topology now, in a scenario that loses a site.
        source: The topology's name or file, for the command line; its name by default.

    Raises:
        ConfigurationError: the sites have containers' logs from an earlier voyage, or the voyage loses a ship and
            nothing can end its site.
        BarrierTimeout: the sites made no progress for ``barrier_timeout`` seconds.
    """
    truth = Truth(voyage.plan)
    losses = ShipLosses(topology, resolver, end_site or _nothing_ends_it, wait=barrier_timeout)
    if end_site is None and voyage.plan.losses:
        _nothing_ends_it(voyage.plan.losses[0].ship)
    async with Clusters(lambda site: resolver.kafka(site, ADMIN), client_id="fairlead-voyage") as clusters:
        await refuse_second_voyage(topology, clusters, source or topology.name)
        watch = AlertWatch(clusters, alert_sites(topology), topology.sites_with_bridge)
        stop = asyncio.Event()
        watching = asyncio.create_task(watch.run(stop))
        waiter = Waiter(
            topology,
            clusters,
            timeout=barrier_timeout,
            check=check,
            cut=lambda: network.cut_pairs if network else (),
            sunk=lambda: losses.sunk,
            left_over=left_over,
        )

        async def before(step: Step) -> None:
            await losses.on_step(step)
            if on_step is not None:
                await on_step(step)

        player = Player(
            lambda site: resolver.mqtt(site, "device"),
            waiter.wait,
            on_progress=on_progress,
            on_published=truth.record,
            on_step=steered(network, before) if network else before,
            patience=barrier_timeout,
        )
        on_player(player)
        try:
            played = await _unless_failed(watching, player.play(voyage.steps(), speed=speed))
            await _all_alerts(truth, watch, alert_sites(topology))
        finally:
            stop.set()
            await asyncio.gather(watching, return_exceptions=True)
    cuts = network.cuts if network else ()
    sunk, takeovers = frozenset(losses.sunk), tuple(losses.takeovers)
    return Sailed(voyage.plan, truth, played, dict(watch.seen), cuts, (*waiter.arrivals,), sunk, takeovers)


def _nothing_ends_it(site: str) -> None:
    raise ConfigurationError(
        f"the scenario loses {site}, and this voyage cannot end its site",
        hint="sail it where fairlead up has started the sites, without --no-workers",
        site=site,
    )


async def _unless_failed(watching: asyncio.Task[None], playing: Coroutine[Any, Any, Played]) -> Played:
    """Return the player's result. If the watcher fails, end the voyage at once."""
    play = asyncio.create_task(playing)
    try:
        done, _ = await asyncio.wait({play, watching}, return_when=asyncio.FIRST_COMPLETED)
        if play not in done:
            watching.result()
        return await play
    finally:
        play.cancel()


async def _all_alerts(truth: Truth, watch: AlertWatch, sites: list[str]) -> None:
    """Wait at most ``ALERT_PATIENCE`` seconds until every site has each lost box's alert."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(ALERT_PATIENCE):
            await watch.until({(site, loss.container) for site in sites for loss in truth.losses})


async def refuse_second_voyage(topology: Topology, clusters: Clusters, source: str) -> None:
    """Refuse sites with logs of another voyage, because a report compares all logs with one voyage's truth.

    Raises:
        ConfigurationError: a site has logs of containers.
    """
    for site in topology.sites:
        there = await container_logs(await clusters.at(site), topology)
        if there:
            raise ConfigurationError(
                f"{site} already has {len(there)} logs of containers, for example {there[0]}",
                hint=f"a voyage begins on empty sites; to forget the old: fairlead down --topology {source} --purge",
                site=site,
                logs=len(there),
            )


def alert_seconds(sailed: Sailed, topology: Topology) -> dict[str, float | None]:
    """Return the slowest overboard alert by site: wall seconds from the deciding reading's publication, or None."""
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


def check_clock(starts: dt.datetime, ends: dt.datetime, now: dt.datetime, speed: float | None) -> None:
    """Refuse a voyage into the future: bridges refuse readings more than ``MAX_AHEAD`` ahead of their own clock. Any
    time in the past is possible, because retention counts from a log's own newest record.

    Args:
        speed: Simulated seconds per second; None is as fast as possible.

    Raises:
        ConfigurationError: bridges would refuse its last readings because of their time.
    """
    playing = (ends - starts) / speed if speed else dt.timedelta(0)
    if max(starts - now, ends - now - playing) > MAX_AHEAD:
        raise ConfigurationError(
            f"the voyage would last until {ends:%Y-%m-%d %H:%M} UTC, and bridges refuse readings of more than "
            f"{MAX_AHEAD // dt.timedelta(hours=1)} h ahead of their clock",
            hint="choose an earlier --start",
        )
