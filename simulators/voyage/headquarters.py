"""Lose the headquarters during a voyage: its site ends for good, and shore and customers go on at another site.

Until then shore has filled tables and feeds at the headquarters, and a customer's program has read its feed there. The
links copy how far its group has read to the heir's site. The program goes on there, at the end of the voyage.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from typing import Final, Protocol

from confluent_kafka import Consumer, TopicPartition

from acl.kafka import StartAt, UserConsumer
from fairlead.errors import ConfigurationError, UnavailableError
from fairlead.local.sites import LocalSites
from fairlead.plan import Tell, silent
from simulators.fleet.scenario import HeadquartersLoss
from simulators.steps import Step
from topologies.context import Context
from topologies.model import Topology

FOLLOWS_WITHIN: Final = 90.0  # seconds for a group to follow: replicators compare groups every 15 s
_POLL: Final = 0.5


class MovableShore(Protocol):
    """Shore's jobs of a voyage (``simulators.voyage.services.ShoreJobs``)."""

    def fill(self) -> None: ...
    def move(self, site: str) -> None: ...


class LostHeadquarters:
    """Loses the headquarters once, when the voyage comes to that time.

    Args:
        at: Simulated time of the loss.
    """

    def __init__(
        self,
        context: Context,
        loss: HeadquartersLoss,
        at: dt.datetime,
        shore: MovableShore,
        tell: Tell = silent,
    ) -> None:
        self.loss = loss
        self.customer = program_of(context.topology, loss)
        self.left_over = without_headquarters(context.topology, loss)
        self.read_before: list[bytes] = []
        self._context, self._at, self._shore, self._tell = context, at, shore, tell
        self._done = False

    async def on_step(self, step: Step) -> None:
        """Lose the headquarters before the first step that is not earlier than the loss."""
        if not self._done and step.sim_time >= self._at:
            self._done = True
            await asyncio.to_thread(self._lose)

    def left_over_now(self) -> Topology:
        """Return the whole topology until the loss, then what is left of it."""
        return self.left_over if self._done else self._context.topology

    def read_on(self) -> list[bytes]:
        """Let the customer's program read on at the heir's site, where its group stands; return what it reads."""
        return self._read(self.loss.heir)

    def _lose(self) -> None:
        site, heir = self.loss.site, self.loss.heir
        self._tell(f"{site} is about to be lost: shore fills the tables and feeds there, and {self.customer} reads")
        self._shore.fill()
        self.read_before = self._read(site)
        self._await_group()
        LocalSites(self._context.folder).kill_site(site)
        self._tell(f"{site} is lost; shore goes on at {heir}")
        self._shore.move(heir)
        self._shore.fill()

    @property
    def _group(self) -> str:
        return f"{self.customer}.voyage"

    @property
    def _feed(self) -> str:
        return f"feeds.{self.customer}"

    def _read(self, site: str) -> list[bytes]:
        """Read the feed as the customer to its end, from where its group stands, and commit."""
        found: list[bytes] = []
        end = None
        with UserConsumer(self._context.resolver.kafka(site, self.customer), group=self._group) as reader:
            for record in reader.read((self._feed,), start=StartAt.GROUP, follow=False):
                if record is not None:
                    end = record.offset + 1
                    found += [record.value or b""] if record.is_data else []
            if end is not None:
                reader.commit({self._feed: end})
        return found

    def _await_group(self) -> None:
        """Wait until the group's offset has followed to the heir's site.

        Raises:
            UnavailableError: it has not within ``FOLLOWS_WITHIN`` seconds.
        """
        deadline = time.monotonic() + FOLLOWS_WITHIN
        while self._committed(self.loss.heir) != (wanted := self._committed(self.loss.site)):
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"group {self._group} stands at {wanted} and has not followed to {self.loss.heir}",
                    hint=f"does a link to {self.loss.heir} name the group? fairlead link describe tells",
                )
            time.sleep(_POLL)

    def _committed(self, site: str) -> int:
        endpoint = self._context.resolver.kafka(site, self.customer)
        consumer = Consumer({**endpoint.librdkafka(), "group.id": self._group, "log_level": 0})
        try:
            (found,) = consumer.committed([TopicPartition(self._feed, 0)], timeout=15)
        finally:
            consumer.close()
        return int(found.offset)


def program_of(topology: Topology, loss: HeadquartersLoss) -> str:
    """Return the customer whose program reads a detailed feed at the headquarters, and may read at the heir's site.

    Raises:
        ConfigurationError: there is none.
    """
    for name, customer in topology.customers.items():
        if customer.feed_at == loss.site and customer.feed == "detailed" and loss.heir in customer.reads_at:
            return name
    raise ConfigurationError(
        f"no customer with a detailed feed at {loss.site} may read at {loss.heir}",
        hint=f"customers: {{<name>: {{feed_at: {loss.site}, reads_at: [{loss.heir}]}}}}",
    )


def without_headquarters(topology: Topology, loss: HeadquartersLoss) -> Topology:
    """Return what is left of a topology: shore and the feeds are at the heir's site; nothing leads to the lost one."""
    site, heir = loss.site, loss.heir
    customers = {
        name: each.model_copy(
            update={
                "feed_at": heir if each.feed_at == site else each.feed_at,
                "reads_at": tuple(other for other in each.reads_at if other not in (site, heir)),
            }
        )
        for name, each in topology.customers.items()
    }
    users = {
        name: each.model_copy(update={"at": tuple(other for other in each.at if other != site)})
        for name, each in topology.users.items()
    }
    shore = topology.shore.model_copy(update={"at": heir, "standby": ()}) if topology.shore else None
    return topology.model_copy(
        update={
            "sites": {name: each for name, each in topology.sites.items() if name != site},
            "links": tuple(link for link in topology.links if site not in (link.from_, link.to)),
            "customers": customers,
            "users": users,
            "shore": shore,
        }
    )
