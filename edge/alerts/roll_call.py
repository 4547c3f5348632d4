"""The roll call after a departure: which boxes that are aboard by custody were heard since. Pure.

A departure (DEPA) begins a call. At a set time the call is made: a box on the list that was not heard is missing, and
each missing box is an alert. Once all boxes are accounted for, the call is complete. An arrival (ARRI) or the next
departure ends it.

    no call --DEPA--> waiting --set time--> CALLED --all heard, gone or overboard--> COMPLETE
                         |                     |
                         +-----ARRI, DEPA------+--> ended; from waiting with the record CUT_SHORT and without alerts

All times are those of events, readings and of the ship's position reports, never of the machine. Custody is asked when
the call is made and not at the departure: the ledger's entry about a box that was loaded last may come after DEPA.

**Which rule speaks when.** The roll call speaks for a box until it is heard after the departure; the silence rule
speaks before the departure and once the box is heard again. A box whose alert about silence is open at the departure
keeps it: the call names the box as missing, without a second alert. A box with an open overboard alert is not expected.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from edge.alerts.thresholds import RollCallThresholds
from fairlead.records.ship import RollCallState

ALL: Final = ""  # the container's number in the alert about most boxes at once
_FEW: Final = 3  # with fewer boxes aboard, their share does not show a fault of the gateway


class Departure(NamedTuple):
    """A departure: the id of its event, the port (UN/LOCODE), and its time in milliseconds."""

    event_id: str
    port: str | None
    at_ms: int


@dataclass(frozen=True, slots=True)
class BoxesAboard:
    """What the rest of the bridge knows when a call is made; boxes by number.

    Args:
        listed: Aboard by custody.
        overboard: With an open overboard alert.
        silent: With an open alert about silence; ``ALL`` if most boxes are silent.
        usual_ms: The longest usual interval between readings of the boxes aboard; 0 if none is known.
        gateway: Share of missing boxes from which on the gateway is suspected, not the boxes.
    """

    listed: Set[str] = frozenset()
    overboard: Set[str] = frozenset()
    silent: Set[str] = frozenset()
    usual_ms: int = 0
    gateway: float = 0.5


class RollCallResult(NamedTuple):
    """One result of a call, for the record ``RollCall``. Times in milliseconds; ``complete_ms`` is None while boxes are
    missing."""

    departure: Departure
    state: RollCallState
    at_ms: int
    aboard: int
    heard: int
    overboard: int
    missing: frozenset[str]
    unlisted: frozenset[str]
    complete_ms: int | None


class RollCallChange(NamedTuple):
    """What follows from the passing of time.

    Args:
        result: A record to write.
        opened: Boxes that get an alert.
        ended: Boxes whose alert ends, with the reason: ``heard``, ``left`` or ``overboard``.
    """

    result: RollCallResult | None = None
    opened: tuple[str, ...] = ()
    ended: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class _Call:
    departure: Departure
    heard: dict[str, int]  # when each box was first heard since, in milliseconds
    called: bool = False
    complete: bool = False
    ended: bool = False
    over: set[str] = field(default_factory=set)  # boxes whose alert of this departure has ended


class RollCallTracker:
    """The state of the newest departure's roll call, and the boxes whose alert is open.

    After a restart: ``depart`` and ``arrive`` with the events of the ship's log and ``restore_result`` with its roll
    calls, both in order, ``restore_alert`` with its alerts, then ``hear`` with the newest readings. Every input may
    come twice.
    """

    def __init__(self) -> None:
        self._call: _Call | None = None
        self._found: set[str] = set()  # boxes with an alert that were heard since
        self.unheard: dict[str, int] = {}
        """Boxes whose alert is open, with the time of the departure that it is about."""

    @property
    def departure(self) -> Departure | None:
        """The newest departure."""
        return self._call.departure if self._call is not None else None

    # -- inputs

    def depart(
        self, departure: Departure, heard: Mapping[str, int], now_ms: int, aboard: BoxesAboard
    ) -> RollCallResult | None:
        """Begin the call of a departure; return the result of the call that it cuts short, if there is one.

        Nothing happens if the departure is not newer than the last one, or repeats it: the same port again before the
        call was made or the ship arrived.

        Args:
            heard: Boxes that were heard already since then, with the time.
        """
        call, cut = self._call, None
        if call is not None:
            last = call.departure
            if departure.at_ms <= last.at_ms or departure.event_id == last.event_id:
                return None
            if not call.called and not call.ended:
                if departure.port == last.port:
                    return None
                cut = self._result(call, "CUT_SHORT", now_ms, aboard)
        self._call = _Call(departure, {number: at for number, at in heard.items() if at >= departure.at_ms})
        return cut

    def arrive(self, at_ms: int, now_ms: int, aboard: BoxesAboard) -> RollCallResult | None:
        """End the call; return its result if it was not made yet. An arrival before the departure is an old one."""
        call = self._call
        if call is None or at_ms < call.departure.at_ms:
            return None
        call.ended = True
        return None if call.called else self._result(call, "CUT_SHORT", now_ms, aboard)

    def hear(self, number: str, device_ms: int, ship_ms: int = 0, *, newest: bool = True) -> None:
        """Apply a reading of a box.

        It counts by its device time. If it is the ``newest`` of its device, it also counts by the ship's clock, because
        the device's clock may be behind.

        Args:
            ship_ms: The ship's clock at its receipt; 0 if it is not known.
        """
        call = self._call
        if call is None and not self.unheard:
            return  # no departure is known, as in a yard
        since_ms = self.unheard.get(number)
        first_ms = call.heard.get(number) if call is not None else None
        if since_ms is None and first_ms is not None and device_ms >= first_ms:
            return  # most readings
        counts_ms = max(device_ms, ship_ms) if newest else device_ms
        if since_ms is not None and counts_ms >= since_ms:
            self._found.add(number)
        if call is None or counts_ms < call.departure.at_ms:
            return
        at_ms = max(device_ms, ship_ms)
        if first_ms is None or at_ms < first_ms:
            call.heard[number] = at_ms

    def restore_result(self, departure_id: str, state: RollCallState) -> None:
        """Apply a record of the ship's own log. One about another than the newest departure changes nothing."""
        call = self._call
        if call is not None and departure_id == call.departure.event_id:
            call.called = True
            call.complete = call.complete or state == "COMPLETE"

    def restore_alert(self, number: str, departure_ms: int, *, is_open: bool) -> None:
        """Apply an alert's state from the ship's own log."""
        if is_open:
            self.unheard[number] = departure_ms
        else:
            self.end_alert(number, departure_ms)

    def end_alert(self, number: str, departure_ms: int) -> None:
        """End a box's alert about a departure, which is not raised again."""
        if self.unheard.get(number) == departure_ms:
            del self.unheard[number]
            self._found.discard(number)
        if self._call is not None and self._call.departure.at_ms == departure_ms:
            self._call.over.add(number)

    # -- outputs

    def speaks_for(self, number: str, heard_ms: int) -> bool:
        """Return whether the roll call, and not the silence rule, speaks for a box last heard at ``heard_ms``."""
        if number in self.unheard:
            return True
        call = self._call
        if call is None or heard_ms >= call.departure.at_ms or number in call.heard:
            return False
        return ALL in self.unheard or not (call.called or call.ended)

    def is_due(self, now_ms: int, limits: RollCallThresholds) -> bool:
        """Return whether ``check`` may change something now; cheap."""
        call = self._call
        if self.unheard:
            return True
        if call is None or call.ended or call.complete:
            return False
        return call.called or now_ms >= call.departure.at_ms + limits.at_least

    def check(self, now_ms: int, limits: RollCallThresholds, aboard: BoxesAboard) -> RollCallChange:
        """Make the call if its time has come; find the boxes that are missing now, and those that no longer are."""
        ended = self._ended(aboard)
        call = self._call
        if call is None or call.ended or call.complete or not (call.called or now_ms >= _due_ms(call, limits, aboard)):
            return RollCallChange(ended=ended)
        missing = _missing(call, aboard)
        result = None
        if not call.called or not missing:
            state: RollCallState = "COMPLETE" if call.called else "CALLED"
            result = self._result(call, state, now_ms, aboard)
            call.called, call.complete = True, not missing
        return RollCallChange(result, self._opened(call, missing, aboard), ended)

    def _ended(self, aboard: BoxesAboard) -> tuple[tuple[str, str], ...]:
        """End the alerts of the boxes that were heard, have left, or are overboard."""
        ended = []
        for number, since_ms in tuple(self.unheard.items()):
            why = ""
            if number == ALL:
                why = "" if self._call is not None and _is_most(self._call, aboard) else "heard"
            elif number in self._found:
                why = "heard"
            elif number in aboard.overboard:
                why = "overboard"
            elif number not in aboard.listed:
                why = "left"
            if why:
                self.end_alert(number, since_ms)
                ended.append((number, why))
        return tuple(ended)

    def _opened(self, call: _Call, missing: frozenset[str], aboard: BoxesAboard) -> tuple[str, ...]:
        """Open the alerts: one for each missing box, or one for most boxes at once."""
        if ALL in self.unheard or ALL in aboard.silent:
            return ()
        if _is_most(call, aboard) and ALL not in call.over:
            opened = [ALL]
        else:
            opened = sorted(missing - self.unheard.keys() - call.over - aboard.silent)
        self.unheard |= dict.fromkeys(opened, call.departure.at_ms)
        return tuple(opened)

    def _result(self, call: _Call, state: RollCallState, now_ms: int, aboard: BoxesAboard) -> RollCallResult:
        missing = _missing(call, aboard)
        overboard = aboard.listed & aboard.overboard
        heard = aboard.listed - overboard - missing
        complete_ms = None
        if not missing:
            times = (min(now_ms, call.heard[number]) for number in heard)
            complete_ms = max(times, default=call.departure.at_ms)
        unlisted = call.heard.keys() - aboard.listed - aboard.overboard
        return RollCallResult(
            call.departure,
            state,
            now_ms,
            len(aboard.listed),
            len(heard),
            len(overboard),
            missing,
            frozenset(unlisted),
            complete_ms,
        )


def _missing(call: _Call, aboard: BoxesAboard) -> frozenset[str]:
    return frozenset(aboard.listed - aboard.overboard - call.heard.keys())


def _is_most(call: _Call, aboard: BoxesAboard) -> bool:
    """Return whether so many boxes are missing that the gateway is suspected, not the boxes."""
    expected = len(aboard.listed - aboard.overboard)
    return expected >= _FEW and len(_missing(call, aboard)) >= aboard.gateway * expected


def _due_ms(call: _Call, limits: RollCallThresholds, aboard: BoxesAboard) -> int:
    wait = int(limits.intervals * aboard.usual_ms) if aboard.usual_ms else limits.at_most
    return call.departure.at_ms + min(limits.at_most, max(limits.at_least, wait))
