"""Provide a topology file of two real sites, its replicator at beta, and the commands that operators run."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from acl.apply import apply_sites, check_complete
from acl.kafka import admin_stores
from fairlead.cli.app import app
from fairlead.cli.commands.replicate import replicator_for
from fairlead.errors import ExitCode
from fairlead.kafka.convention import is_filler
from fairlead.kafka.protocol.record import Record
from fairlead.local.passwords import secret_variable
from replication.metrics import replication_metrics
from replication.operations.links.access import Status, read_status, status_file
from replication.operations.resolve.plan import kept_copies
from replication.replicator import Replicator
from tests.support.replication.lab import Lab, until
from topologies.context import Context, open_topology


@dataclass
class Desk:
    """An operator's environment: beta's replicator, and the command line."""

    lab: Lab
    file: Path
    context: Context
    replicator: Replicator = field(init=False)

    @classmethod
    def open(cls, lab: Lab, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
        sites = {}
        for site in ("alpha", "beta"):
            endpoint = lab.kafka(site)
            sites[site] = {
                "kind": "datacentre",
                "kafka": {"bootstrap": endpoint.bootstrap_servers, "security": "SASL_PLAINTEXT"},
            }
            for user in ("admin", "bridge", "replicator", "replicator.beta"):
                password = lab.kafka(site, user).password
                assert password is not None
                monkeypatch.setenv(secret_variable(site, user), password.get_secret_value())
        links = [{"from": "alpha", "to": "beta", "streams": {lab.stream: "all"}}]
        file = folder / "desk.yaml"
        file.write_text(yaml.safe_dump({"name": "desk", "sites": sites, "streams": {lab.stream: {}}, "links": links}))
        monkeypatch.setenv("FAIRLEAD_HOME", str(folder / "home"))
        context = open_topology(str(file))
        rules = apply_sites(
            context.topology, admin_stores(context.resolver), max_removals=1.0
        )  # remove those of other tests
        check_complete(rules)
        return cls(lab, file, context)

    @contextlib.asynccontextmanager
    async def replicating(self) -> AsyncIterator[Replicator]:
        """Run beta's replicator, with its status file where the commands look for it."""
        self.replicator = replicator_for(self.context, "beta")
        async with self.lab.running(self.replicator):
            yield self.replicator
        # The final status is that of a process that has ended, but this process goes on.
        file = status_file(self.context.folder, "beta")
        file.write_text(json.dumps(json.loads(file.read_text()) | {"pid": 2**22 + 1}))

    async def run(self, *arguments: str) -> Result:
        """Run a command as typed, in a thread, because the replicator needs the event loop."""
        return await asyncio.to_thread(CliRunner().invoke, app, [*arguments, "--topology", str(self.file)])

    async def resolve(self, log: str, *options: str, code: int = ExitCode.OK) -> dict[str, Any]:
        result = await self.run("link", "resolve", log, "--site", "beta", "--json", *options)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        body: dict[str, Any] = json.loads(result.stdout)
        return body

    async def in_state(self, log: str, state: str) -> Mapping[str, Any]:
        """Wait until only this log is in trouble, in this state, and every command shows it; return its description."""
        status = await self.in_trouble(log, state)
        shown: Mapping[str, Any] = status.snapshot["logs"][log]
        assert shown["cause"] and shown["since"]
        families = replication_metrics([status.snapshot])
        samples = {(s.name, s.labels.get("log"), s.labels.get("state")): s.value for f in families for s in f.samples}
        assert samples["fairlead_log_state_since_seconds", log, state] > 0
        assert samples["fairlead_logs", None, state] >= 1
        wanted = [f"beta: logs not mirrored: 1 {state}", shown["cause"], f"fairlead link resolve {log} --site beta"]
        text = ""

        async def told() -> bool:  # while an unavailable log is retried, it is in no state for a moment
            nonlocal text
            text = (await self.run("status")).output
            body = json.loads((await self.run("status", "--json")).output)
            (site,) = [each for each in body["sites"] if each["site"] == "beta"]
            remedies = [each["what_to_do"] for each in site["logs_in_trouble"].values()]
            return bool(site["logs_by_state"] == {state: 1}) and all(said in text for said in (*wanted, *remedies))

        try:
            await until(told, "the commands do not show it")
        except AssertionError as error:
            raise AssertionError(f"{error}: {wanted}, but {text}") from error
        return shown

    async def in_trouble(self, log: str, state: str) -> Status:
        """Wait until the replicator's status file has the log in this state."""
        found: list[Status] = []

        async def there() -> bool:
            status = read_status(self.context.folder, "beta")
            if status is not None and status.snapshot["logs"].get(log, {}).get("state") == state:
                found.append(status)
            return bool(found)

        await until(there, f"{log} is not {state}: {self.replicator.snapshot()['logs']}")
        return found[0]

    async def mirrored(self, log: str, end: int) -> None:
        await self.lab.reaches("beta", log, end)

        async def said() -> bool:
            status = read_status(self.context.folder, "beta")
            return status is not None and log not in status.snapshot["logs"]

        await until(said, f"{self.replicator.snapshot()['logs']}")

    async def kept(self, topic: str) -> list[str]:
        """Return the kept copies of a topic at beta, newest first."""
        return kept_copies(topic, await (await self.lab.cluster("beta")).topics(refresh=True))


def data(records: Collection[Record]) -> list[tuple[int, bytes | None]]:
    """Return offsets and values of all records that are not fillers."""
    return [(record.offset, record.value) for record in records if not is_filler(record)]
