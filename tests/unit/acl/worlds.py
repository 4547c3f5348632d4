"""Small topologies with everything that could be confused: streams and users whose names begin alike, replicas, links
with patterns, all insert points. And a catalogue of topics to ask about, near misses included."""

from __future__ import annotations

import fnmatch

from hypothesis import strategies as st

from topologies.model import (
    Customer,
    InsertPoint,
    KafkaAddress,
    Link,
    Permissions,
    Shore,
    Site,
    SiteKind,
    Stream,
    Topology,
    User,
)

IMO = {"star": "9074729", "marlin": "9321483"}
SITES = {
    "hq": Site(kind=SiteKind.HQ),
    "port": Site(kind=SiteKind.PORT),
    "port-b": Site(kind=SiteKind.PORT),
    "star": Site(kind=SiteKind.SHIP, imo=IMO["star"]),
    "marlin": Site(kind=SiteKind.SHIP, imo=IMO["marlin"]),
    "shop": Site(kind=SiteKind.CUSTOMER),
}
STREAMS = {
    "red": InsertPoint.MOVES,
    "reds": InsertPoint.MOVES,
    "re": InsertPoint.SITE,
    "red-log": InsertPoint.SITE,
    "shared": InsertPoint.SHORE,
    "ships": InsertPoint.SHIP,
    "events": InsertPoint.SITE,
    "custody": InsertPoint.SITE,
    "bookings": InsertPoint.SITE,
    "alerts": InsertPoint.SITE,
    "feeds": InsertPoint.SHORE,
}
PEOPLE = {
    "duck": ((), ()),
    "ducks": (("staff",), ()),
    "duck-s": (("staff", "guests"), ("audit",)),
}
EXPRESSIONS = (
    "",
    "p",
    "u:duck",
    "u:ducks",
    "g:staff",
    "r:audit",
    "!u:duck",
    "g:staff & !g:guests",
    "u:duck | r:audit",
    "!(u:duck | u:ducks)",
)

KEYS = (
    "A",
    "duck",
    "ducks",
    "duck-s",
    "hq",
    "port",
    "port-b",
    "star",
    "shop",
    "port.cpu",
    "portx",
    "9074729.location",
    "shore",
)
TOPICS = (
    *(f"{stream}.{key}" for stream in (*STREAMS, "r", "redsx") for key in KEYS),
    *("red", "reds", ".red", "__consumer_offsets"),
)

KEY_PATTERNS = ("A", "du*", "duck", "ducks*", "port*", "port.*", "port.cpu", "sta*", "9074729.*", "s*")

permissions = st.builds(
    Permissions,
    **{name: st.sampled_from(EXPRESSIONS) for name in ("admin", "produce", "consume", "topic")},
    copy=st.sampled_from(("", "", "", "u:duck", "g:staff")),
)
keys = st.dictionaries(st.sampled_from(KEY_PATTERNS), permissions, max_size=2)
selections = st.one_of(
    st.sampled_from(("all", "aboard")),
    st.lists(
        st.sampled_from(("duck", "ducks", "duck*", "*", "port", "port*", "[dp]uck", "9074729.*")),
        min_size=1,
        max_size=2,
    ).map(tuple),
)
site_names = st.sampled_from(tuple(SITES))


@st.composite
def links(draw: st.DrawFn) -> Link:
    source = draw(site_names)
    target = draw(site_names.filter(lambda site: site != source))
    streams = draw(st.dictionaries(st.sampled_from(tuple(STREAMS)), selections, min_size=1, max_size=5))
    return Link(
        from_=source,
        to=target,
        streams=streams,
        both=draw(st.booleans()),
        when=draw(st.sampled_from(("always", "berthed"))),
    )


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """A whole small world."""
    customers, users = {}, {}
    for name, (groups, roles) in PEOPLE.items():
        at = tuple(draw(st.sets(site_names, max_size=3)))
        if draw(st.booleans()):
            feed_at = draw(st.none() | site_names)
            customers[name] = Customer(feed_at=feed_at, reads_at=at, groups=groups, roles=roles)
        else:
            users[name] = User(at=at, groups=groups, roles=roles)
    chosen = draw(st.sets(st.sampled_from(tuple(STREAMS)), min_size=3))
    streams = {
        name: Stream(insert_point=STREAMS[name], permissions=draw(permissions), keys=draw(keys))
        for name in STREAMS
        if name in chosen
    }
    made = draw(st.lists(links(), max_size=5))
    kept = []
    for link in made:
        carried = {name: selection for name, selection in link.streams.items() if name in streams}
        if carried:
            kept.append(link.model_copy(update={"streams": carried}))
    shore = draw(st.none() | st.sampled_from((Shore(at="hq"), Shore(at="port"), Shore(at="hq", standby=("port",)))))
    return Topology(
        name="world", sites=SITES, streams=streams, links=tuple(kept), customers=customers, users=users, shore=shore
    )


def arrives(topology: Topology, stream: str, site: str) -> bool:
    """Whether a link brings logs of a stream to a site."""
    return any(stream in link.streams for link in topology.links_to(site))


def can_be_here(topology: Topology, stream: str, site: str) -> bool:
    """Whether logs of a stream can be at a site, straight from the words of the design."""
    kind = SITES[site].kind
    held = {
        InsertPoint.MOVES: kind in (SiteKind.PORT, SiteKind.HQ),
        InsertPoint.SHIP: kind is SiteKind.SHIP,
        InsertPoint.SHORE: topology.shore is not None and site in (topology.shore.at, *topology.shore.standby),
        InsertPoint.SITE: kind is not SiteKind.CUSTOMER and not (stream == "bookings" and kind is SiteKind.SHIP),
    }[topology.streams[stream].insert_point]
    return held or arrives(topology, stream, site)


def feed_readable(topology: Topology, user: str, site: str) -> bool:
    """Whether a customer may read its feed at a site, straight from the words of the design."""
    customer = topology.customers.get(user)
    if customer is None or customer.feed_at is None or "feeds" not in topology.streams:
        return False
    if site == customer.feed_at:
        return True
    brought = any(
        "feeds" in link.streams
        and (isinstance(s := link.streams["feeds"], str) or any(fnmatch.fnmatchcase(user, pattern) for pattern in s))
        for link in topology.links_to(site)
    )
    shore = topology.shore
    return site in customer.reads_at and (brought or (shore is not None and site in (shore.at, *shore.standby)))


def outside(topology: Topology, site: str) -> Topology:
    """The same topology with a site whose cluster is somebody else's."""
    spec = topology.sites[site].model_copy(update={"kafka": KafkaAddress(bootstrap="kafka.example:9093")})
    return topology.model_copy(update={"sites": {**topology.sites, site: spec}})
