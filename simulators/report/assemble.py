"""Assemble the report of a finished voyage: count in Kafka, compare sites, read Delta tables, read as customers."""

from __future__ import annotations

import asyncio
import importlib.metadata
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from fairlead.jars import jar_set
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.clusters import Clusters
from fairlead.records import decoder
from fairlead.records.alert import OVERBOARD, Alert
from fairlead.records.ship import RollCall
from fairlead.versions import fairlead_version
from replication.audit import compare
from shore.read import table
from simulators.report.counting import (
    count_readings,
    entitled_alerts,
    entitled_to,
    identity_of,
    ids_of,
    read_as_customer,
    records_of,
)
from simulators.report.digests import add_readings, digest_figures, read_digests, told_times
from simulators.report.model import (
    CustomerFigures,
    HeadquartersFigures,
    LinkFigures,
    Report,
    ShipLossFigures,
)
from simulators.report.roll_calls import roll_call_figures
from simulators.report.yard import judge_yards
from simulators.steps import ReadingId
from simulators.voyage.headquarters import LostHeadquarters
from simulators.voyage.losses import Takeover
from simulators.voyage.run import Sailed, alert_seconds
from simulators.voyage.waiting import container_logs, reported_links
from topologies.endpoints import EndpointResolver
from topologies.model import SHORE_ALERTS, SiteKind, Topology
from topologies.users import ADMIN

if TYPE_CHECKING:
    from shore.verify import TableCheck

Tell = Callable[[str], None]


async def assemble(
    sailed: Sailed,
    topology: Topology,
    resolver: EndpointResolver,
    folder: Path,
    *,
    checks: Sequence[TableCheck],
    seconds: dict[str, float],
    tell: Tell,
    lost: LostHeadquarters | None = None,
) -> Report:
    """Count everything in the logs, in the tables, and in what customers can read.

    Args:
        folder: The topology's state folder, with the Delta tables and the replicators' counters.
        checks: What ``fairlead shore verify`` found in the tables.
        seconds: Wall time by phase so far; the report's own phases are added.
        tell: Called with each step, in words.
        lost: The headquarters that were lost; ``topology`` is without them.
    """
    truth, plan = sailed.truth, sailed.plan
    began = time.monotonic()
    shore = topology.shore.at if topology.shore else next(iter(topology.sites))
    tell(f"counting the logs at {shore}")
    async with Clusters(lambda site: resolver.kafka(site, ADMIN), client_id="fairlead-voyage") as clusters:
        cluster = await clusters.at(shore)
        stored: Counter[ReadingId] = Counter()
        records = 0
        digests = await read_digests(cluster)
        told = told_times(digests)
        logs = await records_of(cluster, await container_logs(cluster, topology))
        for of_log in logs.values():
            stored.update(ids_of(of_log))
            records += len(of_log)
        states = await _alerts(cluster)
        alerts = [*states.values()]
        roll_calls = roll_call_figures(
            truth.departures,
            truth.losses,
            await _roll_calls(cluster),
            {"": alerts}
            | {code: [*(await _alerts(await clusters.at(port))).values()] for code, port in _ports(topology).items()},
            sailed.sunk,
        )
        add_readings(told, logs)
    sunk = {one for readings in truth.aboard_only.values() for one in readings if one not in stored}
    counted = count_readings(set(truth.published) - sunk, stored)
    tell("comparing the sites' logs")
    compared, differing = await _audit(topology, resolver, sailed.sunk)
    tell("asking the customers")
    customers = await asyncio.to_thread(_ask_all, topology, resolver, sailed, sunk, states)
    overboard = {loss.container for loss in truth.losses}
    alerted = {one.equipment_reference for one in alerts if one.kind == OVERBOARD}
    return Report(
        topology=topology.name,
        scenario=plan.scenario.name,
        seed=plan.seed,
        starts=plan.starts,
        containers=len(plan.boxes),
        readings_published=truth.readings,
        readings_in_logs=counted.in_logs,
        readings_lost=counted.lost,
        readings_repeated=counted.repeated,
        repeats_sent=truth.repeats,
        overboard=tuple(sorted(overboard)),
        overboard_alerts=len(alerted & overboard),
        false_alerts=len(alerted - overboard),
        yard=judge_yards(plan, alerts),
        logs_compared=compared,
        logs_differing=differing,
        delta_rows=next((check.rows for check in checks if check.same and "readings" in check.table), 0),
        delta_rows_expected=records,
        condition_rows=_hours(folder) if any(check.table == "conditions" and check.rows for check in checks) else 0,
        tables_equal=tuple(check.table for check in checks if check.same),
        tables_different=tuple(check.table for check in checks if check.same is False),
        tables_not_compared=tuple(check.table for check in checks if check.same is None),
        shore=topology.shore is not None,
        digests=digest_figures(plan, digests, told, sailed.sunk),
        alert_seconds=alert_seconds(sailed, topology),
        roll_calls=roll_calls,
        customers=customers,
        links=link_figures(topology, folder, sailed.sunk),
        cuts=tuple(replace(cut, seconds=round(cut.seconds, 1)) for cut in sailed.cuts),
        arrivals=sailed.arrivals,
        ship_losses=tuple(_ship_loss(sailed, takeover, stored) for takeover in sailed.takeovers),
        headquarters=await asyncio.to_thread(_headquarters, lost, topology, sailed) if lost is not None else None,
        seconds={
            **seconds,
            "of that waiting for the sites": round(sailed.played.seconds_waited, 1),
            "report": round(time.monotonic() - began, 1),
        },
        versions={"fairlead": fairlead_version()}
        | {name: importlib.metadata.version(name) for name in ("pyspark", "delta-spark")}
        | {"kafka": jar_set("kafka").revision_of("kafka_2.13")},
        chart_container=plan.chart_box().number,
    )


def _ship_loss(sailed: Sailed, takeover: Takeover, stored: Counter[ReadingId]) -> ShipLossFigures:
    loss = next(each for each in sailed.plan.losses if each.ship == takeover.ship)
    boxes = [box for box in sailed.plan.boxes if box.sinks == loss.time and box.log in takeover.logs]
    numbers = {box.number for box in boxes}
    lost = Counter(one.container for one in sailed.truth.aboard_only[loss.ship] if one not in stored)
    return ShipLossFigures(
        ship=loss.ship,
        port=takeover.port,
        seconds=takeover.seconds,
        sank=loss.time,
        left=loss.left.departs,
        boxes=tuple(sorted(box.number for box in sailed.plan.boxes if box.sinks == loss.time)),
        taken_over=len(boxes),
        landed=tuple(sorted(box.number for box in boxes if box.landed)),
        kept=sum(one.container in numbers for one in stored),
        lost=dict(sorted(lost.items())),
    )


def _headquarters(lost: LostHeadquarters, topology: Topology, sailed: Sailed) -> HeadquartersFigures:
    """Let the customer's program read on at the heir's site, and compare what it got at both with what it must get."""
    before, after = (Counter(map(identity_of, values)) for values in (lost.read_before, lost.read_on()))
    got = (before + after).keys() - {None}
    return HeadquartersFigures(
        site=lost.loss.site,
        heir=lost.loss.heir,
        lost_at=sailed.plan.starts + lost.loss.starts,
        customer=lost.customer,
        read_before=len(before.keys() - {None}),
        read_after=len(after.keys() - {None}),
        lost=len(entitled_to(sailed.truth, topology, lost.customer) - got),
        repeated=sum(times - 1 for one, times in (before + after).items() if one is not None),
    )


def _hours(folder: Path) -> int:
    """Count the rows of table ``conditions`` that cover one hour."""
    return int(table(folder, "conditions").count_rows(filter=pc.field("window_hours") == 1))


async def _alerts(cluster: Cluster) -> dict[str, Alert]:
    """Return every state of every site's alert in this cluster, by its place in its log (``alerts.tokyo@3``)."""
    alert = decoder(Alert)
    known = await cluster.topics(refresh=True)
    logs = [topic for topic in known if topic.startswith("alerts.") and topic != SHORE_ALERTS]
    found = await records_of(cluster, logs)
    return {f"{log}@{r.offset}": alert.decode(r.value or b"") for log, of_log in found.items() for r in of_log}


async def _roll_calls(cluster: Cluster) -> list[RollCall]:
    made = decoder(RollCall)
    logs = [topic for topic in await cluster.topics(refresh=True) if re.fullmatch(r"ships\.\d+\.roll-calls", topic)]
    return [made.decode(r.value or b"") for of_log in (await records_of(cluster, logs)).values() for r in of_log]


def _ports(topology: Topology) -> dict[str, str]:
    """Return the site of each port by its UN/LOCODE."""
    return {
        spec.unlocode: name for name, spec in topology.sites.items() if spec.kind is SiteKind.PORT and spec.unlocode
    }


async def _audit(topology: Topology, resolver: EndpointResolver, sunk: Collection[str]) -> tuple[int, int]:
    """Return how many logs were compared and how many differ, over all pairs of linked sites that are not lost."""
    pairs = {
        frozenset((link.from_, link.to)) for link in topology.directed_links() if not {link.from_, link.to} & set(sunk)
    }
    compared = differing = 0
    for a, b in sorted(tuple(sorted(pair)) for pair in pairs):
        audit = await compare(topology, resolver.kafka(a, ADMIN), resolver.kafka(b, ADMIN))
        compared += audit.compared
        differing += len(audit.differences)
    return compared, differing


def _ask_all(
    topology: Topology,
    resolver: EndpointResolver,
    sailed: Sailed,
    sunk: Collection[ReadingId],
    states: Mapping[str, Alert],
) -> dict[str, CustomerFigures]:
    names = [name for name, one in topology.customers.items() if one.feed_at or one.reads_at]
    return {
        name: read_as_customer(
            topology, resolver, sailed.truth, name, sunk, alerts=entitled_alerts(sailed.plan, topology, name, states)
        )
        for name in names
    }


def link_figures(topology: Topology, folder: Path, sunk: Collection[str] = ()) -> tuple[LinkFigures, ...]:
    """Return the replicators' counters from their status files, including links without traffic, without those of
    lost sites."""
    return tuple(
        LinkFigures(
            name=link["name"],
            records=link["records"],
            bytes=link["bytes"],
            lag=link["lag"] or 0,
            state=link["state"],
        )
        for link in reported_links(topology, folder, sunk)
    )
