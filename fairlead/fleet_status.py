"""Read the state of a topology's sites: processes, each site's Kafka, links, bridges and certificates.

``fairlead status`` prints it, and the board shows it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from edge.status import read_bridge
from fairlead.certs.trust import served
from fairlead.errors import ConfigurationError, FairleadError, UnavailableError
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.protocol.types import TopicPartition
from fairlead.local import ports
from fairlead.local.registry import LocalSiteRegistry, SiteProcess
from fairlead.local.state import SiteState, read_state
from fairlead.local.workers import Workers
from fairlead.names import parse_log
from replication.operations.links.access import read_status
from replication.states import LinkState, LogState
from topologies.endpoints import EndpointResolver
from topologies.model import Site, Topology
from topologies.retention import KeeperGraph
from topologies.users import ADMIN
from topologies.values import parse_bootstrap

_TIMEOUT = 15.0  # seconds to wait for one site's logs
Offsets = dict[str, tuple[int, int]]  # by topic: start and end
LOSS = frozenset(LogState) - {LogState.MIRRORING, LogState.PAUSED, LogState.UNAVAILABLE}
"""States in which records of a copy are lost, or may be. All but ``REBUILDING`` wait for an operator."""


def fleet_status(
    topology: Topology, folder: Path, local: LocalSiteRegistry, resolver: EndpointResolver
) -> dict[str, Any]:
    """Return the state of a topology, JSON-ready. One site's errors are in its ``error``; the other sites are complete.

    ``records`` counts offsets between each log's start and end, markers included. ``lag`` is the number of records that
    the links in state up still have to copy, or null while no link is up. ``waiting`` are the sites that hold up the
    deletion of old records, each with logs, records, bytes (an estimate), since and what_to_do. ``overtaken`` are logs
    whose sources have deleted records that the site does not have, over links that are not up. ``logs_in_trouble`` are
    the logs that are not mirrored, by name: state, cause, since, link, what_to_do; ``logs_by_state`` counts them.
    ``asked`` is false where nobody could ask a site's Kafka, because its password is not known here.
    ``bridge`` is the last status that the site's bridge wrote, with its ``alarms``. ``certificates`` are those of its
    servers and of its authority.
    """
    processes = local.status()
    counts, certificates = asyncio.run(_ask_all(topology, folder, processes, resolver))
    kept = {name: count.pop("offsets", {}) for name, count in counts.items()}
    unheard = {(each.site, each.keeper) for each in KeeperGraph(topology).unheard()}
    sites: list[dict[str, Any]] = []
    for name, site in topology.sites.items():
        replicator = _replicator(folder, name)
        links = replicator["links"] if replicator else []
        lags = [link["lag"] for link in links if link["lag"] is not None]
        up = {link["name"] for link in links if link["state"] == LinkState.MIRRORING}
        sites.append(
            {
                "site": name,
                "kind": str(site.kind),
                **_where(processes.get(name), site.kafka.bootstrap if site.kafka else None),
                **counts[name],
                "replicator": {key: value for key, value in replicator.items() if key not in ("links", "logs")}
                if replicator
                else None,
                "bridge": read_bridge(folder, name),
                "certificates": certificates[name],
                "lag": sum(lags) if lags else None,
                "links": links,
                "waiting": waiting(name, replicator, unheard),
                "overtaken": overtaken(topology, name, kept, up),
                "logs_in_trouble": (troubled := dict(sorted(replicator["logs"].items())) if replicator else {}),
                "logs_by_state": dict(Counter(each["state"] for each in troubled.values())),
            }
        )
    workers = [{"name": w.name, "running": w.running, "pid": w.pid, "log": str(w.log)} for w in Workers(folder).all()]
    return {"topology": topology.name, "folder": str(folder), "sites": sites, "workers": workers}


def _where(process: SiteProcess | None, outside: str | None) -> dict[str, Any]:
    if outside is not None:
        return {"local": False, "kafka": {"address": outside}, "mqtt": None}
    if process is None:
        return {"local": True, "kafka": {"up": False}, "mqtt": {"up": False}}
    return {
        "local": True,
        "kafka": {
            "up": process.kafka_up,
            "address": f"127.0.0.1:{process.kafka_port}",
            "version": process.kafka_version,
            "pid": process.pids.get("kafka"),
            "log": str(process.logs["kafka"]),
        },
        "mqtt": {
            "up": process.mqtt_up,
            "address": f"127.0.0.1:{process.mqtt_port}",
            "version": process.mosquitto_version,
            "pid": process.pids.get("mqtt"),
            "log": str(process.logs["mqtt"]),
        },
    }


async def _ask_all(
    topology: Topology, folder: Path, processes: Mapping[str, SiteProcess], resolver: EndpointResolver
) -> tuple[dict[str, dict[str, Any]], dict[str, list[dict[str, Any]]]]:
    certificates = asyncio.create_task(shown(topology, folder))
    counts = await _count_all(topology, processes, resolver)
    return counts, await certificates


async def _count_all(
    topology: Topology, processes: Mapping[str, SiteProcess], resolver: EndpointResolver
) -> dict[str, dict[str, Any]]:
    async def count(name: str) -> dict[str, Any]:
        process = processes.get(name)
        if topology.sites[name].is_local and not (process and process.kafka_up):
            return {"logs": None, "records": None, "error": None}
        try:
            async with asyncio.timeout(_TIMEOUT):
                return await _count(topology, name, resolver)
        except TimeoutError:
            return {"logs": None, "records": None, "error": f"no answer within {_TIMEOUT:.0f} s"}
        except FairleadError as error:
            asked = not isinstance(error, ConfigurationError)
            return {"logs": None, "records": None, "error": error.what} | ({} if asked else {"asked": False})

    names = list(topology.sites)
    return dict(zip(names, await asyncio.gather(*map(count, names)), strict=True))


async def _count(topology: Topology, site: str, resolver: EndpointResolver) -> dict[str, Any]:
    async with await Cluster.open(resolver.kafka(site, ADMIN), client_id="fairlead-status") as cluster:
        logs = [
            TopicPartition(topic)
            for topic in await cluster.topics()
            if (name := parse_log(topic)) and name.stream in topology.streams
        ]
        ends, starts = await asyncio.gather(cluster.end_offsets(logs), cluster.start_offsets(logs))
    offsets: Offsets = {}
    for log in logs:
        end, start = ends[log], starts[log]
        if isinstance(end, int) and isinstance(start, int):
            offsets[log.topic] = (start, end)
    records = sum(end - start for start, end in offsets.values())
    return {"logs": len(logs), "records": records, "error": None, "offsets": offsets}


def overtaken(
    topology: Topology, site: str, kept: Mapping[str, Offsets], up: Collection[str]
) -> list[dict[str, str | int]]:
    """Return logs of a site whose sources have deleted records that the site lacks, each with the source that has most.

    Over a link that is up the replicator itself reports this (``behind-retention``); over a link that is paused, closed
    or has no replicator nothing asks the source. Leaves out logs that come aboard with their boxes: a copy that is no
    longer followed stays behind for good.

    Args:
        kept: Start and end of each log at the sites that answer.
        up: Names of the links that are up.
    """
    here = kept.get(site, {})
    best: dict[str, tuple[int, str]] = {}
    watched: set[str] = set()
    for link in topology.links_to(site):
        for log in here.keys() & kept.get(link.from_, {}).keys():
            name = parse_log(log)
            if name is not None and link.takes(name) and link.streams[name.stream] != "aboard":
                start = kept[link.from_][log][0]
                best[log] = min(best.get(log, (start, link.from_)), (start, link.from_))
                watched |= {log} if link.name in up else set()
    return [
        {"log": log, "from": source, "records": start - here[log][1]}
        for log, (start, source) in sorted(best.items())
        if start > here[log][1] and log not in watched
    ]


def waiting(
    site: str, replicator: Mapping[str, Any] | None, unheard: Collection[tuple[str, str]]
) -> list[dict[str, Any]]:
    """Return the sites that hold up the deletion of old records of ``site``, each with what to do.

    Args:
        unheard: Pairs of a site and another one whose confirmations have no way to it.
    """
    found: Mapping[str, dict[str, Any]] = (replicator or {}).get("retention", {}).get("waits_for", {})
    return [
        {
            "waits_for": other,
            **delay,
            "what_to_do": f"add ends: [{other}] to the links from {other} to {site}"
            if (site, other) in unheard
            else f"bring {other} up to date (fairlead link list); if it never comes back, take it out of the topology",
        }
        for other, delay in found.items()
    ]


def _replicator(folder: Path, site: str) -> dict[str, Any] | None:
    """Return a site's replicator's last status, and whether it still runs; None when there is no status file."""
    status = read_status(folder, site)
    if status is None:
        return None
    links = status.snapshot["links"]
    if not status.running:  # its last values of links and lag do not apply any more
        links = [{**link, "state": "stopped", "lag": None} for link in links]
    return {**status.snapshot, "running": status.running, "links": links}


def loses(found: Mapping[str, Any]) -> bool:
    """Whether records are lost, or would be, at any site.

    That is: a log is in a state of ``LOSS``, a source has deleted records that a site does not have, or a site's bridge
    has an alarm.
    """
    return any(
        LOSS & set(site["logs_by_state"]) or site["overtaken"] or (site["bridge"] and site["bridge"]["alarms"])
        for site in found["sites"]
    )


_PATIENCE = 3.0  # seconds to wait for one server


class Server(NamedTuple):
    """A server that speaks TLS."""

    site: str
    service: str
    host: str
    port: int


async def shown(topology: Topology, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Return by site the certificates that its servers present, and the authority's for sites on this machine.

    Leaves out servers that do not answer.
    """
    known = read_state(folder / "state.json").sites
    servers = [each for name, site in topology.sites.items() for each in _servers(name, site, known.get(name))]
    answers = await asyncio.gather(*(asyncio.to_thread(_ask, each) for each in servers))
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in topology.sites}
    for server, answer in zip(servers, answers, strict=True):
        if answer is not None:
            found[server.site].append(answer)
    if any(state.tls is not None and state.tls.issued for state in known.values()):
        from fairlead.local.certificates import Certificates  # late: cryptography is slow and few sites use TLS

        for each in Certificates(folder).all():
            if each.site is None:
                for site in (name for name, state in known.items() if state.tls and state.tls.issued and name in found):
                    found[site].append({"service": each.service, "address": None, **each.facts.as_json()})
    return found


def _servers(name: str, site: Site, state: SiteState | None) -> list[Server]:
    if site.kafka is not None:
        found = [Server(name, "kafka", *each) for each in parse_bootstrap(site.kafka.bootstrap) if site.kafka.tls]
    elif state is not None and state.tls is not None:
        found = [Server(name, "kafka", ports.HOST, broker.port) for broker in state.brokers]
        found.append(Server(name, "mqtt", ports.HOST, state.mqtt_port))
    else:
        found = []
    if site.mqtt is not None and site.mqtt.ca is not None:
        found.append(Server(name, "mqtt", site.mqtt.host, site.mqtt.port))
    return found


def _ask(server: Server) -> dict[str, Any] | None:
    try:
        certificate = served(server.host, server.port, patience=_PATIENCE)
    except UnavailableError:
        return None  # another part of the output says that it is down
    from fairlead.certs.facts import facts  # late, too

    return {
        "service": server.service,
        "address": f"{server.host}:{server.port}",
        **facts(certificate).as_json(),
    }


def days_left(site: Mapping[str, Any]) -> int | None:
    """Return the days until the first of a site's certificates expires; None without any."""
    return min((each["days"] for each in site["certificates"]), default=None)
