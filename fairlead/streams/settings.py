"""Change a stream in the topology's file: retention at sites, permissions, priority.

``plan_settings`` checks the whole changed topology before anything is written. The plan's one step edits the file;
``access`` and ``retention`` say what follows in clusters, once ``fairlead acl apply`` has run and the site's workers
have read the file again.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from acl.compile import compile_site, exists_at, held_at
from acl.plan import in_words
from acl.rules import Binding
from fairlead.errors import ConfigurationError, OptionError, RefusedError, UnknownNameError
from fairlead.local.files import write_file
from fairlead.plan import LineStyle, Plan, PlanLine, PlanStep, Tell, explain, shortened, silent
from topologies.loader.edit import Keys, set_value
from topologies.loader.load import load, locate, shipped
from topologies.model import PERMISSIONS, Priority, Topology
from topologies.values import format_duration, parse_duration

_BOM: Final = "\ufeff"
_RESTART: Final = "bridges, replicators and shore read the topology when they start: restart those that run"


@dataclass(frozen=True, slots=True)
class SettingsChange:
    """The wanted settings of a stream, as the user writes them. None and empty mappings change nothing.

    Args:
        retention: Duration by site.
        permissions: Access expression by permission (``topologies.model.PERMISSIONS``); the empty one permits nobody.
    """

    stream: str
    retention: Mapping[str, str]
    permissions: Mapping[str, str]
    priority: str | None = None


@dataclass(frozen=True, slots=True)
class StreamSetting:
    """One value of the file. ``before`` is what is in effect, which may come from defaults; empty for nothing."""

    path: Keys
    value: str
    before: str


@dataclass(frozen=True, slots=True)
class FollowingAccess:
    """The rules of a site that ``fairlead acl apply`` adds and removes after the change, in words."""

    site: str
    add: tuple[str, ...]
    remove: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FollowingRetention:
    """How long a site keeps the stream before and after the change; ``shorter``: some of its logs for less time."""

    site: str
    before: str
    after: str
    shorter: bool


@dataclass(frozen=True, slots=True)
class SettingsRun:
    """The context of the step."""

    tell: Tell = silent


@dataclass(frozen=True, slots=True)
class EditTopology(PlanStep[SettingsRun]):
    """Write the values into the file. ``digest`` is the SHA-256 of the content that the plan was made for."""

    file: str
    digest: str
    settings: tuple[StreamSetting, ...]

    def describe(self) -> str:
        return f"write {len(self.settings)} value{'s' * (len(self.settings) != 1)} into {self.file}"

    def details(self) -> Iterator[PlanLine]:
        for each in self.settings:
            was = f" (is {each.before})" if each.before else ""
            yield PlanLine(f"{'.'.join(each.path)}: {each.value or 'nobody'}{was}", LineStyle.ADD)

    async def carry_out(self, context: SettingsRun) -> None:
        self._write(Path(self.file))

    def _write(self, path: Path) -> None:
        text = read_text(path)
        if _digest(text) != self.digest:
            raise RefusedError(
                f"{path} has changed since the plan was made; nothing was written",
                hint="repeat the command: it makes a new plan",
                file=str(path),
            )
        write_file(path, edited(text, self.settings, self.file).encode(), mode=path.stat().st_mode & 0o777)


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsPlan(Plan[SettingsRun]):
    """The edit of the file and what follows from it in clusters."""

    shows_identity: ClassVar[bool] = True
    stream: str
    file: str
    access: tuple[FollowingAccess, ...] = ()
    retention: tuple[FollowingRetention, ...] = ()

    def lines(self) -> Iterator[PlanLine]:
        """Yield the step, then what follows at each site, then the notes."""
        if self.is_empty:
            yield from Plan.lines(self)
            return
        yield from explain(self.steps)
        for kept in self.retention:
            then = "older ones are deleted at the next sweep" if kept.shorter else "what was deleted does not come back"
            yield PlanLine(
                f"{kept.site}: keeps records of {self.stream} for {kept.after} instead of {kept.before}; {then}"
            )
        for each in self.access:
            yield PlanLine(f"{each.site}: fairlead acl apply adds {len(each.add)} rules, removes {len(each.remove)}")
            for mark, rules, style in (("+", each.add, LineStyle.ADD), ("-", each.remove, LineStyle.REMOVE)):
                marked = shortened([f"{mark} {rule}" for rule in rules])
                yield from (PlanLine(f"  {line.text}", style) for line in marked)
        yield from (PlanLine(f"note: {note}", LineStyle.NOTE) for note in self.notes)


def plan_settings(source: str, topology: Topology, change: SettingsChange) -> SettingsPlan:
    """Plan a change of a stream's settings; write nothing.

    Args:
        source: The topology's name or file, as the user gave it.
        topology: The topology of ``source`` as it is in effect.

    Raises:
        UnknownNameError: the topology has no such stream, site, permission or priority.
        TopologyErrors: the changed topology would have mistakes; all are in the error.
        RefusedError: the topology is one that comes with Fairlead, or its file cannot be written.
        EditError: the file can only be changed by hand.
        ConfigurationError: nothing is to be set, a duration is none, or an override hides the change.
    """
    wanted = list(wanted_settings(topology, change))
    path = own_file(source)
    settings = tuple(each for each in wanted if each.value != each.before)
    if not settings:
        note = f"{change.stream} has these settings already"
        return SettingsPlan(stream=change.stream, file=str(path), steps=(), notes=(note,))
    text = read_text(path)
    after = load(source, content=edited(text, settings, str(path)).removeprefix(_BOM))
    for setting in wanted_settings(after, change):
        if setting.value != setting.before:
            raise ConfigurationError(
                f"{'.'.join(setting.path)} stays {setting.before or 'unset'}: {Path(source).stem}.local.yaml or a "
                "variable FAIRLEAD_... overrides what the file says",
                hint="change it there; nothing was written",
                file=str(path),
            )
    return SettingsPlan(
        stream=change.stream,
        file=str(path),
        steps=(EditTopology(str(path), _digest(text), settings),),
        access=tuple(_access(topology, after)),
        retention=tuple(_retention(topology, after, change)),
        notes=tuple(_notes(after, change)),
    )


def wanted_settings(topology: Topology, change: SettingsChange) -> Iterator[StreamSetting]:
    """Yield the wanted values with those that the topology has now.

    Raises:
        UnknownNameError, ConfigurationError: see ``plan_settings``.
    """
    if change.stream not in topology.streams:
        raise UnknownNameError("stream", change.stream, topology.streams)
    if not (change.retention or change.permissions or change.priority is not None):
        raise OptionError(
            f"set what of {change.stream}?",
            hint="--retention SITE=DURATION, --permission NAME='EXPR', --priority CLASS",
        )
    spec = topology.streams[change.stream]
    for site, duration in change.retention.items():
        if site not in topology.sites:
            raise UnknownNameError("site", site, topology.sites)
        try:
            kept = format_duration(parse_duration(duration))
        except ValueError as error:
            raise OptionError(
                f"{duration!r} is no retention: {error}", hint=f"--retention {site}=90d, or {site}=forever"
            ) from None
        before = _in_words(_kept(topology, site, change.stream))
        yield StreamSetting(("sites", site, "retention", change.stream), kept, before)
    for name, expression in change.permissions.items():
        if name not in PERMISSIONS:
            raise UnknownNameError("permission", name, PERMISSIONS)
        yield StreamSetting(("streams", change.stream, "permissions", name), expression, spec.permissions.text(name))
    if change.priority is not None:
        if change.priority not in tuple(Priority):
            raise UnknownNameError("priority", change.priority, tuple(Priority))
        yield StreamSetting(("streams", change.stream, "priority"), change.priority, str(spec.priority))


def own_file(source: str) -> Path:
    """Return the file of a topology that the user may change.

    Raises:
        RefusedError: it comes with Fairlead, or the user may not write it.
    """
    path = locate(source)
    if path in shipped().values():
        raise RefusedError(
            f"topology {source} comes with Fairlead and is not changed: an update would overwrite it",
            hint=f"copy it: cp {path} my-{path.name}; then add --topology my-{path.name} to every command",
            file=str(path),
        )
    path = path.resolve()
    if not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK):
        raise RefusedError(
            f"{path} cannot be written by this user",
            hint=f"let this user write the file and its folder, or copy it: cp {path} my-{path.name}",
            file=str(path),
        )
    return path


def read_text(path: Path) -> str:
    """Return a topology's text with its line ends and byte order mark as they are."""
    return path.read_bytes().decode("utf-8")


def edited(text: str, settings: tuple[StreamSetting, ...], file: str) -> str:
    """Return the text with all values set. Raises ``EditError``."""
    mark = _BOM if text.startswith(_BOM) else ""
    text = text.removeprefix(_BOM)
    for each in settings:
        text = set_value(text, each.path, each.value, file=file)
    return mark + text


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _access(before: Topology, after: Topology) -> Iterator[FollowingAccess]:
    for site in after.sites:
        old, new = compile_site(before, site), compile_site(after, site)
        if old != new:
            add, remove = (tuple(in_words(map(Binding.of, sorted(each)))) for each in (new - old, old - new))
            yield FollowingAccess(site, add, remove)


def _retention(before: Topology, after: Topology, change: SettingsChange) -> Iterator[FollowingRetention]:
    for site in change.retention:
        old, new = (_kept(each, site, change.stream) for each in (before, after))
        if old != new:
            shorter = any(now < was for was, now in zip(old, new, strict=True))
            yield FollowingRetention(site, _in_words(old), _in_words(new), shorter)


def _kept(topology: Topology, site: str, stream: str) -> tuple[dt.timedelta, dt.timedelta]:
    """Return how long a site keeps its own logs of a stream, and copies; twice the same where it can have only one."""
    spec = topology.sites[site]
    own, copies = spec.own_retention_of(stream), spec.retention_of(stream)
    if not any(stream in link.streams for link in topology.links_to(site)):
        copies = own
    elif not held_at(topology, stream, site):
        own = copies
    return own, copies


def _in_words(kept: tuple[dt.timedelta, dt.timedelta]) -> str:
    own, copies = map(format_duration, kept)
    return own if own == copies else f"{own} for its own, {copies} for copies"


def _notes(after: Topology, change: SettingsChange) -> Iterator[str]:
    for site in change.retention:
        if not exists_at(after, change.stream, site):
            yield f"no link brings {change.stream} to {site}, and nothing enters there: its retention has no effect"
    if change.permissions and after.written_by_services(change.stream):
        if any(change.permissions.get(name) for name in ("produce", "topic", "copy")):
            yield f"only Fairlead's services write {change.stream}: produce, topic and copy give nobody WRITE on it"
    if change.permissions:
        yield "access changes when fairlead acl apply runs"
    own = [link.name for link in after.directed_links() if change.stream in link.priority]
    if change.priority is not None and own:
        yield f"links with a priority of their own for {change.stream} keep it: {', '.join(own)}"
    if change.retention or change.priority is not None:
        yield _RESTART
