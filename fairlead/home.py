"""Folders on this machine: state of topologies, and the cache of downloaded jars.

``FAIRLEAD_HOME`` and ``FAIRLEAD_CACHE`` override the platform's usual places.
"""

from __future__ import annotations

import datetime as dt
import os
import shlex
from pathlib import Path
from typing import Final

import platformdirs

from fairlead.errors import ConfigurationError

_SITE_HOMES: Final = "FAIRLEAD_SITE_HOMES"
_sources: Final[dict[Path, str]] = {}  # of the topologies that this process has opened, by state folder
FRESH: Final = dt.timedelta(seconds=10)  # bridges and replicators write their status every few seconds at least


def home() -> Path:
    """Return the folder of all topologies' state; does not create it.

    Raises:
        ConfigurationError: there is a file in its place, or in that of a folder above it.
    """
    folder = Path(os.environ.get("FAIRLEAD_HOME") or platformdirs.user_state_path("fairlead")).absolute()
    for each in (folder, *folder.parents):
        if os.path.exists(each) and not os.path.isdir(each):  # noqa: PTH110, PTH112 - Path's raise without rights
            raise ConfigurationError(
                f"{each} is no folder, so the state of sites cannot be in {folder}",
                hint="set FAIRLEAD_HOME to a folder; it is created where it is missing",
                path=str(each),
            )
    return folder


def cache() -> Path:
    """Return the folder of downloads that are fetched only once; does not create it."""
    return Path(os.environ.get("FAIRLEAD_CACHE") or platformdirs.user_cache_path("fairlead")).absolute()


def private_folder(folder: Path) -> Path:
    """Create a folder, and missing ones above it, for their owner alone (0700); others keep their mode.

    All of Fairlead's state is in such folders: readings, positions, passwords and Spark's spill files.

    Raises:
        OSError: it cannot be created.
    """
    for missing in reversed([each for each in (folder, *folder.parents) if not each.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)  # mkdir(parents=True) applies its mode to the last folder only
    return folder


def replace_file(path: Path, content: bytes) -> None:
    """Replace a small file atomically for its readers, in a private folder. A crash of the machine may lose it:
    ``fairlead.local.files.write_file`` waits for the disk.

    Raises:
        OSError: it cannot be written.
    """
    private_folder(path.parent)
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    new.write_bytes(content)
    new.replace(path)


def remember_source(folder: Path, source: str) -> None:
    """Remember how to open the topology with this state folder, for hints: its name, or its file. The default topology
    needs none."""
    _sources[folder] = source


def topology_option(folder: Path) -> str:
    """Return the option, after a space, with which a command in a hint opens the topology with this state folder; empty
    for the default topology."""
    return f" --topology {shlex.quote(_sources[folder])}" if folder in _sources else ""


def up_command(folder: Path, site: str) -> str:
    """Return the command that starts a site of the topology with this state folder."""
    return f"fairlead up {site}{topology_option(folder)}"


def override_file(folder: Path, name: str) -> str:
    """Return the name of the override file of a topology, for hints: that of its file, else of the topology ``name``.

    Args:
        folder: The topology's state folder.
    """
    return f"{Path(_sources.get(folder, name)).stem}.local.yaml"


def restart_command(folder: Path, site: str) -> str:
    """Return the commands that restart a site of the topology with this state folder."""
    return f"fairlead down {site}{topology_option(folder)}; {up_command(folder, site)}"


def purge_command(folder: Path, site: str = "") -> str:
    """Return the command that deletes all data of the topology with this state folder, or one site's."""
    option = topology_option(folder) or f" --topology {folder.name}"  # says also of the default what is deleted
    return f"fairlead down{site and f' {site}'}{option} --purge"


def run_folder(folder: Path, site: str) -> Path:
    """Return the folder, below a topology's state, where a site's bridge and replicator keep their status.

    ``FAIRLEAD_SITE_HOMES`` names a folder with a home for each site, for containers, where sites share no home.
    """
    homes = os.environ.get(_SITE_HOMES)
    return (Path(homes) / site / folder.name if homes else folder) / "run"


def is_running(pid: int, written_at: str) -> bool:
    """Return whether a bridge or replicator runs, by its status file: its process, and when it was written (ISO 8601).

    Between containers processes are not seen: there a fresh file is enough.
    """
    from psutil import pid_exists  # imported late: few programs ask

    age = dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(written_at)
    return age < FRESH and (bool(os.environ.get(_SITE_HOMES)) or pid_exists(pid))


def topology_folder(name: str) -> Path:
    """Return the folder of one topology's state: ports, secrets, brokers' data, Delta tables, reports."""
    return home() / name
