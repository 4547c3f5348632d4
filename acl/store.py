"""A site's rules as its administrator keeps them: with the audit log, and what binds the administrator itself."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future
from typing import Any, Final, cast

from confluent_kafka import TopicCollection

from acl.binding import Binding
from acl.entries import Entry
from acl.heldout import HeldOut, held_out
from acl.history import note, read
from acl.kafka import Client, KafkaRules, NotAuthorised, RuleStore
from acl.lockout import Standing, authorize, hosts
from acl.quotas import SetQuota
from acl.quotastore import read_quotas, set_quotas
from acl.rules import Operation, Resource
from fairlead.errors import FairleadError
from fairlead.order_topic import TIMEOUT
from topologies.users import ADMIN

_LONGEST: Final = 200  # letters of a name, so that with a suffix it is still a topic's


class AdminStore(KafkaRules):
    """The rules and audit log of a real cluster.

    Args:
        local: Fairlead started it, so its administrator is a super user.
    """

    def __init__(self, client: Client, *, local: bool) -> None:
        super().__init__(client)
        self._local = local

    def standing(self, held: frozenset[Binding]) -> Standing:
        """What binds the administrator: known of a local cluster, else found out by asking for topics."""
        if self._local:
            return Standing.SUPER
        return find_standing(held, self._may_describe)

    def note(self, entries: Iterable[Entry], patience: float = TIMEOUT) -> None:
        """Append to the site's audit log, within ``patience`` seconds."""
        note(self._client.endpoint, entries, patience)

    def held_out(self) -> HeldOut:
        """Who is held out, by the site's audit log."""
        entries, _ = read(self._client.endpoint)
        return held_out(entries, dt.datetime.now(dt.UTC))

    def read_quotas(self) -> dict[str, dict[str, float]]:
        """The quotas of users."""
        return read_quotas(self._client.endpoint)

    def set_quotas(self, changes: Collection[SetQuota]) -> None:
        """Make these changes."""
        set_quotas(self._client.endpoint, changes)

    def _may_describe(self, topic: str) -> bool:
        futures = self._client.admin.describe_topics(TopicCollection([topic]), request_timeout=self._client.timeout)
        try:
            self._client.wait(cast("Future[Any]", futures[topic]), f"describing topic {topic}")
        except NotAuthorised:
            return False
        except FairleadError as error:
            if error.fields.get("code") != "UNKNOWN_TOPIC_OR_PART":  # it may know that there is none
                raise
        return True


def rules_of(store: RuleStore, user: str) -> tuple[Binding, ...]:
    """The rules of a site that name a user."""
    return tuple(sorted(rule for rule in store.read() if rule.principal == f"User:{user}"))


def find_standing(held: frozenset[Binding], may_describe: Callable[[str], bool]) -> Standing:
    """What binds the administrator, told by two topics, which need not exist: one that a rule forbids it, one that no
    rule is about. Kafka shows the settings that say so to nobody.

    Args:
        may_describe: Whether the cluster lets the administrator know of a topic.
    """
    nobody = f"fairlead-nobody-{uuid.uuid4().hex}"
    named = sorted({b.name for b in held if b.resource == "TOPIC" and b.name != "*" and len(b.name) < _LONGEST})
    topics = [nobody, *(f"{name}{nobody}" for name in named), *named]
    where = hosts(held)

    def verdicts(topic: str, *, default: bool) -> set[bool]:
        right = (Operation.DESCRIBE, Resource.TOPIC, topic)
        return {authorize(held, ADMIN, right, host, open_by_default=default) for host in where}

    forbidden = next((topic for topic in topics if verdicts(topic, default=True) == {False}), None)
    unruled = next(
        (t for t in topics if verdicts(t, default=True) == {True} and verdicts(t, default=False) == {False}), None
    )
    if forbidden is not None and may_describe(forbidden):
        return Standing.SUPER
    if unruled is None:
        return Standing.UNKNOWN
    if not may_describe(unruled):
        return Standing.CLOSED
    return Standing.UNKNOWN if forbidden is None else Standing.OPEN
