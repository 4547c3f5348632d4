"""Which devices may log in at each site's MQTT broker, and passing their passwords to the brokers on this machine."""

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
    """The sites whose MQTT broker is to know a device.

    A box may come to every site that can have custody of its stream's boxes; a ship's instruments stay on that ship;
    a terminal (``terminal-tokyo``, ``terminal-tokyo-gate-2``) and an office (``office-tokyo``) belong to the site that
    their name says. Offices are ashore.

    Raises:
        ConfigurationError: no device has such a name, or it speaks for a box or ship that the topology does not have.
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
            able = [site for site in topology.sites if has_way_in(topology, site)]
            if kind is DeviceKind.OFFICE:
                able = [site for site in able if topology.sites[site].kind is not SiteKind.SHIP]
            found = [site for site in able if own == site or own.startswith(f"{site}-")]
            if not found:
                raise UnknownNameError(f"site with a way in whose {kind} this is", own, able)
            return (max(found, key=len),)
        case None:
            raise ConfigurationError(f"{name!r} cannot be a device's name", hint="fairlead devices enrol --help")


def has_way_in(topology: Topology, site: str) -> bool:
    """Whether a site has an MQTT broker with devices at all."""
    return topology.sites[site].kind is not SiteKind.CUSTOMER


def device_book(folder: Path) -> DeviceBook:
    """The devices of a topology, by its state folder."""
    return DeviceBook(folder / "devices.json")


def by_site(topology: Topology, devices: Iterable[MqttDevice]) -> dict[str, list[MqttDevice]]:
    """The devices that each site with a way in is to know; none where a box's or ship's is gone from the topology."""
    found: dict[str, list[MqttDevice]] = {site: [] for site in topology.sites if has_way_in(topology, site)}
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
