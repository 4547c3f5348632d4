"""Run sites with their own bridges and replicators, which carry a reading from MQTT to another site's copy."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.records.custody import ReturnEntry
from replication.audit.run import compare, compare_records
from replication.replicator import Replicator
from tests.support.edge.fleet import Fleet, ledger, until
from tests.support.waits import PATIENCE
from topologies.model import Link, Site, SiteKind, Topology


class Convoy:
    """A fleet whose sites replicate to each other while they are ``linked``."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.boxes = next(name for name, stream in fleet.topology.streams.items() if stream.owners)
        self.shown: dict[str, Replicator] = {}

    def everything(self) -> dict[str, Any]:
        """Return the streams of a link that carries this fleet's logs, and none of other tests on the same brokers."""
        return {"custody": self.sites, "strays": self.sites, self.boxes: "all"}

    @property
    def sites(self) -> list[str]:
        return list(self.fleet.topology.sites)

    def link(self, *links: Mapping[str, Any]) -> None:
        """Set the topology's links from now on."""
        made = tuple(Link.model_validate(each) for each in links)
        old = self.fleet.topology
        self.fleet.topology = Topology(name=old.name, sites=old.sites, streams=old.streams, links=made)

    def join(self, site: str, kafka: KafkaEndpoint) -> None:
        """Add one more site, a port without a bridge."""
        old = self.fleet.topology
        sites = {**old.sites, site: Site(kind=SiteKind.PORT, unlocode="SGSIN")}
        self.fleet.topology = Topology(name=old.name, sites=sites, streams=old.streams, links=old.links)
        self.fleet.kafka[site] = replace(kafka, site=site)

    @contextlib.asynccontextmanager
    async def linked(self, *sites: str) -> AsyncIterator[None]:
        """Run the replicators of these sites."""
        stop, kafka = asyncio.Event(), self.fleet.kafka
        made = {site: Replicator(self.fleet.topology, site, kafka[site], kafka.__getitem__) for site in sites}
        self.shown |= made
        tasks = [asyncio.ensure_future(each.run(stop)) for each in made.values()]
        try:
            yield
        finally:
            stop.set()
            await asyncio.gather(*tasks)

    async def dies_when_it_has_deleted(self, site: str) -> None:
        """Run a site's replicator until it has deleted a copy to rebuild it; kill it at that moment."""
        kafka = {
            name: [each.bootstrap, each.user, each.password.get_secret_value() if each.password else None]
            for name, each in self.fleet.kafka.items()
        }
        given = {
            "topology": self.fleet.topology.model_dump(mode="json", by_alias=True),
            "site": site,
            "kafka": kafka,
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.integration.replication.run_replicator", stdin=asyncio.subprocess.PIPE
        )
        try:
            await asyncio.wait_for(process.communicate(json.dumps(given, default=str).encode() + b"\n"), PATIENCE)
        finally:
            if process.returncode is None:
                process.kill()
        assert process.returncode == -9

    def trouble(self, site: str, log: str) -> Mapping[str, Any]:
        """Return the replicator's report about a log in trouble; nothing when it is mirrored."""
        found: Mapping[str, Any] = self.shown[site].snapshot()["logs"].get(log, {})
        return found

    async def diverged(self, site: str, log: str, words: str) -> None:
        """Wait until the log is shown as diverged, with these words in the cause: at first it may be another one."""

        def so() -> bool:
            trouble = self.trouble(site, log)
            return bool(trouble.get("state") == "diverged") and words in trouble["cause"]

        await until(so, what=f"that {log} diverged at {site}: {words}")

    async def well(self, *sites: str) -> None:
        """Wait until no log is in trouble at these sites."""

        def troubles() -> list[Any]:
            return [self.shown[site].snapshot()["logs"] for site in sites]

        try:
            await until(lambda: not any(troubles()))
        except AssertionError as error:
            raise AssertionError(f"{sites}: {troubles()}") from error

    def returned(self, site: str) -> list[ReturnEntry]:
        return [each for each in ledger(self.fleet, site) if isinstance(each, ReturnEntry)]

    async def same(self, one: str, other: str) -> None:
        """Check by both audits that the boxes' logs are equal where both sites have records."""
        for audit in (compare, compare_records):
            result = await audit(
                self.fleet.topology, self.fleet.kafka[one], self.fleet.kafka[other], streams=(self.boxes,)
            )
            assert result.ok, result

    async def ends_alike(self, log: str, *sites: str) -> None:
        await until(lambda: len({self.end(site, log) for site in sites}) == 1, what=f"{log} ends alike at {sites}")

    def end(self, site: str, log: str) -> int:
        with contextlib.suppress(Exception):
            found = self.fleet.read(site, log)
            return found[-1].offset + 1 if found else 0
        return -1
