"""The profiles of a site's Mosquitto: how much it may forget. Pure."""

from __future__ import annotations

from enum import StrEnum


class Profile(StrEnum):
    """What a site's Mosquitto may forget when it is killed, and what that costs; docs/edge.md has the figures.

    An acknowledgement of Mosquitto 2.0 survives a crash only after the next save of its whole state. ``DURABLE`` saves
    every other second, and devices keep what was acknowledged for longer than that, so that nothing is lost. ``FAST``
    saves every 5 s and devices forget at once: the last seconds are lost.

    Mosquitto's ``autosave_on_changes`` is neither: the acknowledgement comes before the save, a message that is on its
    way to a connected bridge counts as no change, and every change writes the whole state.
    """

    DURABLE = "durable"
    FAST = "fast"

    @property
    def autosave(self) -> int:
        """Mosquitto's ``autosave_interval``; it saves when more seconds than that have passed, so one later."""
        return 1 if self is Profile.DURABLE else 5

    @property
    def keep_seconds(self) -> float:
        """How long devices keep what was acknowledged: two saves, as the second may be cut off, with room for slow
        ones: 100,000 queued messages took about 1 s, so a million takes some 10 s."""
        return 30.0 if self is Profile.DURABLE else 0.0
