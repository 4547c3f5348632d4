"""At which sites a device may log in: wherever the topology lets what it speaks for be. Pure."""

from __future__ import annotations

from acl.extent import can_hold_containers
from fairlead.errors import ConfigurationError, UnknownNameError
from fairlead.local.devices import DeviceKind, device_kind
from topologies.model import SiteKind, Topology


def sites_of_device(topology: Topology, name: str) -> tuple[str, ...]:
    """The sites whose MQTT broker is to know a device.

    A box may come to every site that can have custody of its stream's boxes; a ship's instruments stay on that ship;
    a terminal (``terminal-tokyo``, ``terminal-tokyo-gate-2``) belongs to the site that its name says.

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
        case DeviceKind.TERMINAL:
            own = name.removeprefix("terminal-")
            able = [site for site in topology.sites if has_way_in(topology, site)]
            found = [site for site in able if own == site or own.startswith(f"{site}-")]
            if not found:
                raise UnknownNameError("site with a way in whose terminal this is", own, able)
            return (max(found, key=len),)
        case None:
            raise ConfigurationError(f"{name!r} cannot be a device's name", hint="fairlead devices enrol --help")


def has_way_in(topology: Topology, site: str) -> bool:
    """Whether a site has an MQTT broker with devices at all."""
    return topology.sites[site].kind is not SiteKind.CUSTOMER
