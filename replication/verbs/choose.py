"""Which link and which logs a command line means. Pure; every mistake comes with the valid names."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from fairlead.errors import ConfigurationError, UnknownNameError
from fairlead.names import parse_log
from replication.plan import Catalog
from topologies.model import Link, Topology


@dataclass(frozen=True, slots=True)
class Scope:
    """What of a link is meant: all of it (both None), one stream, or one log, which is a topic."""

    stream: str | None = None
    log: str | None = None

    @property
    def is_whole(self) -> bool:
        return self.stream is None and self.log is None

    def __str__(self) -> str:
        if self.log is not None:
            return f"log {self.log}"
        return "the whole link" if self.stream is None else f"stream {self.stream}"

    def has(self, topic: str) -> bool:
        """Whether a topic is in it."""
        if self.log is not None:
            return topic == self.log
        return self.stream is None or topic.partition(".")[0] == self.stream


def find_link(topology: Topology, name: str | None, source: str | None = None, target: str | None = None) -> Link:
    """The link with this name (``alpha->beta``), or the one between two sites.

    Raises:
        UnknownNameError: there is none; with the nearest. ConfigurationError: it is not clear which one is meant.
    """
    links = topology.directed_links()
    if name is not None:
        if source is not None or target is not None:
            raise ConfigurationError("a link by its name and by its sites", hint="give LINK, or --from and --to")
        found = [link for link in links if link.name == name.strip().replace("→", "->")]
        if not found:
            raise UnknownNameError("link", name, [link.name for link in links])
        return found[0]
    if source is None or target is None:
        raise ConfigurationError(
            "which link?",
            hint=f"its name, in quotes for the shell, or --from and --to; links: {_names(links)}",
        )
    for site in (source, target):
        if site not in topology.sites:
            raise UnknownNameError("site", site, topology.sites)
    between = [link for link in links if (link.from_, link.to) == (source, target)]
    if not between:
        raise UnknownNameError("link", f"{source}->{target}", [link.name for link in links])
    if len(between) > 1:
        raise ConfigurationError(
            f"{len(between)} links lead from {source} to {target}", hint=f"name one: {_names(between)}"
        )
    return between[0]


def check_scope(topology: Topology, link: Link, scope: Scope) -> None:
    """Whether a link can carry what is meant at all.

    Raises:
        ConfigurationError: both or half a log is named. UnknownNameError: the topology, or the link, does not have it.
    """
    if scope.stream is not None and scope.log is not None:
        raise ConfigurationError("a stream and a log of it", hint="give --stream or --log")
    if scope.stream is not None and scope.stream not in link.streams:
        kind = "stream" if scope.stream not in topology.streams else f"stream on link {link.name}:"
        raise UnknownNameError(kind, scope.stream, link.streams)
    if scope.log is None:
        return
    if "/" in scope.log:
        whole = scope.log.partition("/")[0]
        raise ConfigurationError(f"{scope.log} is one partition", hint=f"a topic goes as a whole: --log {whole}")
    log = parse_log(scope.log)
    if log is None or log.stream not in topology.streams:
        raise UnknownNameError("stream", log.stream if log else scope.log, topology.streams)


def may_have(link: Link, scope: Scope) -> bool:
    """Whether a link carries anything of a scope."""
    log = parse_log(scope.log) if scope.log is not None else None
    if scope.log is not None:
        return log is not None and link.takes(log)
    return scope.stream is None or scope.stream in link.streams


def carried(catalog: Catalog, link: Link, topics: Collection[str], scope: Scope) -> list[str]:
    """The topics of a scope that a link may carry, by name."""
    return sorted(topic for topic in topics if scope.has(topic) and catalog.takes(link, topic))


def _names(links: Collection[Link]) -> str:
    return ", ".join(sorted(link.name for link in links)) or "(none)"
