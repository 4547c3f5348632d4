"""A local site's Mosquitto learns of its devices: hashes in its password file, rules in its access file.

A running broker takes both at SIGHUP, without a restart, and ends the connections of whoever is no longer known or has
another password now; others stay connected.
"""

from __future__ import annotations

import signal
from collections.abc import Collection
from pathlib import Path

from fairlead.local import mosquitto, processes
from fairlead.local.devices import Device
from fairlead.local.layout import LocalSite
from fairlead.local.state import read_state, write_state


def give_devices(folder: Path, site: str, devices: Collection[Device]) -> bool:
    """Make these the devices of a local site, all of them; whether its Mosquitto runs and was told.

    A site that was never started has them when it is. Call it inside ``locked``.
    """
    local = LocalSite(folder, site)
    mosquitto.write_devices(local.mosquitto_folder, "".join(device.line for device in devices))
    return _reload(local)


def without_user(folder: Path, site: str, user: str) -> None:
    """A local site's Mosquitto knows this user no more, and ends its connections. Call it inside ``locked``."""
    file = folder / "state.json"
    state = read_state(file)
    known = state.sites.get(site)
    if known is None or user not in known.mqtt_users:
        return
    users = tuple(name for name in known.mqtt_users if name != user)
    local = LocalSite(folder, site)
    mosquitto.remove_user(local.mosquitto_folder, user)
    state.sites[site] = known.model_copy(update={"mqtt_users": users})
    write_state(file, state)
    _reload(local)


def _reload(local: LocalSite) -> bool:
    pid_file = local.pid_file("mqtt")
    if processes.find(pid_file) is None:
        return False
    processes.send(pid_file, signal.SIGHUP)
    return True
