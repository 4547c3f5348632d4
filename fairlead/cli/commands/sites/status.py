"""Print the output of ``fairlead status``: processes, each site's Kafka, links, bridges and certificates."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fairlead.cli.console import number
from fairlead.fleet_status import LOSS, days_left
from fairlead.home import restart_command, topology_option

_PROGRAMS = (("Kafka", "kafka"), ("Mosquitto", "mqtt"))
_OVERTAKEN_REMEDY = (
    "let the link go on and keep the source's retention longer than any pause; ask whether another site still has "
    "them before you resolve the log"
)


def show(found: Mapping[str, Any], console: Console) -> None:
    """Print the state as tables: sites, links, logs in trouble, workers."""
    versions = [f"{name} {', '.join(_versions(found, part))}" for name, part in _PROGRAMS if _versions(found, part)]
    title = " · ".join((found["topology"], *versions))
    secure = any(site["certificates"] for site in found["sites"])
    columns = ("site", "kind", "Kafka", "MQTT", "logs", "records", "lag", *(("TLS",) if secure else ()))
    table = Table(*columns, title=title)
    for column in table.columns[4:]:
        column.justify = "right"
    for site in found["sites"]:
        lag = "-" if site["lag"] is None else f"{site['lag']:,}"
        row = (_part(site["kafka"]), _part(site["mqtt"]), number(site["logs"]), number(site["records"]), lag)
        left = days_left(site)
        until = ("-" if left is None else f"{left} d",) if secure else ()
        table.add_row(site["site"], site["kind"], *row, *until)
    console.print(table)
    for site in found["sites"]:
        if site["error"]:
            console.print(f"[yellow]{site['site']}:[/] {escape(site['error'])}", soft_wrap=True)
    links = [link for site in found["sites"] for link in site["links"]]
    if links:
        _show_links(links, console)
    _show_members(found["sites"], console)
    _show_troubles(found["sites"], console)
    _show_alarms(found["sites"], console)
    show_certificates(found["sites"], Path(found["folder"]), console)
    for worker in found["workers"]:
        state = f"[green]runs[/] (pid {worker['pid']})" if worker["running"] else "[red]ended[/]"
        console.print(f"worker {worker['name']} {state}, log {escape(worker['log'])}", soft_wrap=True)


def _show_links(links: list[dict[str, Any]], console: Console) -> None:
    table = Table("link", "state", "lag", "records", "bytes", "cause")
    for column in table.columns[2:5]:
        column.justify = "right"
    for link in links:
        style = {"mirroring": "green", "closed": "dim", "stopped": "dim"}.get(link["state"], "yellow")
        numbers = (number(link["lag"]), number(link["records"]), number(link["bytes"]))
        table.add_row(escape(link["name"]), f"[{style}]{link['state']}[/]", *numbers, escape(link["cause"] or ""))
    console.print(table)


def _show_members(sites: list[dict[str, Any]], console: Console) -> None:
    """Print the replicators that share a site's logs, and what is wrong with their group."""
    for site in sites:
        replicator = site["replicator"] or {}
        group = replicator.get("group")
        if group is None or not replicator["running"]:
            continue
        members = sorted(group["members"].values(), key=lambda each: str(each["name"]))
        shown = ", ".join(
            f"{each['name']}{' (leader)' if each['leader'] else ''} {each['logs']:,} logs" for each in members
        )
        text = f"{site['site']}: replicators of group {group['name']}: {shown or 'none'}"
        console.print(escape(text), soft_wrap=True)
        wrong = f"{group['state']}: {group['cause']}" if group["cause"] else group["warning"]
        if wrong:
            console.print(f"[yellow]{site['site']}: group {escape(group['name'])}: {escape(wrong)}[/]", soft_wrap=True)


_SHOWN = 20  # logs in trouble to show per site; --json has all


def _show_troubles(sites: list[dict[str, Any]], console: Console) -> None:
    """Print counts by state per site, then each log with its cause, since when, and what to do."""
    for site in sites:
        troubled = site["logs_in_trouble"]
        if not troubled:
            continue
        counts = ", ".join(f"{count} {state}" for state, count in sorted(site["logs_by_state"].items()))
        console.print(f"[bold]{site['site']}: logs not mirrored:[/] {counts}", soft_wrap=True)
        for log, trouble in list(troubled.items())[:_SHOWN]:
            style = "bold red" if trouble["state"] in LOSS else "yellow"
            since = trouble["since"].partition(".")[0]
            over = f" over {trouble['link']}" if trouble["link"] else ""
            what = escape(f"since {since}{over}: {trouble['cause']}")
            console.print(f"  {escape(log)} [{style}]{trouble['state']}[/] {what}", soft_wrap=True)
            console.print(f"    [bold]what to do:[/] {escape(trouble['what_to_do'])}", soft_wrap=True)
        if len(troubled) > _SHOWN:
            console.print(f"  and {len(troubled) - _SHOWN} more: fairlead status --json", soft_wrap=True)


def _show_alarms(sites: list[dict[str, Any]], console: Console) -> None:
    """Print the alarms of the sites' bridges and of links that are not up, each with what to do."""
    for site in sites:
        for log in site["overtaken"][:_SHOWN]:
            lost = f"{log['from']} has deleted {log['records']:,} records of {log['log']} that are not here yet"
            console.print(f"[bold red]{site['site']}: {escape(lost)}[/]", soft_wrap=True)
            console.print(f"    [bold]what to do:[/] {_OVERTAKEN_REMEDY}", soft_wrap=True)
        if len(site["overtaken"]) > _SHOWN:
            console.print(f"  and {len(site['overtaken']) - _SHOWN} more: fairlead status --json", soft_wrap=True)
        for each in site["waiting"]:
            what = (
                f"keeps {each['records']:,} old records of {each['logs']:,} logs ({each['bytes'] / 1e6:,.1f} MB) until "
                f"{each['waits_for']} has them, since {each['since'].partition('.')[0]}"
            )
            console.print(f"[yellow]{site['site']}: {escape(what)}[/]", soft_wrap=True)
            console.print(f"    [bold]what to do:[/] {escape(each['what_to_do'])}", soft_wrap=True)
        for each in site["bridge"]["alarms"] if site["bridge"] else ():
            console.print(f"[bold red]{site['site']}: {escape(each['what'])}[/]", soft_wrap=True)
            console.print(f"    [bold]what to do:[/] {escape(each['what_to_do'])}", soft_wrap=True)


def _part(part: Mapping[str, Any] | None) -> str:
    if part is None:
        return "-"
    if "up" not in part:
        return escape(part["address"])
    if not part["up"]:
        return "[red]down[/]"
    return f"[green]up[/] :{part['address'].rpartition(':')[2]}"


def _versions(found: Mapping[str, Any], part: str) -> list[str]:
    every = {(site[part] or {}).get("version") for site in found["sites"]}
    return sorted(version for version in every if version)


def show_certificates(sites: list[dict[str, Any]], folder: Path, console: Console) -> None:
    """Print the certificates that expire soon or have expired, with what to do. ``folder``: the state folder."""
    for site in sites:
        for each in site["certificates"]:
            if each["warning"] is None:
                continue
            when = "has expired" if each["days"] < 0 else f"expires in {each['days']} days"
            style = "bold red" if each["days"] < 0 else "yellow"
            what = f"{site['site']}: certificate of {each['service']} {when} ({each['expires'][:10]})"
            console.print(f"[{style}]{escape(what)}[/]", soft_wrap=True)
            console.print(f"    [bold]what to do:[/] {escape(_remedy(site, each, folder))}", soft_wrap=True)


def _remedy(site: Mapping[str, Any], each: Mapping[str, Any], folder: Path) -> str:
    if not site["local"]:
        return "its operator has to renew it"
    if each["service"] == "authority":
        return (
            "fairlead down; delete the folder certs of the topology's state; fairlead up; give clients the new ca.pem"
        )
    if each["days"] < 0:
        return restart_command(folder, site["site"])
    return f"fairlead certs renew --site {site['site']}{topology_option(folder)}"
