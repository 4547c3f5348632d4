"""Merge the snapshots of members that share one site's logs into one, as one replicator would show it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from replication.states import ELSEWHERE, LinkState

Snapshot = Mapping[str, Any]

_SUMS: Final = ("records", "batches", "bytes", "fetched_bytes", "followed")


def merge_snapshots(snapshots: Sequence[Snapshot]) -> dict[str, Any]:
    """Return what the members of a group do together (``Replicator.snapshot``).

    Counters are added, troubles are joined, and a link has the worst state that a member sees. ``orders`` is the offset
    up to which all members have acted on orders; a log is released when no member is busy with it.
    """
    if len(snapshots) == 1:
        return dict(snapshots[0])
    first, *others = sorted(snapshots, key=lambda each: str(each["started"]))
    logs: dict[str, Any] = {}
    for each in snapshots:
        logs |= each["logs"]
    down = next((each for each in snapshots if each["target"]["state"] != "up"), first)
    shown = next((each for each in snapshots if _leads(each)), first)
    return {
        **first,
        "at": max(str(each["at"]) for each in snapshots),
        "target": down["target"],
        "links": [
            _merge_links([link for each in snapshots for link in each["links"] if link["name"] == name])
            for name in dict.fromkeys(link["name"] for each in snapshots for link in each["links"])
        ],
        "logs": logs,
        "mirroring": sum(each["mirroring"] for each in snapshots),
        "orders": min(each["orders"] for each in snapshots),
        "released": {
            log: order for log, order in first["released"].items() if all(log in each["released"] for each in others)
        },
        "memory": {name: sum(each["memory"][name] for each in snapshots) for name in first["memory"]},
        "last_error": next((each["last_error"] for each in snapshots if each["last_error"]), ""),
        "entries_refused": max(each["entries_refused"] for each in snapshots),
        "retention": _merge_retention([each["retention"] for each in snapshots]),
        "group": shown["group"],
    }


def members_elsewhere(snapshot: Snapshot, here: Iterable[Snapshot]) -> list[str]:
    """Return the names of the group's members whose snapshots are not ``here``: they run on other machines."""
    group = snapshot.get("group") or {}
    seen = {str((each.get("group") or {}).get("me")) for each in here}
    return sorted(each["name"] for member, each in group.get("members", {}).items() if member not in seen)


def _leads(snapshot: Snapshot) -> bool:
    group = snapshot.get("group") or {}
    return bool(group.get("members", {}).get(group.get("me"), {}).get("leader"))


def _merge_links(links: Sequence[Snapshot]) -> dict[str, Any]:
    worst = next((each for each in links if each["state"] != LinkState.MIRRORING), links[0])
    lags = [each["lag"] for each in links]
    groups = [each["groups"] for each in links if each.get("groups") is not None]
    return {
        **worst,
        **{name: sum(each[name] for each in links) for name in _SUMS},
        "logs": max(each["logs"] for each in links),
        "lag": None if None in lags else sum(lags),
        "groups": next((each for each in groups if each["state"] != ELSEWHERE), groups[0] if groups else None),
    }


def _merge_retention(parts: Sequence[Snapshot]) -> dict[str, Any]:
    waits: dict[str, dict[str, Any]] = {}
    for part in parts:
        for site, delay in part["waits_for"].items():
            known = waits.get(site)
            waits[site] = dict(delay) if known is None else _merge_delays(known, delay)
    return {"swept": _least(part["swept"] for part in parts), "waits_for": waits}


def _merge_delays(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    counted = {name: one[name] + other[name] for name in ("logs", "records", "bytes")}
    return {**one, **counted, "since": min(one["since"], other["since"])}


def _least(moments: Iterable[str | None]) -> str | None:
    found = list(moments)
    return None if None in found else min(filter(None, found))
