"""A fleet with as many customers, owners of boxes and containers as wanted, at six sites like Big Blue's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from topologies.model import Customer, InsertPoint, Link, Permissions, Shore, Site, SiteKind, Stream, Topology, User

PORTS: Final = ("tokyo", "singapore", "sydney")
SHIPS: Final = {"duck-star": "9074729", "blue-marlin": "9321483"}
HQ: Final = "los-angeles"
CONTAINERS: Final = "containers"
_SHARED: Final = ("custody", "alerts", "events", "ships", "bookings", "strays")


def world(customers: int, owners: int) -> Topology:
    """So many customers, each with a feed at one of the ports or at headquarters; the first of them own boxes, which
    are in streams of their own that they may read everywhere ashore."""
    ashore = (HQ, *PORTS)
    sites = {HQ: Site(kind=SiteKind.HQ)}
    sites |= {port: Site(kind=SiteKind.PORT) for port in PORTS}
    sites |= {ship: Site(kind=SiteKind.SHIP, imo=imo) for ship, imo in SHIPS.items()}
    names = [f"customer-{number:04}" for number in range(customers)]
    people = {
        name: Customer(
            feed_at=ashore[number % len(ashore)],
            reads_at=ashore if number < owners else (),
            groups=("owners",) if number < owners else (),
        )
        for number, name in enumerate(names)
    }
    moving: dict[str, Stream] = {CONTAINERS: _stream("g:analysts")}
    moving |= {stream_of(number): _stream(f"u:{names[number]} | g:analysts") for number in range(owners)}
    shared = {
        name: Stream(
            insert_point=InsertPoint.SHIP if name == "ships" else InsertPoint.SITE,
            permissions=Permissions(consume="g:analysts"),
        )
        for name in _SHARED
    }
    feeds = {"feeds": Stream(insert_point=InsertPoint.SHORE)}
    both = {name: "all" for name in (*shared, *moving)}
    aboard = {name: "aboard" for name in moving}
    links = [
        *(_link(HQ, port, {**both, "feeds": "all"}) for port in PORTS),
        *(_link(one, two, both) for one, two in (PORTS[:2], PORTS[1:], (PORTS[0], PORTS[2]))),
        *(_link(ship, HQ, dict.fromkeys(_SHARED[:4], "all")) for ship in SHIPS),
        *(_link(ship, port, both, when="berthed", one_way=True) for ship in SHIPS for port in PORTS),
        *(_link(port, ship, aboard, when="berthed", one_way=True) for ship in SHIPS for port in PORTS),
    ]
    return Topology(
        name="access-benchmark",
        sites=sites,
        streams={**moving, **shared, **feeds},
        links=tuple(links),
        customers=people,
        users={f"analyst-{number}": User(at=ashore, groups=("analysts",)) for number in range(5)},
        shore=Shore(at=HQ),
    )


def stream_of(owner: int) -> str:
    """The stream of an owner's boxes."""
    return f"owner-{owner:03}"


def _stream(consume: str) -> Stream:
    return Stream(insert_point=InsertPoint.MOVES, permissions=Permissions(consume=consume))


def _link(source: str, target: str, streams: Mapping[str, Any], *, when: str = "always", one_way: bool = False) -> Link:
    return Link.model_validate(
        {"from": source, "to": target, "streams": dict(streams), "when": when, "both": not one_way}
    )
