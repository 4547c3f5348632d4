"""The lines under a fleet's replicators, led from a test: slow, swallowing, resetting."""

from __future__ import annotations

import subprocess
from typing import Self

import msgspec

from simulators.network.registry import Carried, Order, OrderAnswer
from tests.containers.conftest import Project, compose_command, until

OUT, BACK = ("tokyo", "duck-star"), ("duck-star", "tokyo")
BOTH = (OUT, BACK)


class Lines:
    """Leads them while it is entered; they are calm afterwards."""

    def __init__(self, project: Project) -> None:
        self._project = project

    def __enter__(self) -> Self:
        at = f"/var/lib/fairlead/{self._project.fleet.topology.name}/run/links.sock"
        command = ["exec", "-T", "links", "python", "-m", "simulators.network.control_client", at]
        pipe = subprocess.PIPE
        self._relay = subprocess.Popen(compose_command(self._project.folder, *command), stdin=pipe, stdout=pipe)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._relay.stdin is not None and self._relay.stdout is not None
        self._relay.stdin.close()
        self._relay.wait(60)
        self._relay.stdout.close()

    def give(self, order: Order | None = None) -> dict[str, Carried]:
        """Have an order carried out; what each direction has carried, as ``from>to``."""
        assert self._relay.stdin is not None and self._relay.stdout is not None
        self._relay.stdin.write(msgspec.json.encode(order or Order()) + b"\n")
        self._relay.stdin.flush()
        line = self._relay.stdout.readline()
        assert line, "the lines refused an order; the client has said why on standard error"
        return msgspec.json.decode(line, type=OrderAnswer).ways

    def reset_in_the_middle(self, size: int) -> None:
        """Reset a connection after so many bytes, in each direction; return when both were reset."""
        before = self.give(Order(fuse=tuple((way, size) for way in BOTH)))
        until(
            lambda: all(now.resets > before[name].resets for name, now in self.give().items()),
            f"a connection was reset after {size} bytes, in each direction",
        )
