"""Decide which devices may log in at each site's MQTT broker, and give their passwords to local brokers."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from acl.compile import can_hold_containers
from fairlead.errors import ConfigurationError, UnknownNameError
from fairlead.local.devices import DeviceBook, DeviceKind, MqttDevice, device_kind
from fairlead.local.mosquitto import DEVICE, give_devices, without_user
from fairlead.local.state import locked
from topologies.model import SiteKind, Topology


def sites_of_device(topology: Topology, name: str) -> tuple[str, ...]:
    """Return the sites whose MQTT broker must know a device.

    A box may come to every site that can have custody of its stream's boxes. A ship's instruments stay on that ship. A
    terminal (``terminal-tokyo``, ``terminal-tokyo-gate-2``) and an office (``office-tokyo``) belong to the site in
    their name. Offices are ashore.

    Raises:
        ConfigurationError: this is not a device's name, or the topology does not have its box or ship.
    """
    match device_kind(name):
        case DeviceKind.CONTAINER:
            stream = topology.stream_of_container(name)
            return tuple(site for site in topology.sites if can_hold_containers(topology, stream, site))
        case DeviceKind.SHIP:
            ship = topology.ship_with(name)
            if ship is None:
                ships = [site.imo for site in topology.sites.values() if site.imo is not None]
                raise UnknownNameError("ship with the IMO number", name, ships)
            return (ship,)
        case (DeviceKind.TERMINAL | DeviceKind.OFFICE) as kind:
            own = name.removeprefix(f"{kind}-")
            able = [site for site in topology.sites if has_devices(topology, site)]
            if kind is DeviceKind.OFFICE:
                able = [site for site in able if topology.sites[site].kind is not SiteKind.SHIP]
            found = [site for site in able if own == site or own.startswith(f"{site}-")]
            if not found:
                raise UnknownNameError(f"site of this {kind}, named", own, able)
            return (max(found, key=len),)
        case None:
            raise ConfigurationError(f"{name!r} cannot be a device's name", hint="fairlead devices enrol --help")


def has_devices(topology: Topology, site: str) -> bool:
    """Return whether a site has an MQTT broker for devices."""
    return topology.sites[site].kind is not SiteKind.CUSTOMER


def device_book(folder: Path) -> DeviceBook:
    """Return the devices of a topology, stored in its state folder."""
    return DeviceBook(folder / "devices.json")


def by_site(topology: Topology, devices: Iterable[MqttDevice]) -> dict[str, list[MqttDevice]]:
    """Return the devices that each site must know, without those whose box or ship is no longer in the topology."""
    found: dict[str, list[MqttDevice]] = {site: [] for site in topology.sites if has_devices(topology, site)}
    for device in devices:
        try:
            sites = sites_of_device(topology, device.name)
        except ConfigurationError:
            continue
        for site in sites:
            found[site].append(device)
    return found


def local_sites(topology: Topology) -> list[str]:
    """Return the sites whose MQTT broker runs on this machine."""
    return [name for name in topology.sites if has_devices(topology, name) and _is_local(topology, name)]


def outside_sites(topology: Topology) -> list[str]:
    """Return the other sites with an MQTT broker for devices; their operators get files."""
    return [name for name in topology.sites if has_devices(topology, name) and not _is_local(topology, name)]


def push(topology: Topology, folder: Path, sites: Collection[str] | None = None) -> dict[str, bool]:
    """Give local sites their devices. Return True for sites that run: they accept the devices without a restart.

    Hold the lock ``locked`` while calling this, the same one as for the change of the book.
    """
    wanted = [site for site in local_sites(topology) if sites is None or site in sites]
    known = by_site(topology, device_book(folder).read().values())
    return {site: give_devices(folder, site, known[site]) for site in wanted}


def place_devices(topology: Topology, folder: Path, sites: Collection[str]) -> None:
    """Prepare sites before they start: their devices, and no gateway login where the topology has no gateway."""
    with locked(folder):
        for site in sites:
            if not topology.sites[site].mqtt_gateway:
                without_user(folder, site, DEVICE)
        if device_book(folder).read():
            push(topology, folder, sites)


def _is_local(topology: Topology, site: str) -> bool:
    return topology.sites[site].is_local and topology.sites[site].mqtt is None
