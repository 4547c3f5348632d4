"""Folders on this machine: state of topologies, and the cache of downloaded jars.

``FAIRLEAD_HOME`` and ``FAIRLEAD_CACHE`` override the platform's usual places.
"""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def home() -> Path:
    """Folder of all topologies' state; not created here."""
    return Path(os.environ.get("FAIRLEAD_HOME") or platformdirs.user_state_path("fairlead"))


def cache() -> Path:
    """Folder of downloads that are never fetched twice; not created here."""
    return Path(os.environ.get("FAIRLEAD_CACHE") or platformdirs.user_cache_path("fairlead"))


def topology_folder(name: str) -> Path:
    """State of one topology: ports, secrets, brokers' data, Delta tables, reports."""
    return home() / name
