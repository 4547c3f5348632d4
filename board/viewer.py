"""Who looks at the board, and what that person may see and do there. Pure.

The rights follow from the topology: its ``board`` section, and its customers. What a customer sees is the table that
shore makes of its feed, so the board has no rule of its own about it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from topologies.expression import Subject, evaluate, parse
from topologies.model import Customer, Topology, User


class Access(StrEnum):
    """Who may open a page."""

    ANYONE = "anyone"  # also without having signed in
    SIGNED_IN = "signed-in"
    CUSTOMER = "customer"  # customers of the topology, about their own feed
    STAFF = "staff"  # ``board.read``
    OPERATOR = "operator"  # ``board.operate``


@dataclass(frozen=True, slots=True)
class Viewer:
    """A person or program that has signed in.

    Args:
        name: A customer or user of the topology; for ``LOCAL`` no name of a Kafka user.
        customer: Whether it is a customer.
        reads: Whether it sees the whole fleet.
        operates: Whether it acknowledges and clears alerts.
    """

    name: str
    customer: bool = False
    reads: bool = False
    operates: bool = False

    def may(self, access: Access) -> bool:
        """Return whether the viewer may open pages with this access."""
        match access:
            case Access.ANYONE | Access.SIGNED_IN:
                return True
            case Access.CUSTOMER:
                return self.customer
            case Access.STAFF:
                return self.reads
            case Access.OPERATOR:
                return self.operates


LOCAL: Final = Viewer("(this machine)", reads=True, operates=True)
"""Whoever starts the board, with the link that it prints. That person can read all passwords of the sites here."""


def viewer_of(topology: Topology, name: str) -> Viewer | None:
    """Return what a customer or user of the topology may see; None if there is no such name, or it may see nothing.

    Raises:
        ExpressionError: an expression of ``board`` cannot be parsed; ``topologies.loader`` refuses such a topology.
    """
    if name == LOCAL.name:
        return LOCAL
    party = topology.customers.get(name) or topology.users.get(name)
    if party is None:
        return None
    reads = _selects(topology, "read", name, party)
    found = Viewer(
        name,
        customer=name in topology.customers,
        reads=reads,
        operates=reads and _selects(topology, "operate", name, party),
    )
    return found if found.customer or found.reads else None


def _selects(topology: Topology, permission: str, name: str, party: Customer | User) -> bool:
    if topology.board is None:
        return False
    subject = Subject(name, frozenset(party.groups), frozenset(party.roles))
    return evaluate(parse(getattr(topology.board, permission)), subject)
