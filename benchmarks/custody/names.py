"""The two sites of the custody benchmark, and what is said at them. The measured processes read it too."""

from __future__ import annotations

from typing import Final

from topologies.model import Topology

PORT: Final = "harbour"
SHIP: Final = "vessel"
USER: Final = "admin"
IMO: Final = "9074729"
CODE: Final = "JPTYO"
_EVERYWHERE: Final = ("custody", "alerts", "events", "ships", "strays", "deadletters")


def topology() -> Topology:
    """A port and a ship that lies there: everything to the port, on board only what is aboard."""
    ashore = {**dict.fromkeys(_EVERYWHERE, "all"), "containers": "all"}
    on_board = {**dict.fromkeys(_EVERYWHERE, "all"), "containers": "aboard"}
    return Topology.model_validate(
        {
            "name": "bench",
            "sites": {PORT: {"kind": "port", "unlocode": CODE}, SHIP: {"kind": "ship", "imo": IMO}},
            "streams": {
                "ships": {"insert_point": "ship"},
                "events": {},
                "alerts": {"priority": "urgent"},
                "custody": {"priority": "control"},
                "strays": {"priority": "bulk"},
                "deadletters": {"priority": "bulk"},
                "bookings": {},
                "containers": {"insert_point": "moves", "owners": ["BIGU"]},
            },
            "links": [
                {"from": SHIP, "to": PORT, "streams": ashore},
                {"from": PORT, "to": SHIP, "streams": on_board},
            ],
        }
    )
