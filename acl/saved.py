"""Save plans to files, so that the reviewed plan can be applied later or by somebody else.

A file has names and rules, no password. A plan is still valid at a site in two cases: the cluster holds the rules that
it held when the plan was made, or the rules that an interrupted apply of the same plan leaves (a part of the added
rules; or all of them, and a part of the removals done). The topology must still require the same rules. Applying a file
never does more than a new plan would.
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
from fairlead.errors import ConfigurationError, RefusedError, UnavailableError

VERSION = 1


_SHOWN = 5  # differences in the message; the error's fields have all


class PlanFileError(ConfigurationError):
    """The file is not a plan, or cannot be applied here."""


class _Header(msgspec.Struct):
    fairlead_plan: int


class SavedPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A plan with its identity and origin (``by``: ``user@host``)."""

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
    """Write a plan. An older file is replaced atomically.

    Raises:
        UnavailableError: the file cannot be written.
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
        raise UnavailableError(
            f"the plan cannot be written to {file}: {error.strerror}", hint="name another file with --out"
        ) from None


def load(file: Path, topology: str) -> SavedPlan:
    """Read a plan.

    Raises:
        PlanFileError: the file is damaged or edited, or belongs to another topology or a newer Fairlead.
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
    """The progress of a plan at a site."""

    NEW = "new"
    BEGUN = "begun"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Remaining:
    """The rest of a site's plan. ``before`` is the number of managed rules that the site had before the plan began."""

    plan: SitePlan
    state: PlanState
    before: int


class StalePlan(RefusedError):
    """A saved plan is no longer valid; nothing was changed at this site."""


def remaining(planned: SitePlan, actual: Collection[Binding], desired: Collection[Rule], managed: Managed) -> Remaining:
    """Return the rest of a saved plan at its site.

    Raises:
        StalePlan: since the plan was made, the topology has changed, or the cluster was changed by something else.
    """
    fresh = diff(planned.site, actual, desired, managed)
    have, want = frozenset(actual), frozenset(map(Binding.of, desired))
    add, remove = frozenset(planned.add), frozenset(planned.remove)
    if fresh.wanted != planned.wanted:
        raise _topology_changed(planned.site)
    begun_from = (have - add) | remove
    in_order = add <= have or remove <= have  # all additions precede the first removal
    if digest(begun_from) != planned.held or not in_order:
        raise _cluster_changed(planned, have, base=(want - add) | remove | frozenset(planned.alone))
    if frozenset(fresh.add) != add - have or frozenset(fresh.remove) != remove & have:
        raise _topology_changed(planned.site)  # Fairlead may now change other rules than then
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
