"""Which devices each site's MQTT broker is to know, and telling those on this machine."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from acl.devices import has_way_in, sites_of_device
from fairlead.errors import ConfigurationError
from fairlead.local.devicefiles import give_devices, without_user
from fairlead.local.devices import Device, DeviceBook
from fairlead.local.lock import locked
from fairlead.local.mosquitto import DEVICE
from topologies.model import Topology


def device_book(folder: Path) -> DeviceBook:
    """The devices of a topology, by its state folder."""
    return DeviceBook(folder / "devices.json")


def by_site(topology: Topology, devices: Iterable[Device]) -> dict[str, list[Device]]:
    """The devices that each site with a way in is to know; none where a box's or ship's is gone from the topology."""
    found: dict[str, list[Device]] = {site: [] for site in topology.sites if has_way_in(topology, site)}
    for device in devices:
        try:
            sites = sites_of_device(topology, device.name)
        except ConfigurationError:
            continue
        for site in sites:
            found[site].append(device)
    return found


def local_sites(topology: Topology) -> list[str]:
    """The sites whose MQTT broker is started on this machine."""
    return [name for name in topology.sites if has_way_in(topology, name) and _is_local(topology, name)]


def outside_sites(topology: Topology) -> list[str]:
    """The other sites with a way in: their operators get files."""
    return [name for name in topology.sites if has_way_in(topology, name) and not _is_local(topology, name)]


def push(topology: Topology, folder: Path, sites: Collection[str] | None = None) -> dict[str, bool]:
    """Tell local sites of their devices; those that run take them at once, without a restart (then True).

    Call it inside ``locked``, where the book was changed.
    """
    wanted = [site for site in local_sites(topology) if sites is None or site in sites]
    known = by_site(topology, device_book(folder).read().values())
    return {site: give_devices(folder, site, known[site]) for site in wanted}


def place_devices(topology: Topology, folder: Path, sites: Collection[str]) -> None:
    """Before sites are started: their devices, and no gateway where the topology has none (any more)."""
    with locked(folder):
        for site in sites:
            if not topology.sites[site].mqtt_gateway:
                without_user(folder, site, DEVICE)
        if device_book(folder).read():
            push(topology, folder, sites)


def _is_local(topology: Topology, site: str) -> bool:
    return topology.sites[site].is_local and topology.sites[site].mqtt is None
