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


def private_folder(folder: Path) -> Path:
    """Make a folder, and those above it that are missing, for their owner alone (0700); others keep their mode.

    All of Fairlead's state is in such folders: readings, positions, passwords and what Spark spills.

    Raises:
        OSError: it cannot be made.
    """
    for missing in reversed([each for each in (folder, *folder.parents) if not each.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)  # the mode that mkdir(parents=True) takes is the last one's only
    return folder


def run_folder(folder: Path, site: str) -> Path:
    """Where a site's bridge and replicator keep their status, below a topology's state folder.

    ``FAIRLEAD_SITE_HOMES`` names a folder with a home for each site, where services of sites share none: containers.
    """
    homes = os.environ.get("FAIRLEAD_SITE_HOMES")
    return (Path(homes) / site / folder.name if homes else folder) / "run"


def topology_folder(name: str) -> Path:
    """State of one topology: ports, secrets, brokers' data, Delta tables, reports."""
    return home() / name
