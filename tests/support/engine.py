"""Find out whether containers can run here, so that tests can skip where they cannot."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import Final

IMAGE: Final = "fairlead"
SHORE_IMAGE: Final = "fairlead-shore"


def why_no_containers(*images: str, compose: bool = False) -> str:
    """Return why containers of these images cannot run here; empty when they can.

    Args:
        compose: The test starts them by ``docker compose``.
    """
    if shutil.which("docker") is None:
        return "no docker here"
    if compose and _docker("compose", "version").returncode:
        return "docker has no compose plugin"
    engine = _docker("info")
    if engine.returncode:
        return "no docker engine answers: " + (engine.stderr.strip().splitlines() or ["?"])[-1]
    absent = [name for name in images if not _docker("image", "ls", "--quiet", name).stdout.strip()]
    return f"not built: {', '.join(absent)}; make image" if absent else ""


def why_no_sites() -> str:
    """Return why sites cannot run in containers here; empty when they can. Tests inspect the sites' files and
    processes.
    """
    host = os.environ.get("DOCKER_HOST", "unix://")
    if sys.platform != "linux" or not host.startswith("unix://"):
        return "the docker engine is not on this machine itself, where tests look at the sites' files and processes"
    return why_no_containers(site_image())


def site_image() -> str:
    """Return the image with a site's servers; ``FAIRLEAD_IMAGE`` names another one, as for ``compose.yaml``."""
    return os.environ.get("FAIRLEAD_IMAGE", IMAGE)


def _docker(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["docker", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603 - fixed words
