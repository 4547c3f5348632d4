"""A voyage that sails over a fleet in containers while a test spoils something, and what the fleet says of itself.

The voyage is paused when something has been under way for ``ENOUGH`` seconds and nobody waits for its readings: it must
not be over before everything has been spoilt once, however long a machine takes for that.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.containers.conftest import Project, until

BERTH = "duck-star->tokyo:berthed"
SATELLITE = "duck-star->tokyo"
TO_SHIP = "tokyo->duck-star"
ENOUGH = 10.0


class Sailing:
    """A voyage under way. What it prints is read all the time, so that it never waits for a reader."""

    def __init__(self, project: Project, arguments: list[str]) -> None:
        self.project = project
        self.happened: list[str] = []
        self._spoilt = ""  # what is under way, or has failed
        self._pausing = threading.Timer(0, lambda: None)
        self._process: subprocess.Popen[str] = project.cli(*arguments)
        self._said: list[str] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as out:
            self._said.extend(out)

    @property
    def said(self) -> str:
        """The last lines that it printed."""
        return "".join(self._said[-60:])

    @property
    def sails(self) -> bool:
        return self._process.poll() is None

    @contextmanager
    def while_it_sails(self, what: str) -> Iterator[None]:
        """Within, something happens to the fleet; the voyage must still be under way after it. What fails within leaves
        the fleet as it is then: whatever comes after that fails at once."""
        assert not self._spoilt, f"the fleet was left as it was when this failed: {self._spoilt}"
        self._spoilt = what
        self._sail_for_a_while()
        try:
            yield
        finally:
            self._leave_alone()
        assert self.sails, f"the voyage was over when {what}; before: {self.happened}\n{self.said}"
        self._spoilt = ""
        self.happened.append(what)

    @contextmanager
    def sailing_on(self) -> Iterator[None]:
        """Within, the voyage is not paused."""
        self._leave_alone()
        self._go_on()
        yield
        self._pause()

    def _sail_for_a_while(self) -> None:
        self._leave_alone()
        self._go_on()
        self._pausing = threading.Timer(ENOUGH, self._pause)
        self._pausing.start()

    def _leave_alone(self) -> None:
        self._pausing.cancel()
        if self._pausing.is_alive():
            self._pausing.join()

    def _pause(self) -> None:
        self._steer("USR1")

    def _go_on(self) -> None:
        self._steer("USR2")

    def _steer(self, signal: str) -> None:
        if self.project.written("voyage.json"):  # there as long as it listens to signals
            self.project.signal_cli(signal)

    def await_(self, true: Callable[[], bool], what: str) -> None:
        """Wait until something is true, at most until the voyage is over."""
        until(lambda: not self.sails or true(), what)
        assert self.sails, f"the voyage was over before {what}; before: {self.happened}\n{self.said}"

    def await_readings(self, site: str, more: int = 20) -> None:
        """Wait until the site's bridge has appended so many more readings."""
        wanted = readings(self.project, site) + more
        with self.sailing_on():
            self.await_(lambda: readings(self.project, site) >= wanted, f"{site} goes on appending")

    def await_link(self, name: str, *states: str) -> dict[str, Any]:
        """Wait until a link is in one of these states, by its replicator's own word; how it is then."""
        self.await_(lambda: link(self.project, name).get("state") in states, f"{name} is {' or '.join(states)}")
        return link(self.project, name)

    def await_berth(self) -> None:
        """Wait until the ship is where it has the link of the port: the voyage must get there."""
        with self.sailing_on():
            self.await_link(BERTH, "mirroring")
        self._sail_for_a_while()

    def report(self) -> dict[str, Any]:
        """Wait for the voyage's end; its report, which must be true."""
        assert not self._spoilt, f"the fleet was left as it was when this failed: {self._spoilt}"
        self._go_on()
        status = self._process.wait(2400)
        self._reading.join(60)
        assert status == 0, f"{self.happened}\n{self.said}"
        found: dict[str, Any] = json.loads((self.project.folder / "report" / "report.json").read_text(encoding="utf-8"))
        return found

    def end(self) -> None:
        """Kill it if it still sails."""
        self._leave_alone()
        self._process.kill()
        self._process.wait(60)


def readings(project: Project, site: str) -> int:
    """What the site's bridge has appended so far, by its own count; 0 again when the bridge is a new one."""
    return int(project.written(f"bridge.{site}.json").get("appended", 0))


def replicator(project: Project, site: str) -> dict[str, Any]:
    """How a site's replicator is, by its own word."""
    return project.written(f"replicator.{site}.json")


def link(project: Project, name: str) -> dict[str, Any]:
    """The state of a link in its replicator's status; empty without one."""
    target = name.partition("->")[2].partition(":")[0]
    links: list[dict[str, Any]] = replicator(project, target).get("links", [])
    return next((each for each in links if each["name"] == name), {})
