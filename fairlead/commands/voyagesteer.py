"""``fairlead voyage pause`` and ``resume``: a voyage that another process sails."""

from __future__ import annotations

from pathlib import Path

import msgspec
from rich.markup import escape

from fairlead.commands.context import open_topology
from fairlead.console import console, emit
from fairlead.errors import ConfigurationError, UnavailableError
from fairlead.home import home

VERBS = ("pause", "resume")
_PATIENCE = 60.0  # seconds for what was published to be acknowledged, and for a barrier that it waits at


def steer_voyage(verb: str, topology: str | None, *, as_json: bool) -> None:
    """Pause the voyage that is under way, or let it go on.

    Raises:
        UnavailableError: there is none. ConfigurationError: there are several, and none was named.
    """
    from simulators.helm import steer

    folder = open_topology(topology).folder if topology else _only_one()
    state = steer(folder, paused=verb == "pause", patience=_PATIENCE)
    when = f" at {state.sim_time:%d %b %Y %H:%M:%S} UTC" if state.sim_time else ""
    how = "paused" if state.paused else "goes on"
    emit(
        msgspec.to_builtins(state),
        as_json=as_json,
        render=lambda: console.print(
            escape(f"{state.scenario} {how}{when}: {state.published:,} published, {state.acknowledged:,} acknowledged")
        ),
    )


def _only_one() -> Path:
    """The state folder of the one voyage of this machine."""
    from simulators.helm import underway

    found = [file.parent.parent for file in sorted(home().glob("*/run/voyage.pid")) if underway(file.parent.parent)]
    if not found:
        raise UnavailableError("no voyage is under way", hint="fairlead voyage sails one")
    if len(found) > 1:
        names = ", ".join(folder.name for folder in found)
        raise ConfigurationError(
            f"voyages are under way on several topologies: {names}",
            hint=f"name one: fairlead voyage pause {found[0].name}",
        )
    return found[0]
