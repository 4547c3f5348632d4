"""Start, kill and restart named containers in a network of their own, through testcontainers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

import psutil
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

_GRACE = 30  # seconds from SIGTERM to SIGKILL, as compose.yaml has it
_LAST = 40  # lines of a container's output

# This process removes the containers it starts; the container that testcontainers would use for it is an extra image to
# pull.
testcontainers_config.ryuk_disabled = True

Make = Callable[[DockerContainer], DockerContainer]


class Machines:
    """Containers of one image. The constructor starts nothing; safe in several threads for different names."""

    def __init__(self, image: str) -> None:
        self._image = image
        self._known: dict[str, DockerContainer] = {}
        self._network: Network | None = None
        self._alone = threading.Lock()

    def run(self, name: str, make: Make) -> None:
        """Start a container, with the options that ``make`` returns the first time; leave a running one alone.

        Its aliases hold in a network that all of them share.
        """
        if name in self._known:
            self.again(name)
            return
        container = make(DockerContainer(self._image)).with_network(self._joined())
        self._known[name] = container
        container.start()

    def again(self, name: str) -> None:
        """Start a container that has run before; do nothing if it is running."""
        self._container(name).start()

    def runs(self, name: str) -> bool:
        if name not in self._known:
            return False
        container = self._container(name)
        container.reload()
        return bool(container.status == "running")

    def kill(self, name: str) -> None:
        """Kill a container as a power cut would; it is gone on return. A container that is not running is no error."""
        if self.runs(name):
            self._container(name).kill()
            self._container(name).wait()

    def stop(self, name: str) -> None:
        """Stop a container with SIGTERM, and with SIGKILL after a while; it is gone on return."""
        if self.runs(name):
            self._container(name).stop(timeout=_GRACE)

    def remove(self, names: Iterable[str]) -> None:
        """Kill and remove containers; with the last one the network goes too."""
        for name in names:
            if (container := self._known.pop(name, None)) is not None:
                container.stop()
        if not self._known and self._network is not None:
            self._network.remove()
            self._network = None

    @property
    def names(self) -> list[str]:
        return list(self._known)

    def process(self, name: str) -> psutil.Process:
        """Return the pid of the container's first process, as seen from this machine."""
        container = self._container(name)
        container.reload()
        return psutil.Process(container.attrs["State"]["Pid"])

    def output(self, name: str, last: int | None = _LAST) -> str:
        """Return the container's output: its last lines, or all of it."""
        written: bytes = self._container(name).logs(tail="all" if last is None else last)
        return written.decode("utf-8", "replace")

    def _container(self, name: str) -> Any:
        """Return docker's own object for the container."""
        return self._known[name].get_wrapped_container()

    def _joined(self) -> Network:
        with self._alone:
            if self._network is None:
                self._network = Network().create()
            return self._network
