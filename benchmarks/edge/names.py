"""The site of the edge benchmark. The measured processes read it too."""

from __future__ import annotations

from typing import Final

from topologies.model import DEFAULT_STREAMS, InsertPoint, Site, SiteKind, Stream, Topology

SITE: Final = "harbour"
CODE: Final = "JPTYO"
USER: Final = "admin"
BRIDGE_CLIENT: Final = f"fairlead-bridge-{SITE}"
PLAIN_CLIENT: Final = "plain-bridge"


def topology() -> Topology:
    """A port whose containers are all ``BIGU``."""
    return Topology(
        name="bench",
        sites={SITE: Site(kind=SiteKind.PORT, unlocode=CODE)},
        streams={**DEFAULT_STREAMS, "containers": Stream(insert_point=InsertPoint.MOVES, owners=("BIGU",))},
    )


def log_of(number: str) -> str:
    """The log of a container."""
    return f"containers.{number}"
