"""What the lines of some links can be told, and what they answer: one line of JSON each. Pure data.

A direction is where data goes, ``(from, to)``: between two sites there is one each way, shared by all that goes there.
"""

from __future__ import annotations

import msgspec

from simulators.network.weather import Conditions

Direction = tuple[str, str]


class Order(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Changes, made in the order of the fields; what is not named stays as it is.

    Args:
        shape: What directions are like; whether they are ``up`` is of no importance here.
        close: Nothing comes through in these directions, and nobody is told: connections stand still.
        reset: Sites between which every connection is reset.
        open: What was closed comes through again, with what was on its way.
        fuse: After so many more bytes the connection that carries the last of them is reset, in the middle of them.
    """

    shape: tuple[tuple[Direction, Conditions], ...] = ()
    close: tuple[Direction, ...] = ()
    reset: tuple[Direction, ...] = ()
    open: tuple[Direction, ...] = ()
    fuse: tuple[tuple[Direction, int], ...] = ()


class Carried(msgspec.Struct, frozen=True):
    """What a direction has carried so far: bytes delivered, pieces that had to be sent again, connections that a fuse
    has reset; and whether anything comes through now."""

    bytes: int
    lost: int
    resets: int
    open: bool


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What lines answer to every order, an empty one too: each direction as ``from>to``, or why nothing was done."""

    ways: dict[str, Carried] = msgspec.field(default_factory=dict)
    refused: str = ""
