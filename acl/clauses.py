"""The access expressions of a topology one by one: what logs each is about, what its permission means in Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from acl import extent as ext
from acl.extent import Extent
from acl.rules import Operation
from topologies.expression import Expression, Subject, evaluate
from topologies.expression_parser import parse
from topologies.model import PERMISSIONS, Permissions, Topology

PERMITTED: dict[str, tuple[Operation, ...]] = {
    "admin": (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS),
    "produce": (Operation.WRITE,),
    "consume": (Operation.READ,),
    "topic": (Operation.CREATE, Operation.DELETE),
    "copy": (Operation.READ, Operation.DESCRIBE_CONFIGS, Operation.WRITE, Operation.CREATE, Operation.DELETE),
}
"""What each permission means in Kafka's operations; those in ``CHANGES_LOGS`` on logs that the site holds only."""

CHANGES_LOGS = frozenset({Operation.WRITE, Operation.CREATE, Operation.DELETE})


@dataclass(frozen=True, slots=True)
class Clause:
    """One permission of a stream, or of the logs of a stream whose keys match a pattern.

    Args:
        key: The pattern as the topology has it, or None for the whole stream.
        extent: The logs that it is about.
    """

    stream: str
    key: str | None
    permission: str
    text: str
    extent: Extent

    @property
    def expression(self) -> Expression:
        """Whom it is for.

        Raises:
            ExpressionError: the text cannot be understood.
        """
        return parse(self.text)

    @property
    def where(self) -> str:
        """Where it stands in the topology."""
        between = "permissions" if self.key is None else f"keys.{self.key}"
        return f"streams.{self.stream}.{between}.{self.permission}"

    def includes(self, subject: Subject) -> bool:
        """Whether it is for this user."""
        return evaluate(self.expression, subject)


def clauses(topology: Topology, stream: str) -> Iterator[Clause]:
    """Every permission of a stream: first those of the whole stream, then those of its key patterns, empty ones too."""
    spec = topology.streams[stream]
    yield from _five(stream, None, spec.permissions, ext.whole(stream))
    for key, permissions in spec.keys.items():
        yield from _five(stream, key, permissions, ext.keyed(stream, key))


def all_clauses(topology: Topology) -> tuple[Clause, ...]:
    """The clauses of every stream, without those that are for nobody."""
    return tuple(clause for stream in topology.streams for clause in clauses(topology, stream) if clause.text)


def _five(stream: str, key: str | None, permissions: Permissions, extent: Extent) -> Iterator[Clause]:
    for name in PERMISSIONS:
        yield Clause(stream, key, name, permissions.text(name), extent)
