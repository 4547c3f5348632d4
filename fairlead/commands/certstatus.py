"""Which certificates a topology's servers show, for ``fairlead status``: asked of the servers, not read from files."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.markup import escape

from fairlead.certs.served import served
from fairlead.errors import UnavailableError
from fairlead.local import ports
from fairlead.local.state import SiteState, read_state
from topologies.model import Site, Topology
from topologies.values import parse_bootstrap

_PATIENCE = 3.0  # seconds for one server


class Server(NamedTuple):
    """A server that speaks TLS."""

    site: str
    service: str
    host: str
    port: int


async def shown(topology: Topology, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """By site the certificates that its servers show, and of sites on this machine the authority's; those that do not
    answer are left out."""
    known = read_state(folder / "state.json").sites
    servers = [each for name, site in topology.sites.items() for each in _servers(name, site, known.get(name))]
    answers = await asyncio.gather(*(asyncio.to_thread(_ask, each) for each in servers))
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in topology.sites}
    for server, answer in zip(servers, answers, strict=True):
        if answer is not None:
            found[server.site].append(answer)
    if any(state.tls is not None and state.tls.issued for state in known.values()):
        from fairlead.local.certificates import Certificates  # late, as cryptography is slow and few sites speak TLS

        for each in Certificates(folder).all():
            if each.site is None:
                for site in (name for name, state in known.items() if state.tls and state.tls.issued and name in found):
                    found[site].append({"service": each.service, "address": None, **each.facts.as_json()})
    return found


def _servers(name: str, site: Site, state: SiteState | None) -> list[Server]:
    if site.kafka is not None:
        secure = site.kafka.security == "SASL_SSL"
        found = [Server(name, "kafka", *address) for address in parse_bootstrap(site.kafka.bootstrap) if secure]
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
        return None  # that it is down stands elsewhere
    from fairlead.certs.facts import facts  # late as well

    return {
        "service": server.service,
        "address": f"{server.host}:{server.port}",
        **facts(certificate).as_json(),
    }


def days_left(site: Mapping[str, Any]) -> int | None:
    """Days until the first of a site's certificates ends; None without any."""
    return min((each["days"] for each in site["certificates"]), default=None)


def show_certificates(sites: list[dict[str, Any]], console: Console) -> None:
    """What is soon to end or has ended, with what to do."""
    for site in sites:
        for each in site["certificates"]:
            if each["warning"] is None:
                continue
            when = "has expired" if each["days"] < 0 else f"expires in {each['days']} days"
            style = "bold red" if each["days"] < 0 else "yellow"
            what = f"{site['site']}: certificate of {each['service']} {when} ({each['expires'][:10]})"
            console.print(f"[{style}]{escape(what)}[/]", soft_wrap=True)
            console.print(f"    [bold]what to do:[/] {escape(_remedy(site, each))}", soft_wrap=True)


def _remedy(site: Mapping[str, Any], each: Mapping[str, Any]) -> str:
    if not site["local"]:
        return "its operator has to renew it"
    if each["service"] == "authority":
        return "fairlead certs init --replace; fairlead certs renew; fairlead certs retire"
    if each["days"] < 0:
        return f"fairlead down {site['site']}; fairlead up {site['site']}"
    return f"fairlead certs renew {site['site']}"
