"""A cluster's access rules in memory."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy

from acl.compile import SetQuota
from acl.history import Entry, SuspendedUsers, suspended_users
from acl.kafka import OpenStore, RuleStore
from acl.rules import Binding, Operation, Pattern, Resource, Rule, Standing
from fairlead.errors import UnavailableError


class MemoryStore:
    """A cluster's rules in memory, with a log of what was done and trouble on request."""

    def __init__(self, bindings: Iterable[Binding] = (), fail_after: int | None = None) -> None:
        self.bindings = set(bindings)
        self.done: list[str] = []
        self.fail_after = fail_after
        self.stale_reads = 0  # so many reads after a change still show what was before it
        self._before: frozenset[Binding] | None = None
        self.quotas: dict[str, dict[str, float]] = {}
        self._quotas_before: dict[str, dict[str, float]] | None = None
        self.entries: list[Entry] = []
        self.binds_admin = Standing.SUPER

    def standing(self, held: frozenset[Binding]) -> Standing:
        return self.binds_admin

    def note(self, entries: Iterable[Entry], patience: float = 0.0) -> None:
        self.entries += entries

    def suspended_users(self) -> SuspendedUsers:
        return suspended_users(self.entries, dt.datetime.now(dt.UTC))

    def read_quotas(self) -> dict[str, dict[str, float]]:
        if self._quotas_before is not None and self.stale_reads > 0:
            self.stale_reads -= 1
            return self._quotas_before
        return deepcopy(self.quotas)

    def set_quotas(self, changes: Collection[SetQuota]) -> None:
        self._quotas_before = deepcopy(self.quotas)
        for change in changes:
            limits = self.quotas.setdefault(change.user, {})
            limits.pop(change.key, None)
            if change.new is not None:
                limits[change.key] = change.new

    def read(self) -> frozenset[Binding]:
        if self._before is not None and self.stale_reads > 0:
            self.stale_reads -= 1
            return self._before
        return frozenset(self.bindings)

    def add(self, bindings: Iterable[Binding]) -> None:
        self._work("add")
        self.bindings |= set(bindings)

    def remove(self, bindings: Iterable[Binding]) -> None:
        self._work("remove")
        self.bindings -= set(bindings)

    def _work(self, what: str) -> None:
        if self.fail_after is not None and len(self.done) >= self.fail_after:
            raise UnavailableError("the site is gone", hint="wait")
        self._before = frozenset(self.bindings)
        self.done.append(what)


def opened(stores: dict[str, MemoryStore]) -> OpenStore:
    """Open these sites' stores; every other site does not answer."""

    @contextmanager
    def open_store(site: str) -> Iterator[RuleStore]:
        if site not in stores:
            raise UnavailableError(f"{site} does not answer", hint="is it up?")
        yield stores[site]

    return open_store


def rule(user: str, name: str = "feeds.x", operation: Operation = Operation.READ) -> Rule:
    """A rule about one topic."""
    return Rule(user, Resource.TOPIC, Pattern.LITERAL, name, operation)
