"""The list of the world's ports."""

from __future__ import annotations

import subprocess
import sys


def test_ports_are_read_without_importing_searoute() -> None:
    """The replicator looks up ports; searoute's graphs would cost each replicator a second and its memory."""
    code = "import sys; from topologies.drawing.seachart import ports; print(len(ports()), 'searoute' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    count, imported = done.stdout.split()
    assert int(count) > 3900 and imported == "False"
