"""Run a topology as in production, for tests that damage it: brokers, bridges and replicators as processes.

Every killed process comes back: the supervisor restarts workers, and the test restarts the brokers it kills. Every pair
of sites has a link that the test can cut. Mosquitto is left alone: it saves what it has acknowledged only every few
seconds (its profile has ``autosave_on_changes false``), so its death may lose readings that Fairlead never got.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from acl.apply import apply_topology
from fairlead.local.sites import LocalSites, SiteSpec
from fairlead.local.workers import Workers
from simulators.network.proxy import TcpProxy
from simulators.voyage.supervisor import Supervisor
from tests.chaos import worker
from topologies.context import open_topology
from topologies.model import SiteKind
from topologies.users import service_users

log = logging.getLogger(__name__)

PATIENCE: Final = 240.0  # seconds for processes to start: other work may keep the machine busy
_LOOK: Final = 0.1


class World:
    """Run the sites of a topology's file, empty at first, with all their workers, while the context is open.

    The fixture ``home`` sets ``FAIRLEAD_HOME`` and ``FAIRLEAD_TEST_WAYS``, which this needs. At the end everything is
    stopped, and deleted unless an error ended it. ``lines`` has a proxy per (target, source); ``done`` counts faults.
    """

    def __init__(self, source: Path) -> None:
        context = open_topology(str(source))
        self.topology = context.topology
        self.resolver = context.resolver
        self.folder = context.folder
        self.sites = [name for name in context.topology.sites if context.topology.sites[name].kafka is None]
        self.bridges = [n for n in self.sites if context.topology.sites[n].kind is not SiteKind.CUSTOMER]
        self.replicators = [name for name in self.sites if context.topology.links_to(name)]
        self.local = LocalSites(context.folder)
        self.workers = Workers(context.folder, module="tests.chaos.worker")
        self.lines: dict[tuple[str, str], TcpProxy] = {}
        self.done: Counter[str] = Counter()
        self._source = context.source
        self._supervisor = Supervisor(self.workers)
        self._busy = {site: asyncio.Lock() for site in self.sites}  # kill one broker at a time

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Return the pairs of sites with a link between them."""
        return sorted({(min(pair), max(pair)) for pair in self.lines})

    # --- faults

    async def kill_worker(self, command: str, site: str) -> None:
        """Kill a bridge or a replicator (SIGKILL); the supervisor starts it again."""
        name = f"{command}.{site}"
        while (pid := self._kill(name)) is None:  # noqa: ASYNC110 - the supervisor's thread is about to start it
            await asyncio.sleep(_LOOK)
        self.done[f"{command} killed"] += 1
        log.info("killed %s, pid %d", name, pid)

    async def kill_broker(self, site: str, away: float) -> None:
        """Kill a site's Kafka (SIGKILL), and start it again after ``away`` seconds."""
        async with self._busy[site]:
            await asyncio.to_thread(self.local.kill, site)
            self.done["broker killed"] += 1
            log.info("killed the broker of %s", site)
            await asyncio.sleep(away)
            await asyncio.to_thread(self.local.restart, site)
            log.info("the broker of %s is back", site)

    async def break_link(self, a: str, b: str, seconds: float, *, freeze: bool) -> None:
        """Cut the link between two sites in both directions, or make it drop all traffic silently, for a while."""
        lines = [self.lines[pair] for pair in ((a, b), (b, a)) if pair in self.lines]
        for line in lines:
            if freeze:
                line.freeze()
            else:
                line.cut()
        self.done["link frozen" if freeze else "link cut"] += 1
        log.info("broke the link between %s and %s for %.1f s", a, b, seconds)
        try:
            await asyncio.sleep(seconds)
        finally:
            for line in lines:
                line.reset()  # traffic that the link has dropped must not arrive later
                line.mend()

    async def harm(self, chance: random.Random, site: str) -> None:
        """Kill one random process at a site; return when it is dead, or for a broker when it is back."""
        match chance.choice(("bridge", "bridge", "replicate", "replicate", "broker")):
            case "broker":
                await self.kill_broker(site, chance.uniform(0.0, 3.0))
            case command:
                known = self.replicators if command == "replicate" else self.bridges
                await self.kill_worker(command, site if site in known else chance.choice(known))

    # --- state of the workers

    def check(self) -> None:
        """Raise when a worker keeps failing, or has ended without being killed."""
        self._supervisor.check()
        by_itself = [end for end in self._supervisor.ends if end.code != -signal.SIGKILL]
        assert not by_itself, f"{by_itself}; the workers' logs are in {self.folder / 'run'}"

    def status(self, command: str, site: str) -> dict[str, Any]:
        """Return a worker's latest status report; empty before the first one."""
        file = self.folder / "run" / f"{'replicator' if command == 'replicate' else command}.{site}.json"
        with contextlib.suppress(FileNotFoundError):
            found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            return found
        return {}

    def _kill(self, name: str) -> int | None:
        """Kill a worker and return its pid; None if it is not running."""
        pid = next((each.pid for each in self.workers.all() if each.name == name), None)
        if pid is not None:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                return None
        return pid

    # --- running

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            await self._open(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            await self._ask_what_they_wait_for()
        await self._stack.__aexit__(kind, error, trace)
        if kind is None:
            self.local.down(purge=True)

    async def _ask_what_they_wait_for(self) -> None:
        """Make the workers log what each of their tasks waits for, for later analysis."""
        for each in self.workers.all():
            if each.pid is not None:
                os.kill(each.pid, signal.SIGUSR1)
        await asyncio.sleep(1.0)  # nothing announces that they have logged it

    async def _open(self, stack: contextlib.AsyncExitStack) -> None:
        specs = [SiteSpec(name, tuple(service_users(self.topology, name))) for name in self.sites]
        stack.callback(self.local.down)
        await asyncio.to_thread(self.local.up, specs)
        await asyncio.to_thread(apply_topology, self.topology, self.resolver, self.sites, lambda _site, _text: None)
        for link in self.topology.directed_links():
            pair = (link.to, link.from_)
            if pair not in self.lines:
                line = TcpProxy(self.resolver.kafka(link.from_, "admin").bootstrap)
                self.lines[pair] = await stack.enter_async_context(line)
        self._write_ways()
        stack.enter_context(self._supervisor)
        for command, names in (("bridge", self.bridges), ("replicate", self.replicators)):
            for name in names:
                self._supervisor.start(f"{command}.{name}", [command, "--site", name, "--topology", self._source])
        await self.until(self._all_ready, "every bridge and replicator is ready", PATIENCE)

    def _write_ways(self) -> None:
        ways: dict[str, list[tuple[str, int, str, int]]] = {}
        for (target, _), line in self.lines.items():
            ways.setdefault(target, []).extend((*here, *proxy) for here, proxy in line.addresses.items())
        Path(os.environ[worker.WAYS]).write_text(json.dumps(ways), encoding="utf-8")

    def _all_ready(self) -> bool:
        bridges = all(self.status("bridge", name).get("ready") for name in self.bridges)
        return bridges and all(
            self.status("replicate", name).get("target", {}).get("state") == "up" for name in self.replicators
        )

    async def until(self, condition: Callable[[], bool], what: str, patience: float) -> None:
        """Wait for a condition that other processes bring about."""
        end = time.monotonic() + patience
        while not condition():
            self.check()
            assert time.monotonic() < end, f"not after {patience:.0f} s: {what}"
            await asyncio.sleep(_LOOK)
