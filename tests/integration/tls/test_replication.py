"""A replicator between two sites with TLS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from fairlead.certs.facts import facts
from fairlead.certs.trust import served
from fairlead.local.state import read_state
from replication.replicator import Replicator
from simulators.network.proxy import TcpProxy
from tests.integration.tls.conftest import Secure
from tests.integration.tls.elsewhere import ELSEWHERE, relay
from tests.support.chaos import address_overrides, through_proxy
from tests.support.proof import grown, proven
from tests.support.replication.lab import Lab, links, until
from tests.support.traffic import Traffic

pytestmark = [pytest.mark.long, pytest.mark.integration]
CLIENT = "fairlead-replicator"
PATIENCE = 120.0
LINK = "alpha->beta"


@dataclass(frozen=True, slots=True)
class Copying:
    """Writers at alpha, and the proxies to both sites."""

    writers: Traffic
    lines: tuple[TcpProxy, TcpProxy]

    def reset(self) -> None:
        """End every connection of the replicator."""
        for line in self.lines:
            line.reset()


@pytest.fixture
async def lab(pair: Secure) -> AsyncIterator[Lab]:
    made = Lab(lambda site, user="admin": pair.local.kafka(site, user))
    yield made
    await made.close()


@pytest.fixture
def command(pair: Secure) -> Callable[..., Awaitable[None]]:
    """Return a function that runs a command and fails if the command does."""

    async def run(*arguments: str) -> None:
        done = await asyncio.to_thread(pair.run, *arguments)
        assert done.exit_code == 0, done.output

    return run


def port(pair: Secure, site: str) -> int:
    return read_state(pair.local.folder / "state.json").sites[site].kafka_port


def shown(pair: Secure) -> dict[str, float]:
    """Return the expiry times of the certificates that the sites present now."""
    return {
        site: facts(served("127.0.0.1", port(pair, site))).expires.timestamp()
        for site in ("alpha", "beta")
    }  # fmt: skip


def seen(beta: Replicator) -> dict[str, Any]:
    """Return the expiry times of the certificates that the replicator saw when it connected."""
    snapshot = beta.snapshot()
    return {"alpha": links([snapshot])[LINK]["certificate_ends"], "beta": snapshot["target"]["certificate_ends"]}


@asynccontextmanager
async def copying(lab: Lab, beta: Replicator, own: list[str], plain: list[str]) -> AsyncIterator[Copying]:
    """Run a replicator and writers, with proxies that can end their connections."""
    here, there = lab.kafka("alpha"), lab.kafka("beta")
    async with (
        through_proxy(here, client=CLIENT) as source,
        through_proxy(there, client=CLIENT) as target,
        lab.running(beta),
        Traffic(here, own=own, idempotent=plain) as writers,
    ):
        yield Copying(writers, (source, target))
        await writers.stop()
        assert await proven(lab.one_way(), writers.written, here, there, patience=PATIENCE) > 0


async def test_copies_are_identical_and_go_on_while_certificates_are_renewed(
    pair: Secure, lab: Lab, command: Callable[..., Awaitable[None]]
) -> None:
    own, plain = [lab.log(f"alpha.{n}") for n in range(3)], lab.log("alpha.plain")
    await lab.make("alpha", *own, plain)
    there, beta = lab.kafka("beta"), lab.replicator(lab.one_way(), "beta")
    async with copying(lab, beta, own, [plain]) as under_way:
        logs = under_way.writers.written
        await grown(there, logs)
        before = shown(pair)
        assert seen(beta) == before
        await command("certs", "renew", "--yes")
        renewed = shown(pair)
        assert all(renewed[site] > before[site] for site in before)
        await grown(there, logs)  # over its existing connections
        under_way.reset()

        async def taken() -> bool:
            return seen(beta) == renewed

        await until(taken, f"the new certificates: {beta.snapshot()}", PATIENCE)
        await grown(there, logs)


@pytest.mark.parametrize("wrong", ["alpha", "beta"])
async def test_a_site_whose_certificate_is_for_another_name_is_refused(wrong: str, pair: Secure, lab: Lab) -> None:
    """A wrong name at the source stops reading, at the target writing; with the right name copying continues."""
    log = lab.log("alpha.one")
    await lab.make("alpha", log)
    end = await lab.write("alpha", log, 20, at=await lab.open_term("alpha", log, term=1, at=0))
    beta = lab.replicator(lab.one_way(), "beta")

    async def refused() -> bool:
        snapshot = beta.snapshot()
        cause = links([snapshot])[LINK]["cause"] if wrong == "alpha" else snapshot["target"]["cause"]
        return f"its certificate is for other names than {ELSEWHERE}" in str(cause)

    async with relay(port(pair, wrong)) as elsewhere:
        ways = dict(elsewhere.addresses)
        with address_overrides(ways, client=CLIENT):
            async with lab.running(beta):
                await until(refused, f"the reason is not shown: {beta.snapshot()}", PATIENCE)
                assert await lab.end("beta", log) == -1
                ways.clear()
                await lab.reaches("beta", log, end, PATIENCE)
    assert await lab.same(log)
