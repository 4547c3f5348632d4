"""Loading: a shipped topology or a file, the local file beside it, the environment; a checked model or all mistakes.

The order of precedence, later wins: the topology, ``<stem>.local.yaml`` beside it, ``<stem>.local.yaml`` in the
current folder, variables such as ``FAIRLEAD_SITES__TOKYO__KAFKA__BOOTSTRAP`` (``topologies.overrides``).
"""

from __future__ import annotations

import importlib.resources
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fairlead.errors import ConfigurationError, UnknownNameError
from topologies import shape
from topologies.check import check
from topologies.loose import part, text
from topologies.mistakes import Mistake, TopologyErrors
from topologies.model import DEFAULT_STREAMS, SiteKind, Topology
from topologies.overrides import from_environment, lay_over
from topologies.secrets import Secrets, take_secrets
from topologies.source import Source, read_yaml

__all__ = ["TopologyErrors", "load", "read", "shipped"]

_SUFFIXES = (".yaml", ".yml")
_SITES = re.compile(r"sites\s*:")


def shipped() -> dict[str, Path]:
    """The topologies that come with Fairlead, by name."""
    folder = Path(str(importlib.resources.files("topologies")))
    return {file.stem: file for file in sorted(folder.glob("*.yaml")) if not file.name.endswith(".local.yaml")}


def load(path_or_name: str | Path, *, env: Mapping[str, str] = os.environ) -> Topology:
    """A topology, checked and with the default streams of shipping where there are ships or ports.

    Args:
        path_or_name: Name of a shipped topology, or a YAML file (anything with a suffix or a folder in it).
        env: Environment variables that may override parts of it.

    Raises:
        TopologyErrors: the topology or what overrides it has mistakes; all of them are in the error.
        UnknownNameError: there is no shipped topology of this name.
        ConfigurationError: the file cannot be read.
    """
    path = locate(path_or_name)
    shown = str(path) if path.stem != str(path_or_name) else path.name
    overrides: dict[Path, Source] = {}
    content = _text(path)
    for file in (path.parent / f"{path.stem}.local.yaml", Path(f"{path.stem}.local.yaml")):
        if file.is_file():
            overrides.setdefault(file.resolve(), read_yaml(_text(file), str(file)))
    return read(content, shown, overrides=overrides.values(), env=env)


def read(
    content: str, file: str, *, overrides: Iterable[Source] = (), env: Mapping[str, str] | None = None
) -> Topology:
    """A topology from YAML text; ``file`` is what mistakes call it.

    Raises:
        TopologyErrors: as ``load``.
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
    """The file of a topology.

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
    """Topologies of the current folder that might have been meant."""
    files = (f for s in _SUFFIXES for f in Path().glob(f"*{s}") if not f.name.endswith(f".local{s}"))
    return sorted(file.name for file in files if file.is_file() and _has_sites(file))[:20]


def _has_sites(file: Path) -> bool:
    """Whether a file is a topology, maybe one with mistakes: other programs' settings are YAML, too."""
    try:
        with file.open(encoding="utf-8-sig") as lines:
            return any(_SITES.match(line) for line in lines)
    except (OSError, ValueError):
        return False


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
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


def _add_default_streams(data: Any) -> None:
    """Where there is shipping, complete the declared streams by the default ones, key by key."""
    kinds = {text(site, "kind") for site in part(data, "sites").values()}
    if not kinds & {SiteKind.SHIP, SiteKind.PORT} or not isinstance(data.get("streams"), dict | None):
        return
    streams = data["streams"] = dict(data.get("streams") or {})
    for name, stream in DEFAULT_STREAMS.items():
        declared = streams.get(name, {})
        if isinstance(declared, dict):
            streams[name] = stream.model_dump(mode="json", exclude_unset=True, by_alias=True) | declared


def _between(source: Source) -> list[Mistake]:
    if not isinstance(source.data, dict):
        return []
    found = []
    for finding in check(source.data):
        origins = source.origins
        place = origins.of_key(finding.path) if finding.at_key else origins.of_value(finding.path)
        found.append(place.mistake(finding.path, finding.problem, finding.expected, finding.nearest))
    return found


def _in_order(mistakes: Iterable[Mistake], files: list[str]) -> list[Mistake]:
    """By file and line. What stands behind an anchor is wrong once, however many aliases repeat it."""
    once: dict[tuple[object, ...], Mistake] = {}
    for mistake in mistakes:
        once.setdefault((mistake.file, mistake.line, mistake.column, mistake.problem, mistake.expected), mistake)
    rank = {file: number for number, file in enumerate(files)}
    return sorted(once.values(), key=lambda m: (rank.get(m.file, len(rank)), m.file, m.line, m.column))
