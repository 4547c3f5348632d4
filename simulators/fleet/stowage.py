"""Choose slots on board: bay, row and tier as ISO 9711-1 writes them (``0340782``: bay 34, row 07, tier 82). Pure.

Bays count from the bow and are even for 40' boxes (2, 6, 10, ...); rows count from the middle, odd to starboard and
even to port; tiers below deck begin with 02, those on deck with 82. A ship has as many bays as its cargo needs.
Sections are filled from the bottom up, from bow to stern; a slot that becomes free is used again. This is no loading
plan: it ignores weights and stability, and never moves a box to reach one beneath it.

Boxes that will fall overboard stand in the outermost stacks on deck of the last bay.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulators.fleet.plan import PlannedBox, PlannedMove

FEWEST_BAYS = 6
_ROWS = 18  # in every bay; boxes that fall stand in further rows outside of these, on deck of the last bay
_DECK_TIERS = range(82, 99, 2)
_HOLD_TIERS = range(2, 17, 2)
SLOTS = {True: _ROWS * len(_DECK_TIERS), False: _ROWS * len(_HOLD_TIERS)}
"""Boxes in one bay, on deck and below."""


class _Section:
    """The slots on deck or below, numbered from the bottom up; boxes get the lowest free one."""

    def __init__(self) -> None:
        self._free: list[int] = []
        self._next = 0

    def take(self) -> int:
        if self._free:
            return heapq.heappop(self._free)
        self._next += 1
        return self._next - 1

    def leave(self, slot: int) -> None:
        heapq.heappush(self._free, slot)


def stow(boxes: Iterable[PlannedBox]) -> None:
    """Give every LOAD of every box a slot, which is free again when the box is discharged."""
    ships: dict[str, list[tuple[PlannedMove, PlannedBox, int]]] = {}
    for box in boxes:
        for nth, move in enumerate(box.moves):
            if move.code in ("LOAD", "DISC"):
                ship = str(move.to) if move.code == "LOAD" else move.site
                ships.setdefault(ship, []).append((move, box, nth))
    for moves in ships.values():
        moves.sort(key=lambda each: (each[0].time, each[1].index))
        _stow_ship(moves)


def _stow_ship(moves: list[tuple[PlannedMove, PlannedBox, int]]) -> None:
    loads = [box for move, box, _ in moves if move.code == "LOAD"]
    bays = max(
        FEWEST_BAYS,
        *(math.ceil(sum(box.unit.on_deck is deck for box in loads) / slots) for deck, slots in SLOTS.items()),
    )
    sections = {True: _Section(), False: _Section()}
    taken: dict[int, int] = {}
    fallers = 0
    for move, box, nth in moves:
        deck = box.unit.on_deck
        if move.code == "DISC":
            if box.index in taken:
                sections[deck].leave(taken.pop(box.index))
            continue
        if box.falls is not None and nth == len(box.moves) - 1:
            place, fallers = _stern(fallers, bays), fallers + 1
        else:
            taken[box.index] = sections[deck].take()
            place = _place(taken[box.index], bays, deck=deck)
        box.moves[nth] = replace(move, stowage=place)


def _place(slot: int, bays: int, *, deck: bool) -> str:
    """Return a slot's position; slots count from bow to stern, then from the middle outwards, then up."""
    bay, row = slot % bays, slot // bays % _ROWS
    tier = (_DECK_TIERS if deck else _HOLD_TIERS)[slot // bays // _ROWS]
    return _written(4 * bay + 2, row + 1, tier)


def _stern(nth: int, bays: int) -> str:
    """Return the position of the ``nth`` box that falls: in stacks outside of all others, starboard first."""
    stack, tier = divmod(nth, len(_DECK_TIERS))
    return _written(4 * bays - 2, _ROWS + 1 + stack, _DECK_TIERS[tier])


def _written(bay: int, row: int, tier: int) -> str:
    return f"{bay:03d}{row:02d}{tier:02d}"
