"""The passwords and rights of the replicator's users at source and target change while it runs.

A broker asks for the password only on a new connection, so the tests reset the connections after each change, as
``connections.max.reauth.ms`` would do later.
"""

from __future__ import annotations

import asyncio
import dataclasses
import secrets
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from pydantic import SecretStr

from fairlead.kafka.admin import admin_client
from fairlead.kafka.credentials import accepts
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.local.kafka import ensure_users
from replication.overrides import ORDERS_TOPIC
from replication.replicator import Replicator
from tests.support import waits
from tests.support.chaos import impatient, through_proxy
from tests.support.proof import grown, proven
from tests.support.replication.consumers import producer, send
from tests.support.replication.lab import Lab, links, states, target_up, until
from tests.support.traffic import Traffic

pytestmark = pytest.mark.integration
USERS = {"alpha": "replicator.beta", "beta": "replicator"}


class Keyring:
    """The replicator's users, and the passwords that it has."""

    def __init__(self, kafka: Callable[..., KafkaEndpoint]) -> None:
        self._kafka = kafka
        self._told = {site: kafka(site, user).password for site, user in USERS.items()}

    def endpoint(self, site: str) -> KafkaEndpoint:
        return dataclasses.replace(self._kafka(site, USERS[site]), password=self._told[site])

    def change(self, site: str) -> SecretStr:
        """Change the user's password at the site only, not in the replicator. On return its broker refuses the old
        one.
        """
        new = SecretStr(secrets.token_urlsafe(24))
        ensure_users(admin_client(self._kafka(site)), {USERS[site]: new})
        waits.until(lambda: not accepts(self.endpoint(site)), f"the refusal of the old password at {site}")
        return new

    def tell(self, site: str, password: SecretStr) -> None:
        self._told[site] = password

    def restore(self, site: str) -> None:
        """Set the user's original password again."""
        known = self._kafka(site, USERS[site]).password
        assert known is not None
        ensure_users(admin_client(self._kafka(site)), {USERS[site]: known})


@pytest.fixture
def keyring(kafka: Callable[..., KafkaEndpoint]) -> Iterator[Keyring]:
    """Give the users all rights on topics; afterwards revoke them and restore the passwords."""

    everything = ResourceType.TOPIC, "*", ResourcePatternType.LITERAL
    rights = {
        site: (*everything, f"User:{user}", "*", AclOperation.ALL, AclPermissionType.ALLOW)
        for site, user in USERS.items()
    }
    admins = {site: admin_client(kafka(site)) for site in USERS}
    for site, right in rights.items():
        for made in admins[site].create_acls([AclBinding(*right)]).values():
            made.result()
    ring = Keyring(kafka)
    yield ring
    for site, right in rights.items():
        ring.restore(site)
        for gone in admins[site].delete_acls([AclBindingFilter(*right)]).values():
            gone.result()


async def test_orders_that_may_not_be_seen_stop_only_what_they_may_be_about(lab: Lab, keyring: Keyring) -> None:
    """No list of topics has them, as if there were none. Who writes the other log follows from its name."""
    own, plain = lab.log("alpha.own"), lab.log("plain")
    await lab.make("alpha", own, plain)
    for topic in (own, plain):
        send(producer(lab.kafka("alpha")), topic, 0, 3)
    orders = ResourceType.TOPIC, ORDERS_TOPIC, ResourcePatternType.LITERAL
    denied = *orders, f"User:{USERS['beta']}", "*", AclOperation.ALL, AclPermissionType.DENY
    admin = admin_client(lab.kafka("beta"))
    for made in admin.create_acls([AclBinding(*denied)]).values():
        made.result()
    beta = Replicator(lab.one_way(), "beta", lambda: keyring.endpoint("beta"), keyring.endpoint)
    try:
        async with lab.running(beta):
            await lab.reaches("beta", own, 3)

            async def told() -> bool:
                return states(beta.snapshot()) == dict.fromkeys((plain, ORDERS_TOPIC), "unavailable")

            await until(told, f"it is not told: {states(beta.snapshot())}")
            for gone in admin.delete_acls([AclBindingFilter(*denied)]).values():
                gone.result()
            await lab.reaches("beta", plain, 3)
            assert states(beta.snapshot()) == {}
    finally:
        for gone in admin.delete_acls([AclBindingFilter(*denied)]).values():
            gone.result()


@pytest.mark.long
async def test_passwords_are_changed_while_it_runs(lab: Lab, keyring: Keyring) -> None:
    own, plain = [lab.log(f"alpha.{n}") for n in range(4)], lab.log("alpha.plain")
    await lab.make("alpha", *own, plain)
    here, there = lab.kafka("alpha"), lab.kafka("beta")
    topology = lab.one_way()
    with impatient(3.0, client="fairlead-replicator"):
        beta = Replicator(topology, "beta", lambda: keyring.endpoint("beta"), keyring.endpoint)
        async with (
            through_proxy(here, client="fairlead-replicator") as source,
            through_proxy(there, client="fairlead-replicator") as target,
            lab.running(beta),
            Traffic(here, own=own, idempotent=[plain]) as writers,
        ):

            async def refused(cause: Callable[[], str]) -> None:
                async def said() -> bool:
                    return "refused the login" in cause()

                await until(said, f"a refused login is not shown: {beta.snapshot()}")

            await grown(there, writers.written)
            password = await asyncio.to_thread(keyring.change, "alpha")
            await grown(there, writers.written)  # a logged-in connection stays open
            source.reset()
            await refused(lambda: str(links([beta.snapshot()])["alpha->beta"]["cause"]))
            keyring.tell("alpha", password)
            await grown(there, writers.written)

            password = await asyncio.to_thread(keyring.change, "beta")
            target.reset()
            await refused(lambda: str(beta.snapshot()["target"]["cause"]))
            keyring.tell("beta", password)
            await grown(there, writers.written)
            await writers.stop()
            await proven(topology, writers.written, here, there)
            await target_up(beta)
            assert states(beta.snapshot()) == {}
