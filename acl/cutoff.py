"""Ending what a thief with a leaked password still has open.

Stock Kafka ends a session in two cases only: its broker stops, or asks for the password again and is given a wrong one
(``connections.max.reauth.ms``, which counts from each session's login). But it judges every request by the rules of
that moment. So the user's rules are withdrawn, at which open sessions get nothing more, and given back when no session
from before the new password can be left.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, cast

from confluent_kafka.admin import ConfigResource, ResourceType

from acl.apply import Executor
from acl.binding import Binding
from acl.kafka import Client
from acl.plan import SitePlan, site_steps
from acl.store import AdminStore, rules_of
from fairlead.endpoint import KafkaEndpoint

MARGIN = 2.0  # seconds beyond the longest life of a session
_SETTING = "connections.max.reauth.ms"


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """Rules that were taken away, and how long sessions may live.

    Args:
        seconds: How long a session lives; None where sessions never end by themselves.
        since: When the password changed, in ``time.monotonic``; until then, when the rules were withdrawn.
        ends: When no old session is left, by the clock; None until the password has changed, or where nobody knows.
    """

    rules: tuple[Binding, ...]
    seconds: float | None
    since: float
    ends: dt.datetime | None = None

    def counted(self) -> Withdrawn:
        """The same, from now on: the old password opens no session any more."""
        ends = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=self.seconds + MARGIN) if self.seconds else None
        return replace(self, since=time.monotonic(), ends=ends)

    @property
    def left(self) -> float | None:
        """Seconds until they can be given back."""
        if self.seconds is None:
            return None
        return max(0.0, self.since + self.seconds + MARGIN - time.monotonic())


def withdraw(admin: KafkaEndpoint, user: str) -> Withdrawn:
    """Take away all rules that name a user, and return when the brokers judge by that."""
    with Client(admin) as client:
        seconds = session_seconds(_settings(client))
        store = AdminStore(client, local=False)
        rules = rules_of(store, user)
        Executor(store).run(site_steps(SitePlan(admin.site, (), rules, 0)))
    return Withdrawn(rules, seconds, time.monotonic())


def give_back(admin: KafkaEndpoint, withdrawn: Withdrawn) -> None:
    """Make the rules again."""
    with Client(admin) as client:
        Executor(AdminStore(client, local=False)).run(site_steps(SitePlan(admin.site, withdrawn.rules, (), 0)))


def session_seconds(brokers: Mapping[str, Mapping[str, str | None]]) -> float | None:
    """How long a session lives at most, by the brokers' settings; None for ever (Kafka's default)."""
    longest = 0.0
    for settings in brokers.values():
        of_listeners = [
            value
            for name, value in settings.items()
            if name.startswith("listener.name.") and name.endswith(f".{_SETTING}")
        ]
        # A listener without a setting of its own has the general one; the listeners' names are not among the settings.
        own = [int(value or 0) for value in of_listeners] or [int(settings.get(_SETTING) or 0)]
        if 0 in own:
            return None
        longest = max(longest, *own)
    return longest / 1000 if longest else None


def _settings(client: Client) -> dict[str, dict[str, str | None]]:
    described = client.wait(
        cast("Future[Any]", client.admin.describe_cluster(request_timeout=client.timeout)), "asking"
    )
    resources = [ConfigResource(ResourceType.BROKER, str(node.id)) for node in described.nodes]
    futures = client.admin.describe_configs(resources, request_timeout=client.timeout)
    return {
        resource.name: {name: entry.value for name, entry in client.wait(future, "asking for settings").items()}
        for resource, future in futures.items()
    }
