"""Plans as files: what was looked at is what is applied, later and by whom it may be.

A file holds names and rules, no password. Whether it is still true is judged when it is applied (``acl.stale``).
"""

from __future__ import annotations

import datetime as dt
import getpass
import platform
from pathlib import Path
from typing import Annotated, Any

import msgspec

from acl.plan import Plan, SitePlan, Unread
from fairlead.errors import ConfigurationError

VERSION = 1


class PlanFileError(ConfigurationError):
    """A file that is no plan, or not one that can be applied here."""


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
    def content(self) -> Plan:
        """What is to be done."""
        return Plan(self.topology, self.sites, self.unread)


def save(plan: Plan, file: Path) -> None:
    """Write a plan, whole or not at all; an older file of this name is replaced.

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
        PlanFileError: it is damaged, was changed by hand, is of another topology or of a newer Fairlead.
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
            f"plan {file} was changed after it was made: it says that it is {saved.plan} and is {identity}",
            hint="a plan is not edited; change the topology and make a new one: fairlead acl plan --out",
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
