"""Names to offer: of topologies, scenarios, and of what is in a topology. Read as plain YAML, never checked: completion
says nothing about mistakes, and offers what there is."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DEFAULT_TOPOLOGY = "big-blue"


def topologies() -> list[str]:
    """The shipped ones; a shell adds the files itself."""
    return _stems(_package("topologies"))


def scenarios() -> list[str]:
    return _stems(_package("simulators") / "scenarios")


def in_topology(kind: str, topology: str | None = None) -> list[str]:
    """Names of one kind in a topology; nothing when it cannot be read.

    Args:
        kind: ``site``, ``customer``, ``user``, ``stream``, ``link`` or ``port`` (UN/LOCODEs).
        topology: Name or file; else what FAIRLEAD_TOPOLOGY says, else the usual one.
    """
    read = _read(topology or os.environ.get("FAIRLEAD_TOPOLOGY") or DEFAULT_TOPOLOGY)
    if kind == "user":
        return [*_keys(read, "customers"), *_keys(read, "users")]
    if kind == "link":
        return list(_links(read))
    if kind == "port":
        sites = read.get("sites")
        every = sites.values() if isinstance(sites, dict) else ()
        return [str(site["unlocode"]) for site in every if isinstance(site, dict) and site.get("unlocode")]
    return _keys(read, f"{kind}s")


def _links(read: dict[str, Any]) -> Iterator[str]:
    links = read.get("links")
    for link in links if isinstance(links, list) else ():
        if isinstance(link, dict) and link.get("from") and link.get("to"):
            when = f":{link['when']}" if link.get("when") else ""
            yield f"{link['from']}->{link['to']}{when}"
            if link.get("both"):
                yield f"{link['to']}->{link['from']}{when}"


def _read(topology: str) -> dict[str, Any]:
    import yaml  # a tenth of what completion may take; most completions need none

    file = Path(topology)
    if not file.suffix and os.sep not in topology:
        file = _package("topologies") / f"{topology}.yaml"
    try:
        read = yaml.load(file.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return read if isinstance(read, dict) else {}


def _keys(read: dict[str, Any], part: str) -> list[str]:
    found = read.get(part)
    return [str(name) for name in found] if isinstance(found, dict) else []


def _stems(folder: Path) -> list[str]:
    return sorted(file.stem for file in folder.glob("*.yaml") if not file.name.endswith(".local.yaml"))


def _package(name: str) -> Path:
    """The folder of a top-level package, which is not imported."""
    found = importlib.util.find_spec(name)
    return Path(found.origin).parent if found is not None and found.origin else Path(name)
