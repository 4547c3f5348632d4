"""Topology from a shipped name or a YAML file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from topologies.model import DEFAULT_STREAMS, SiteKind, Topology


def load(path_or_name: str | Path, *, env: Mapping[str, str] = os.environ) -> Topology:
    """A topology, checked."""
    path = Path(path_or_name)
    if not path.suffix:
        path = Path(__file__).parent / f"{path_or_name}.yaml"
    data: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    kinds = {site["kind"] for site in data["sites"].values()}
    if kinds & {SiteKind.SHIP, SiteKind.PORT}:
        declared = data.get("streams", {})
        defaults = {n: s.model_dump(exclude_unset=True, by_alias=True) for n, s in DEFAULT_STREAMS.items()}
        data["streams"] = declared | {n: d | declared.get(n, {}) for n, d in defaults.items()}
    return Topology.model_validate(data)
