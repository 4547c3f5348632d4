"""Plans as files: what was reviewed is what is applied, later or by somebody else.

A file has names and rules, no password. A plan is still true at a site while the cluster holds the rules that it was
made from, or those that an interrupted apply of the same plan leaves: a part of what it adds; or all of that, without a
part of what it removes. The topology must still ask for the same rules. Applying a file never does more than a
new plan would.
"""

from __future__ import annotations

import datetime as dt
import getpass
import platform
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import msgspec

from acl.plan import AccessPlan, Managed, SitePlan, Unread, diff, digest, in_words
from acl.rules import Binding, Rule
from fairlead.errors import ConfigurationError, RefusedError

VERSION = 1


_SHOWN = 5  # differences in a message; all are in its fields


class PlanFileError(ConfigurationError):
    """The file is no plan, or cannot be applied here."""


class _Header(msgspec.Struct):
    fairlead_plan: int


class SavedPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A plan with its identity and where it came from (``by``: ``user@host``)."""

    fairlead_plan: int
    plan: str
    made: Annotated[dt.datetime, msgspec.Meta(tz=True)]
    by: str
    topology: str
    sites: tuple[SitePlan, ...]
    unread: tuple[Unread, ...] = ()

    @property
    def content(self) -> AccessPlan:
        """The plan itself."""
        return AccessPlan(self.topology, self.sites, self.unread)


def save(plan: AccessPlan, file: Path) -> None:
    """Write a plan; an older file is replaced as a whole or not at all.

    Raises:
        ConfigurationError: the file cannot be written.
    """
    saved = SavedPlan(
        fairlead_plan=VERSION,
        plan=plan.identity,
        made=dt.datetime.now(dt.UTC),
        by=f"{getpass.getuser()}@{platform.node()}",
        topology=plan.topology,
        sites=plan.sites,
        unread=plan.unread,
    )
    text = msgspec.json.format(msgspec.json.encode(saved), indent=1) + b"\n"
    beside = file.with_name(f".{file.name}.new")
    try:
        beside.write_bytes(text)
        beside.replace(file)
    except OSError as error:
        raise ConfigurationError(f"the plan cannot be written to {file}: {error.strerror}") from None


def load(file: Path, topology: str) -> SavedPlan:
    """Read a plan back.

    Raises:
        PlanFileError: it is damaged or edited, or belongs to another topology or a newer Fairlead.
    """
    try:
        data = file.read_bytes()
    except OSError as error:
        raise PlanFileError(
            f"plan {file} cannot be read: {error.strerror}", hint=f"make one: fairlead acl plan --out {file}"
        ) from None
    version = _decode(data, _Header, file).fairlead_plan
    if version != VERSION:
        raise PlanFileError(
            f"plan {file} is of version {version}, this Fairlead reads version {VERSION}",
            hint="apply it with the Fairlead that made it, or make a new one: fairlead acl plan --out",
        )
    saved: SavedPlan = _decode(data, SavedPlan, file)
    identity = saved.content.identity
    if identity != saved.plan:
        raise PlanFileError(
            f"plan {file} was changed after it was made: its name is {saved.plan}, its content {identity}",
            hint="plans cannot be edited; change the topology and make a new one: fairlead acl plan --out",
        )
    if saved.topology != topology:
        raise PlanFileError(
            f"plan {file} is for topology {saved.topology!r}, not for {topology!r}",
            hint=f"fairlead acl apply {file} --topology {saved.topology}",
        )
    return saved


def _decode(data: bytes, kind: type[Any], file: Path) -> Any:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PlanFileError(
            f"{file} is no plan of fairlead acl plan, or it is damaged: {error}",
            hint=f"make a new one: fairlead acl plan --out {file}",
        ) from None


class PlanState(StrEnum):
    """How far a plan is done at a site."""

    NEW = "new"
    BEGUN = "begun"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Remaining:
    """What is left of a site's plan; ``before`` counts the managed rules that the site had before it was begun."""

    plan: SitePlan
    state: PlanState
    before: int


class StalePlan(RefusedError):
    """A saved plan that is no longer true; nothing of it was done at this site."""


def remaining(planned: SitePlan, actual: Collection[Binding], desired: Collection[Rule], managed: Managed) -> Remaining:
    """What is left to do of a saved plan at its site.

    Raises:
        StalePlan: the topology, or the cluster in another way than by this plan, has changed since.
    """
    fresh = diff(planned.site, actual, desired, managed)
    have, want = frozenset(actual), frozenset(map(Binding.of, desired))
    add, remove = frozenset(planned.add), frozenset(planned.remove)
    if fresh.wanted != planned.wanted:
        raise _topology_changed(planned.site)
    begun_from = (have - add) | remove
    in_order = add <= have or remove <= have  # nothing is removed before everything is added
    if digest(begun_from) != planned.held or not in_order:
        raise _cluster_changed(planned, have, base=(want - add) | remove | frozenset(planned.alone))
    if frozenset(fresh.add) != add - have or frozenset(fresh.remove) != remove & have:
        raise _topology_changed(planned.site)  # other rules are Fairlead's to change now
    if fresh.is_empty and not planned.is_empty:
        state = PlanState.DONE
    else:
        state = PlanState.NEW if begun_from == have else PlanState.BEGUN
    return Remaining(fresh, state, before=len(want - add) + len(remove))


def _topology_changed(site: str) -> StalePlan:
    return StalePlan(
        f"the topology asks for other rules at site {site} than when the plan was made",
        hint="make and review a new plan: fairlead acl plan --out",
        site=site,
    )


def _cluster_changed(planned: SitePlan, have: frozenset[Binding], base: frozenset[Binding]) -> StalePlan:
    came = [f"+ {line}" for line in in_words(sorted(have - base - frozenset(planned.add)))]
    gone_at_all = base - have
    gone = gone_at_all if not frozenset(planned.add) <= have else gone_at_all - frozenset(planned.remove)
    differs = [*came, *(f"- {line}" for line in in_words(sorted(gone)))]
    more = f"; and {len(differs) - _SHOWN} more" if len(differs) > _SHOWN else ""
    what = "; ".join(differs[:_SHOWN]) or "not those that the plan's file has"
    return StalePlan(
        f"site {planned.site} holds other rules than when the plan was made: {what}{more}",
        hint="somebody changed rules there meanwhile; make and review a new plan: fairlead acl plan --out",
        site=planned.site,
        differs=differs,
    )
