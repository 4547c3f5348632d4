"""Load a shipped topology or a file, with its local override file and the environment. Report all mistakes at once.

Sources in ascending precedence: the topology, ``<stem>.local.yaml`` beside it, ``<stem>.local.yaml`` in the current
folder, variables such as ``FAIRLEAD_SITES__TOKYO__KAFKA__BOOTSTRAP`` (``from_environment``).
"""

from __future__ import annotations

import grp
import importlib.resources
import os
import pwd
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from fairlead.errors import ConfigurationError, RefusedError, UnknownNameError, nearest
from topologies.loader import shape
from topologies.loader.check import check, part, text
from topologies.loader.mistakes import KeyPath, Mistake, TopologyErrors, quote
from topologies.loader.positions import Origins, ParsedFile, SourcePlace, read_yaml
from topologies.model import DEFAULT_STREAMS, ENDS, SiteKind, Topology

_SUFFIXES = (".yaml", ".yml")
_SITES = re.compile(r"sites\s*:")


def shipped() -> dict[str, Path]:
    """Return the files of the topologies that come with Fairlead, by name."""
    folder = Path(str(importlib.resources.files("topologies")))
    return {file.stem: file for file in sorted(folder.glob("*.yaml")) if not file.name.endswith(".local.yaml")}


def load(
    path_or_name: str | Path,
    *,
    env: Mapping[str, str] = os.environ,
    content: str | None = None,
    local: bool = True,
) -> Topology:
    """Load and check a topology. Add the default streams of shipping if it has ships or ports.

    Args:
        path_or_name: Name of a shipped topology, or a YAML file (anything with a suffix or a folder in it).
        env: Environment variables that may override parts of it.
        content: The text to use instead of the file's, to check a change before it is written.
        local: Whether the files ``<stem>.local.yaml`` override parts of it.

    Raises:
        TopologyErrors: the topology or an override has mistakes; all of them are in the error.
        UnknownNameError: there is no shipped topology of this name.
        ConfigurationError: the file cannot be read.
        RefusedError: another user owns one of the files, or may write it.
    """
    path = locate(path_or_name)
    shown = str(path) if path.stem != str(path_or_name) else path.name
    overrides: dict[Path, ParsedFile] = {}
    if content is None:
        content = _text(path, ours=path in shipped().values())
    for file in (path.parent / f"{path.stem}.local.yaml", Path(f"{path.stem}.local.yaml")):
        if local and file.is_file():
            overrides.setdefault(file.resolve(), read_yaml(_text(file), str(file)))
    return read(content, shown, overrides=overrides.values(), env=env)


def read(
    content: str, file: str, *, overrides: Iterable[ParsedFile] = (), env: Mapping[str, str] | None = None
) -> Topology:
    """Load a topology from YAML text; ``file`` is its name in mistakes.

    Raises:
        TopologyErrors: the text or an override has mistakes.
    """
    source = read_yaml(content, file)
    order = [file]
    secrets: Secrets = {}
    for override in overrides:
        order.append(override.file)
        secrets |= take_secrets(override, list(part(source.data, "sites")))
        lay_over(source, override)
    for override in from_environment(env or {}, source.data):
        lay_over(source, override)
    mistakes = source.mistakes
    topology = None
    if source.data is not None:
        _add_default_streams(source.data)
        topology, wrong = shape.build(source.data, source.origins)
        mistakes = mistakes + wrong + _between(source)
    if mistakes or topology is None:
        raise TopologyErrors(file, _in_order(mistakes, order))
    return topology.with_secrets(secrets)


def locate(path_or_name: str | Path) -> Path:
    """Return the file of a topology.

    Raises:
        UnknownNameError: there is no shipped topology of this name.
    """
    written = str(path_or_name)
    known = shipped()
    if written in known:
        return known[written]
    path = Path(path_or_name)
    if path.suffix in _SUFFIXES or path.name != written or isinstance(path_or_name, Path):
        return path
    raise UnknownNameError("topology", written, [*known, *_here()])


def _here() -> list[str]:
    """Return topologies in the current folder, as suggestions for an unknown name."""
    files = (f for s in _SUFFIXES for f in Path().glob(f"*{s}") if not f.name.endswith(f".local{s}"))
    return sorted(file.name for file in files if file.is_file() and _has_sites(file))[:20]


def _has_sites(file: Path) -> bool:
    """Return whether a YAML file is a topology, perhaps with mistakes, and not another program's settings."""
    try:
        with file.open(encoding="utf-8-sig") as lines:
            return any(_SITES.match(line) for line in lines)
    except (OSError, ValueError):
        return False


def _text(path: Path, *, ours: bool = False) -> str:
    """Read a file; refuse one that other users may have written. ``ours``: it is installed with this program."""
    try:
        with path.open("rb") as file:
            if not ours:
                _require_own(path, file.fileno())
            return file.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        problem = Mistake(str(path), line, 1, "", "not UTF-8 text", "a YAML file in UTF-8")
        raise TopologyErrors(str(path), [problem]) from None
    except FileNotFoundError:
        hint = f"give an existing file, or a shipped topology: {', '.join(shipped())}"
        raise ConfigurationError(f"there is no file {path}", hint=hint, file=str(path)) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigurationError(f"cannot read {path}: {reason}", hint="give a readable YAML file") from None


def _require_own(path: Path, descriptor: int) -> None:
    """Raise ``RefusedError`` if another user owns the file or may write it.

    A topology is code: it decides where passwords are sent, and its Spark settings can run programs. On a read-only
    mount the owner does not matter, because containers run as another user than their host.
    """
    opened, user = os.fstat(descriptor), os.geteuid()
    mounted = bool(os.fstatvfs(descriptor).f_flag & os.ST_RDONLY)
    strangers = {owner for owner in (opened.st_uid, path.lstat().st_uid) if owner not in (0, user)}
    if strangers and not mounted:
        why = f"it belongs to {_user_name(min(strangers))}, and this program runs as {_user_name(user)}"
        hint = f"if you trust its content: chown {_user_name(user)} {path}; else remove it"
    elif opened.st_mode & stat.S_IWOTH or (opened.st_mode & stat.S_IWGRP and not _private_group(opened.st_gid, user)):
        who = "everybody" if opened.st_mode & stat.S_IWOTH else "its group"
        why, hint = f"{who} can write to it", f"check its content, then: chmod go-w {path}"
    else:
        return
    raise RefusedError(
        f"refused to read {path}: {why}. A topology is code: it decides where passwords go and what Spark runs",
        hint=hint,
        file=str(path),
    )


def _user_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _private_group(number: int, user: int) -> bool:
    """Return whether a group is the user's own group of the same name with no other member (files are 0664 then)."""
    try:
        group, own = grp.getgrgid(number), pwd.getpwuid(user)
    except KeyError:
        return False
    return own.pw_gid == number and group.gr_name == own.pw_name and set(group.gr_mem) <= {own.pw_name}


def _add_default_streams(data: Any) -> None:
    """Complete the declared streams by the default ones, key by key: all if the topology has ships or ports, else
    ``ends``."""
    kinds = {text(site, "kind") for site in part(data, "sites").values()}
    if not isinstance(data, dict) or not isinstance(data.get("streams"), dict | None):
        return
    shipping = bool(kinds & {SiteKind.SHIP, SiteKind.PORT})
    streams = data["streams"] = dict(data.get("streams") or {})
    for name, stream in DEFAULT_STREAMS.items():
        if not shipping and name != ENDS:
            continue
        declared = streams.get(name, {})
        if isinstance(declared, dict):
            streams[name] = stream.model_dump(mode="json", exclude_unset=True, by_alias=True) | declared


def _between(source: ParsedFile) -> list[Mistake]:
    if not isinstance(source.data, dict):
        return []
    found = []
    for finding in check(source.data):
        origins = source.origins
        place = origins.of_key(finding.path) if finding.at_key else origins.of_value(finding.path)
        found.append(place.mistake(finding.path, finding.problem, finding.expected, finding.nearest))
    return found


def _in_order(mistakes: Iterable[Mistake], files: list[str]) -> list[Mistake]:
    """Sort mistakes by file and line. A mistake behind an anchor is kept once, however many aliases repeat it."""
    once: dict[tuple[object, ...], Mistake] = {}
    for mistake in mistakes:
        once.setdefault((mistake.file, mistake.line, mistake.column, mistake.problem, mistake.expected), mistake)
    rank = {file: number for number, file in enumerate(files)}
    return sorted(once.values(), key=lambda m: (rank.get(m.file, len(rank)), m.file, m.line, m.column))


# --- overrides: merge a local file and the environment into a topology

PREFIX = "FAIRLEAD_"
_SECTIONS = {"sites": "site", "streams": "stream", "customers": "customer", "users": "user"}


def lay_over(base: ParsedFile, over: ParsedFile) -> None:
    """Merge ``over`` into ``base``: data, places and mistakes. Do not use ``over`` afterwards."""
    base.mistakes.extend(over.mistakes)
    if over.data is None:
        return
    if not isinstance(over.data, dict):
        base.mistakes.append(over.origins.top.mistake((), "an override has the form of a topology", "a mapping"))
        return
    if not isinstance(base.data, dict):
        return
    base.mistakes.extend(_drop_strangers(base.data, over))
    if isinstance(base.data.get("links"), list) and isinstance(over.data.get("links"), list):
        _links(base, over)
    for section, value in list(over.data.items()):
        if isinstance(value, dict) and not isinstance(base.data.get(section), dict | None):
            del over.data[section]  # report the mistake in the topology's own section instead
    _merge(base, over.origins, base.data, over.data, ())


def _drop_strangers(base: dict[str, Any], over: ParsedFile) -> list[Mistake]:
    mistakes: list[Mistake] = []
    for section, kind in _SECTIONS.items():
        known = base.get(section)
        written = over.data.get(section)
        if not isinstance(written, dict) or not isinstance(known, dict | None):
            continue
        names = [*(known or {}), *(DEFAULT_STREAMS if section == "streams" else ())]
        for name in [name for name in written if name not in names]:
            del written[name]
            path: KeyPath = (section, name)
            place = over.origins.of_key(path)
            mistakes.append(
                place.mistake(path, f"the topology has no such {kind}", ", ".join(names), nearest(name, names))
            )
    return mistakes


def _merge(base: ParsedFile, over: Origins, mine: dict[str, Any], theirs: dict[str, Any], path: KeyPath) -> None:
    for key, value in theirs.items():
        here = (*path, key)
        known = mine.get(key)
        if isinstance(known, dict) and isinstance(value, dict):
            _merge(base, over, known, value, here)
        elif path == () and value is None:
            continue  # an empty section changes nothing
        elif (isinstance(known, dict) and value is not None) or (here == ("links",) and not isinstance(value, list)):
            # Replacing a whole section would break references all over the topology and bury this one mistake.
            wanted = shape.describe(shape.type_at(Topology, here))
            base.mistakes.append(over.of_value(here).mistake(here, f"{quote(value)} does not belong here", wanted))
        else:
            mine[key] = value
            over.move(here, here, base.origins)


def _links(base: ParsedFile, over: ParsedFile) -> None:
    known: dict[tuple[Any, ...], int] = {}
    for index, link in enumerate(base.data["links"]):
        if isinstance(link, dict):
            known.setdefault(_identity(link), index)
    for index, link in enumerate(over.data.pop("links")):
        path: KeyPath = ("links", index)
        place = over.origins.of_value(path)
        target = known.get(_identity(link)) if isinstance(link, dict) else None
        if target is None:
            names = [_show(identity) for identity in known]
            near = nearest(_show(_identity(link)), names) if isinstance(link, dict) else None
            wanted = "from, to and when exactly as a link of the topology has them"
            base.mistakes.append(place.mistake(path, "the topology has no such link", wanted, near))
            continue
        moved = Origins(over.origins.top)
        over.origins.move(path, ("links", target), moved)
        _merge(base, moved, base.data["links"][target], link, ("links", target))


def _identity(link: dict[str, Any]) -> tuple[str, str, str]:
    return str(link.get("from")), str(link.get("to")), str(link.get("when", "always"))


def _show(identity: tuple[str, ...]) -> str:
    return "from {}, to {}, when {}".format(*identity)


def from_environment(env: Mapping[str, str], base: Any) -> list[ParsedFile]:
    """Return one override for each variable such as ``FAIRLEAD_SITES__LOS_ANGELES__KAFKA__BOOTSTRAP``, sorted by name.

    Two underscores separate the parts of a path. Parts match without regard to case, with ``-`` written as ``_``.
    Values are text. Ignored are variables without two underscores, and ``FAIRLEAD_SECRET_...``.
    """
    found: list[ParsedFile] = []
    for variable in sorted(env):
        if variable.startswith(PREFIX) and "__" in variable and not variable.startswith(f"{PREFIX}SECRET_"):
            found.append(_variable(variable, env[variable], base))
    return found


def _variable(variable: str, text: str, base: Any) -> ParsedFile:
    parts = variable.removeprefix(PREFIX).split("__")
    path: KeyPath = ()
    current = base
    for each in parts:
        name = _match(each, path, current)
        path = (*path, name)
        current = current.get(name) if isinstance(current, dict) else None
    place = SourcePlace(f"${variable}")
    origins = Origins(place)
    # A lone surrogate stands for a byte that is not UTF-8; other libraries reject it.
    data: Any = text.encode("utf-8", "backslashreplace").decode()
    origins.values[path] = place
    for length in range(len(path), 0, -1):
        data = {path[length - 1]: data}
        origins.keys[path[:length]] = place
    source = ParsedFile(place.file, data, origins)
    if not all(parts):
        source.data = None
        source.mistakes.append(
            place.mistake((), "an empty part in the name", f"{PREFIX}SITES__<SITE>__KAFKA__BOOTSTRAP")
        )
    return source


def _match(part: str, path: KeyPath, current: Any) -> str:
    """Return the key that a part of a variable's name matches; the part in lower case if none does."""
    fields = shape.fields_at(Topology, path)
    names = [
        *fields,
        *(current if isinstance(current, dict) else ()),
        *(DEFAULT_STREAMS if path == ("streams",) else ()),
    ]
    for name in names:
        if name.upper().replace("-", "_") == part.upper():
            return str(name)
    return part.lower() if fields else part.lower().replace("_", "-")


# --- passwords: only the file <topology file>.local.yaml may have the section, never a topology

SECTION = "secrets"
_WANTED = "secrets: {<site>: {<user>: <password>}}"

Secrets = dict[tuple[str, str], SecretStr]


def take_secrets(override: ParsedFile, sites: list[str]) -> Secrets:
    """Remove the section ``secrets`` from an override and return its passwords by (site, user).

    Mistakes in it are added to the override's.
    """
    found: Secrets = {}
    section = override.data.pop(SECTION, None) if isinstance(override.data, dict) else None
    if section is None:
        return found

    def wrong(path: KeyPath, problem: str, expected: str = _WANTED, near: str | None = None) -> None:
        place = override.origins.of_key(path)
        override.mistakes.append(place.mistake(path, problem, expected, near))

    if not isinstance(section, dict):
        wrong((SECTION,), "not a mapping of sites")
        return found
    for site, users in section.items():
        if site not in sites:
            wrong((SECTION, site), "the topology has no such site", ", ".join(sites), nearest(site, sites))
        elif not isinstance(users, dict):
            wrong((SECTION, site), "not a mapping of users")
        else:
            for user, password in users.items():
                if isinstance(password, str) and password:
                    found[site, user] = SecretStr(password)
                else:
                    wrong((SECTION, site, user), "not a text in quotes", "a password; put numbers in quotes")
    return found
