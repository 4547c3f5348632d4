"""Check the references between the parts of a topology: known names, one holder per log, a path for every stream.

The functions work on data as read (dicts and lists) and skip values of the wrong type, so that the loader can report
these mistakes together with those of types and formats. Pure functions.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from fairlead.errors import nearest
from fairlead.kafka.endpoint import SaslMechanism
from fairlead.local.passwords import MQTT_BRIDGE, next_variable, secret_variable
from fairlead.names import SITE_NAME
from fairlead.records.alert import KINDS
from topologies.expression import ExpressionError, Kind, names, parse
from topologies.loader.mistakes import CheckFinding, KeyPath, quote
from topologies.model import ENDS, KEY_PATTERN, PERMISSIONS, SHORE_ALERTS, InsertPoint, SiteKind
from topologies.users import (
    ADMIN,
    CONTROLLER,
    NOTIFY,
    OIDC_SECRET,
    RESERVED_NAMES,
    SESSION,
    SPARK,
    is_reserved,
    route_secret,
    upstream_user,
)
from topologies.values import LOOPBACK, parse_bootstrap

_MQTT_TLS_PORT = 8883  # as registered with IANA: secure-mqtt
_ALERTS = "alerts"
_FEEDS = "feeds"  # the stream of customers' feeds
_GROUPS = re.compile(r"[^*?[]+\*?")  # as in Kafka ACLs: a name, or a prefix
_STAYING = [point for point in InsertPoint if point is not InsertPoint.MOVES]
_AT_PLACES = (SiteKind.PORT, SiteKind.HQ)


def check(data: Mapping[str, Any]) -> Iterator[CheckFinding]:
    """Yield every mistake between the parts. ``data`` must have the default streams already."""
    sites = part(data, "sites")
    streams = part(data, "streams")
    yield from _sites(data, sites, streams)
    yield from _streams(streams)
    yield from check_permissions(data, streams)
    yield from _board(part(data, "board"), sites, {**part(data, "customers"), **part(data, "users")})
    yield from _links(data, sites, streams)
    yield from _people(data, sites, streams)
    yield from _notify(data, sites, streams)
    yield from _secrets(data, sites)
    yield from unfed_links(data)


def _known(
    path: KeyPath, name: Any, kind: str, valid: Mapping[str, Any], *, at_key: bool = False
) -> Iterator[CheckFinding]:
    if isinstance(name, str) and name not in valid:
        expected = ", ".join(valid) or f"a {kind}, but the topology has none"
        yield CheckFinding(path, f"there is no {kind} {quote(name)}", expected, nearest(name, valid), at_key)


def _sites(data: Mapping[str, Any], sites: dict[str, Any], streams: dict[str, Any]) -> Iterator[CheckFinding]:
    if isinstance(data.get("sites"), dict) and not sites:
        yield CheckFinding(("sites",), "a topology without sites", "at least one site", at_key=True)
    seen: dict[tuple[str, str, str], str] = {}
    for name, site in sites.items():
        kind = text(site, "kind")
        path: KeyPath = ("sites", name)
        if name == "shore" and data.get("shore"):
            problem = f"a site named shore, whose alerts would be in shore's log {SHORE_ALERTS}"
            yield CheckFinding(path, problem, "another name", at_key=True)
        if kind == SiteKind.SHIP and "imo" not in site:
            yield CheckFinding(path, "a ship without its IMO number", 'imo: "9074729"', at_key=True)
        if kind == SiteKind.PORT and "unlocode" not in site:
            yield CheckFinding(path, "a port without its UN/LOCODE", "unlocode: JPTYO", at_key=True)
        if kind != SiteKind.SHIP and kind in list(SiteKind) and text(site, "imo"):
            yield CheckFinding((*path, "imo"), f"an IMO number on a {kind}", "only ships have one", at_key=True)
        if kind in list(SiteKind) and kind not in _AT_PLACES and "position" in site:
            problem = f"a position on a {kind}"
            yield CheckFinding((*path, "position"), problem, "only ports and headquarters have one", at_key=True)
        for key in ("imo", "unlocode"):
            value = text(site, key)
            if value is None or kind is None or (key == "unlocode" and kind not in _AT_PLACES):
                continue
            other = seen.setdefault((kind, key, value), name)
            if other != name:
                yield CheckFinding((*path, key), f"{other} has the same {key} {quote(value)}", f"one {kind} each")
        yield from _kafka((*path, "kafka"), part(site, "kafka"))
        yield from _mqtt((*path, "mqtt"), part(site, "mqtt"))
        yield from _shared(path, name, site, seen)
        for stream in part(site, "retention"):
            yield from _known((*path, "retention", stream), stream, "stream", {"default": None, **streams}, at_key=True)


def _kafka(path: KeyPath, address: Mapping[str, Any]) -> Iterator[CheckFinding]:
    """Yield settings of a login that do not belong together, and secrets that would travel in clear text."""
    security, mechanism = address.get("security", "SASL_SSL"), address.get("sasl_mechanism")
    certified, issued = security == "SSL", mechanism == SaslMechanism.OAUTHBEARER
    if certified and mechanism is not None:
        problem = "a SASL mechanism where the certificate is the login"
        yield CheckFinding((*path, "sasl_mechanism"), problem, "security: SASL_SSL, or no sasl_mechanism", at_key=True)
    if certified != ("certificates" in address):
        problem = "security: SSL without certificates" if certified else "certificates without security: SSL"
        where = path if certified else (*path, "certificates")
        yield CheckFinding(where, problem, "security: SSL, certificates: FOLDER", at_key=True)
    if issued != ("oauth" in address):
        problem = "OAUTHBEARER without oauth" if issued else "oauth without OAUTHBEARER"
        where = path if issued else (*path, "oauth")
        yield CheckFinding(where, problem, "sasl_mechanism: OAUTHBEARER, oauth: {endpoint: https://...}", at_key=True)
    bootstrap = str(address.get("bootstrap", ""))
    here = all(each.strip().rpartition(":")[0].strip("[]") in LOOPBACK for each in bootstrap.split(","))
    scram = (None, SaslMechanism.SCRAM_SHA_256, SaslMechanism.SCRAM_SHA_512)
    if security == "SASL_PLAINTEXT" and mechanism not in scram and not here:
        problem = f"{quote(mechanism)} sends a secret that anybody on the way can read"
        yield CheckFinding((*path, "security"), problem, "security: SASL_SSL")


def _shared(path: KeyPath, name: str, site: Any, seen: dict[tuple[str, str, str], str]) -> Iterator[CheckFinding]:
    """Yield brokers that an earlier site has, too: each site would take the other's rules away, and append its logs.

    Clusters of a cloud may share an address. They are told apart by the names or tokens with which users log in.
    """
    kafka, mqtt = part(site, "kafka"), part(site, "mqtt")
    try:
        addresses = [f"{host}:{port}".lower() for host, port in parse_bootstrap(text(kafka, "bootstrap") or "")]
    except ValueError:
        addresses = []  # a mistake of its own
    login = str(sorted({**part(kafka, "logins"), **part(part(kafka, "oauth"), "extensions")}.items(), key=str))
    others = [(each, other) for each in addresses if (other := seen.setdefault(("kafka", each, login), name)) != name]
    for address, other in others[:1]:
        problem = f"{other} has the same broker {quote(address)}"
        yield CheckFinding((*path, "kafka", "bootstrap"), problem, "each site its own cluster")
    if (host := text(mqtt, "host")) is not None:
        address = f"{host}:{mqtt.get('port')}".lower()
        other = seen.setdefault(("mqtt", address, ""), name)
        if other != name:
            problem = f"{other} has the same MQTT broker {quote(address)}"
            yield CheckFinding((*path, "mqtt", "host"), problem, "each site its own")


def _mqtt(path: KeyPath, address: Mapping[str, Any]) -> Iterator[CheckFinding]:
    if address.get("security") != "PLAINTEXT":
        return
    if str(address.get("port")) == str(_MQTT_TLS_PORT):
        problem = f"clear text at port {_MQTT_TLS_PORT}, which is MQTT's port for TLS"
        yield CheckFinding((*path, "security"), problem, "security: TLS, or the port of a listener without TLS")
    if address.get("ca") is not None:
        yield CheckFinding((*path, "ca"), "authorities for a connection in clear text", "security: TLS, or no ca")


def _streams(streams: dict[str, Any]) -> Iterator[CheckFinding]:
    seen: dict[str, str] = {}
    for name, stream in streams.items():
        path: KeyPath = ("streams", name)
        if name == "default":
            yield CheckFinding(path, "'default' means every stream in a site's retention", "another name", at_key=True)
        if name == "fairlead":
            yield CheckFinding(path, "topics that begin with fairlead. are Fairlead's own", "another name", at_key=True)
        moves = text(stream, "insert_point") == InsertPoint.MOVES
        owners = items(stream, "owners")
        if moves and not owners:
            yield CheckFinding(
                path, "a stream that moves with its boxes, without owners", "owners: [BIGU]", at_key=True
            )
        if owners and not moves and text(stream, "insert_point") in (None, *InsertPoint):
            expected = "insert_point: moves, or no owners"
            yield CheckFinding(
                (*path, "owners"), "owners of a stream that does not move with boxes", expected, at_key=True
            )
        for index, owner in enumerate(owners):
            if not isinstance(owner, str):
                continue
            other = seen.setdefault(owner, name)
            if other != name:
                where = (*path, "owners", index)
                yield CheckFinding(where, f"{owner} is an owner in stream {other} already", "each owner in one stream")


def _links(data: Mapping[str, Any], sites: dict[str, Any], streams: dict[str, Any]) -> Iterator[CheckFinding]:
    seen: dict[tuple[str, str, str], int] = {}
    for index, link in enumerate(items(data, "links")):
        path: KeyPath = ("links", index)
        source, target = text(link, "from"), text(link, "to")
        yield from _known((*path, "from"), source, "site", sites)
        yield from _known((*path, "to"), target, "site", sites)
        if isinstance(link, dict) and isinstance(link.get("streams"), dict) and not link["streams"]:
            yield CheckFinding((*path, "streams"), "a link without streams", "at least one stream", at_key=True)
        for stream, selection in part(link, "streams").items():
            yield from _selection(data, streams, (*path, "streams", stream), stream, selection)
        for number, pattern in enumerate(items(link, "groups")):
            if isinstance(pattern, str) and not _GROUPS.fullmatch(pattern):
                problem = f"Kafka's ACLs cannot express the groups {quote(pattern)}"
                expected = "a group's name, or the beginning of names with one * at the end (billing-*)"
                yield CheckFinding((*path, "groups", number), problem, expected)
        for stream in part(link, "priority"):
            taken = dict.fromkeys(part(link, "streams"))
            yield from _known((*path, "priority", stream), stream, "stream on this link", taken, at_key=True)
        if source is None or target is None:
            continue
        if source == target:
            yield CheckFinding((*path, "to"), f"a link from {source} to itself", "two sites")
            continue
        when = text(link, "when") or "always"
        ends = [(source, target)] + ([(target, source)] if link.get("both") is True else [])
        for one, other in ends:
            first = seen.setdefault((one, other, when), index)
            if first != index:
                problem = f"links[{first}] goes from {one} to {other} already, when {when}"
                yield CheckFinding(path, problem, "one link, with all its streams")
                break
        if when == "berthed" and source in sites and target in sites:
            yield from _berth((*path, "when"), sites[source], sites[target])
        for ship in (one for one, _ in ends if text(sites.get(one), "kind") == SiteKind.SHIP):
            for stream in part(link, "streams"):
                if text(streams.get(stream), "insert_point") == InsertPoint.SHORE:
                    problem = f"{ship} is a ship, and ships do not pass on streams that other sites write"
                    yield CheckFinding((*path, "streams", stream), problem, "a link from a site ashore", at_key=True)


def _berth(path: KeyPath, one: Any, other: Any) -> Iterator[CheckFinding]:
    kinds = {text(one, "kind"), text(other, "kind")}
    if kinds <= set(SiteKind) and not (SiteKind.SHIP in kinds and kinds & set(_AT_PLACES)):
        yield CheckFinding(
            path, "when: berthed between sites that are not a ship and a port", "a ship at one end, a port at the other"
        )


def _selection(
    data: Mapping[str, Any], streams: dict[str, Any], path: KeyPath, name: str, selection: Any
) -> Iterator[CheckFinding]:
    yield from _known(path, name, "stream", streams, at_key=True)
    stream = streams.get(name)
    stays = isinstance(stream, dict) and stream.get("insert_point", InsertPoint.SITE) in _STAYING
    if selection == "aboard" and stays:
        moving = [n for n, s in streams.items() if text(s, "insert_point") == InsertPoint.MOVES]
        expected = f"all or patterns; aboard is for {', '.join(moving) or 'streams with insert_point: moves'}"
        yield CheckFinding(path, f"stream {name} does not move with boxes, so nothing of it is aboard", expected)
    if selection == []:
        yield CheckFinding(path, "an empty list of patterns", "all, aboard or patterns")
    if isinstance(selection, list) and text(stream, "insert_point") == InsertPoint.SHORE:
        for index, pattern in enumerate(selection):
            if isinstance(pattern, str) and not set(pattern) & set("*?["):
                yield from _known((*path, index), pattern, "customer", part(data, "customers"))


def _people(data: Mapping[str, Any], sites: dict[str, Any], streams: dict[str, Any]) -> Iterator[CheckFinding]:
    customers, users = part(data, "customers"), part(data, "users")
    shore = part(data, "shore")
    yield from _known(("shore", "at"), text(shore, "at"), "site", sites)
    yield from _standby(shore, sites)
    if part(data, "geofences") and not data.get("shore"):
        problem = "geofences without shore, which finds visits of them"
        yield CheckFinding(("geofences",), problem, "shore: {at: <site>}", at_key=True)
    for name, customer in customers.items():
        path: KeyPath = ("customers", name)
        yield from _name(path, name)
        feed_at = text(customer, "feed_at")
        yield from _known((*path, "feed_at"), feed_at, "site", sites)
        if feed_at and not data.get("shore"):
            yield CheckFinding((*path, "feed_at"), "a feed without shore, which writes it", "shore: {at: <site>}")
        if feed_at and _FEEDS not in streams:
            problem = f"a feed without stream {_FEEDS}, whose logs are the feeds"
            yield CheckFinding(
                (*path, "feed_at"), problem, f"streams: {{{_FEEDS}: {{insert_point: {InsertPoint.SHORE}}}}}"
            )
        yield from _grain(path, customer)
        yield from _owners(path, customer, streams)
        for index, site in enumerate(items(customer, "reads_at")):
            yield from _known((*path, "reads_at", index), site, "site", sites)
    for name, user in users.items():
        path = ("users", name)
        yield from _name(path, name)
        if name in customers:
            yield CheckFinding(path, f"{name} is a customer already", "another name: each is a Kafka user", at_key=True)
        for index, site in enumerate(items(user, "at")):
            yield from _known((*path, "at", index), site, "site", sites)


def _board(board: Mapping[str, Any], sites: dict[str, Any], people: Mapping[str, Any]) -> Iterator[CheckFinding]:
    for index, site in enumerate(items(board, "at")):
        path: KeyPath = ("board", "at", index)
        yield from _known(path, site, "site", sites)
        if site in sites and text(sites[site], "kind") == SiteKind.CUSTOMER:
            yield CheckFinding(path, f"the board cannot run at the customer's site {site}", "another site")
    yield from _expressions(("board",), board, people, ("read", "operate"))
    for value, name in part(part(board, "oidc"), "names").items():
        yield from _known(("board", "oidc", "names", value), name, "customer or user", people)


def _standby(shore: Mapping[str, Any], sites: dict[str, Any]) -> Iterator[CheckFinding]:
    """Check the sites to which shore can move: known ones ashore, other than its own, each once."""
    seen = {text(shore, "at")}
    for index, site in enumerate(items(shore, "standby")):
        path: KeyPath = ("shore", "standby", index)
        yield from _known(path, site, "site", sites)
        if not isinstance(site, str):
            continue
        if site in seen:
            yield CheckFinding(path, f"shore is at {quote(site)} already", "another site")
        elif _kind(sites.get(site)) in (SiteKind.SHIP, SiteKind.CUSTOMER):
            yield CheckFinding(path, f"shore cannot move to {quote(site)}", "a port, headquarters or a data centre")
        seen.add(site)


def _grain(path: KeyPath, customer: Mapping[str, Any]) -> Iterator[CheckFinding]:
    """Check a customer's feed: ``feed`` and ``table`` need ``feed_at``, and ``feed: movements`` needs ``port``."""
    grain, port = text(customer, "feed"), text(customer, "port")
    if grain and not text(customer, "feed_at"):
        yield CheckFinding((*path, "feed"), "a kind of feed without the feed", "feed_at: <site>", at_key=True)
    if isinstance(customer, dict) and customer.get("table") and not text(customer, "feed_at"):
        yield CheckFinding((*path, "table"), "a table of a feed without the feed", "feed_at: <site>", at_key=True)
    if grain == "movements" and not port:
        yield CheckFinding((*path, "feed"), "movements at no port", "port: <UN/LOCODE>", at_key=True)
    if port and grain != "movements":
        yield CheckFinding((*path, "port"), "only a feed of movements is about a port", "feed: movements", at_key=True)


def _owners(path: KeyPath, customer: Mapping[str, Any], streams: Mapping[str, Any]) -> Iterator[CheckFinding]:
    """Check that a feed of alerts, and no other, names owners, whose containers are in a stream."""
    owners = items(customer, "owners")
    if text(customer, "feed") == "alerts" and not owners:
        yield CheckFinding((*path, "feed"), "alerts of nobody's containers", "owners: [<owner code>]", at_key=True)
    if owners and text(customer, "feed") != "alerts":
        yield CheckFinding((*path, "owners"), "only a feed of alerts is about owners", "feed: alerts", at_key=True)
    known = {
        owner: name for name, stream in streams.items() for owner in items(stream, "owners") if isinstance(owner, str)
    }
    for index, owner in enumerate(owners):
        yield from _known((*path, "owners", index), owner, "owner of a stream", known)


def _notify(data: Mapping[str, Any], sites: dict[str, Any], streams: dict[str, Any]) -> Iterator[CheckFinding]:
    """Check the names in routes of notifications, and that no filter leaves nothing."""
    notify = part(data, "notify")
    if not notify:
        return
    at, customers = text(notify, "at"), part(data, "customers")
    yield from _known(("notify", "at"), at, "site", sites)
    if at is not None and _kind(sites.get(at)) == SiteKind.CUSTOMER:
        yield CheckFinding(("notify", "at"), f"{at} is a customer's site, which has no alerts", "another site")
    if _ALERTS not in streams:
        yield CheckFinding(("notify",), f"notifications without stream {_ALERTS}", "a topology with ports", at_key=True)
    known = {
        "ports": ("site", {**sites, "shore": None}),
        "streams": ("stream", streams),
        "customers": ("customer", customers),
    }
    for name, route in part(notify, "routes").items():
        path: KeyPath = ("notify", "routes", name)
        for key, (kind, valid) in {**known, "kinds": ("kind of alert", dict.fromkeys(KINDS))}.items():
            for index, each in enumerate(items(route, key)):
                yield from _known((*path, key, index), each, kind, valid)
                if not isinstance(each, str):
                    continue
                if key == "streams" and each in streams and text(streams[each], "insert_point") != InsertPoint.MOVES:
                    expected = "a stream with insert_point: moves"
                    yield CheckFinding((*path, key, index), f"{each} is no stream of containers", expected)
                if key == "customers" and text(customers.get(each), "feed") == "movements":
                    problem = f"{each} gets movements in its feed, and no alerts"
                    yield CheckFinding((*path, key, index), problem, "a customer with another feed")
        quiet = part(route, "quiet")
        if quiet and quiet.get("from") == quiet.get("until"):
            yield CheckFinding((*path, "quiet"), "quiet hours without a length", "two times", at_key=True)
        if isinstance(route, dict) and route.get("changes") == []:
            yield CheckFinding((*path, "changes"), "a route that sends nothing", "opened, raised or cleared")


def _secrets(data: Mapping[str, Any], sites: dict[str, Any]) -> Iterator[CheckFinding]:
    """Check that every password has an environment variable of its own, also every next password.

    Variables replace every character that is not a letter or digit by ``_``, so two names could share one variable.
    """
    owners: dict[str, str] = {}
    seen: set[tuple[str, str, str]] = set()
    for path, site, user in _kept_secrets(data, sites):
        owner = user if path[0] in ("customers", "users") else f"Fairlead's {user}"
        if not isinstance(site, str) or site not in sites or (owner, site, user) in seen:
            continue
        seen.add((owner, site, user))
        for variable, which in (
            (secret_variable(site, user), f"the password of {owner} at {site}"),
            (next_variable(site, user), f"the next password of {owner} at {site}"),
        ):
            other = owners.setdefault(variable, which)
            if other != which:
                yield CheckFinding(path, f"{variable} is both {other} and {which}", "another name", at_key=True)
                break


def _kept_secrets(data: Mapping[str, Any], sites: dict[str, Any]) -> Iterator[tuple[KeyPath, Any, str]]:
    """Yield the place in the file, the site and the user of every secret that is needed. Fairlead's own are first."""
    own = (ADMIN, CONTROLLER, "bridge", MQTT_BRIDGE, SESSION, "device", "replay", "replicator", "shore", "board", SPARK)
    for site in sites:
        for user in own:
            yield ("sites", site), site, user
    for site in items(part(data, "board"), "at") if part(part(data, "board"), "oidc") else ():
        yield ("board", "oidc"), site, OIDC_SECRET
    notify = part(data, "notify")
    for user in (NOTIFY, *map(route_secret, part(notify, "routes"))) if notify else ():
        yield ("notify",), text(notify, "at"), user
    for index, link in enumerate(items(data, "links")):
        source, target = text(link, "from"), text(link, "to")
        for one, other in ((source, target), (target, source)):
            if other is not None:
                yield ("links", index), one, upstream_user(other)
    for section, places in (("customers", "reads_at"), ("users", "at")):
        for name, party in part(data, section).items():
            for site in (text(party, "feed_at"), *items(party, places)) if not is_reserved(name) else ():
                yield (section, name), site, name


def _name(path: KeyPath, name: str) -> Iterator[CheckFinding]:
    if is_reserved(name):
        expected = f"another name than {', '.join(sorted(RESERVED_NAMES))} and replicator..."
        yield CheckFinding(path, f"{name} is one of Fairlead's own users", expected, at_key=True)
    elif not SITE_NAME.fullmatch(name):  # groups of ducks.evil would be under the prefix ducks.
        expected = "lower-case letters, digits and hyphens, beginning with a letter"
        yield CheckFinding(path, f"{quote(name)} cannot be a user's name", expected, at_key=True)


def unfed_links(data: Mapping[str, Any]) -> Iterator[CheckFinding]:
    """Yield links that take a stream from a site that cannot have it, and feeds that never reach their reader."""
    for path, site, stream, key in unfed(data):
        what = f"{stream}.{key}" if key else f"stream {stream}"
        if path[0] == "customers":
            yield CheckFinding(path, f"{what} never reaches {site}", f"links that carry {what} from shore to {site}")
        elif path[0] == "shore":
            problem = f"{what} never reaches {site}, and shore can move there"
            yield CheckFinding(path, problem, f"links that carry {what} from shore to {site}")
        else:
            yield CheckFinding(path, f"{site} never has {what}", f"a link that copies it to {site}", at_key=True)


# --- flow: links that never have a log to carry

_Arc = tuple[KeyPath, str, str, dict[str, Any]]  # path of the link, from, to, streams


def unfed(data: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str, str, str]]:
    """Yield ``(path, site, stream, key)`` of every link whose stream never reaches its source, and of every feed that
    never reaches its customer.

    The key is the customer for feeds, else empty. A link or site with another mistake is skipped.
    """
    sites, streams = part(data, "sites"), part(data, "streams")
    arcs = list(_arcs(data, sites))
    for stream, declared in streams.items():
        if not isinstance(declared, dict) or declared.get("insert_point", "site") not in list(InsertPoint):
            continue
        origins = set(sites) if stream == ENDS else _origins(data, sites, declared)
        if not origins:
            continue  # without ships there is nothing to carry; a missing shore is reported elsewhere
        if declared.get("insert_point") == InsertPoint.SHORE:
            ashore = [arc for arc in arcs if arc[1] in origins or _kind(sites[arc[1]]) != SiteKind.SHIP]
            for customer, facts in part(data, "customers").items():
                yield from _unfed_feed(ashore, origins, stream, customer, facts, sites)
            if stream == _FEEDS:
                yield from _unfed_standby(data, ashore, origins, sites)
            continue
        taking = [arc for arc in arcs if stream in arc[3]]
        yield from _starved(taking, _reached(origins, taking), stream, "")


def _unfed_feed(
    arcs: list[_Arc],
    origins: set[str],
    stream: str,
    customer: str,
    facts: Any,
    sites: dict[str, Any],
) -> Iterator[tuple[KeyPath, str, str, str]]:
    taking = [arc for arc in arcs if _matches(arc[3].get(stream), customer)]
    reached = _reached(origins, taking)
    yield from _starved([arc for arc in taking if customer in items(arc[3], stream)], reached, stream, customer)
    feed_at = text(facts, "feed_at")
    if feed_at in sites and feed_at not in reached:
        yield ("customers", customer, "feed_at"), feed_at, stream, customer


def _unfed_standby(
    data: Mapping[str, Any], arcs: list[_Arc], origins: set[str], sites: dict[str, Any]
) -> Iterator[tuple[KeyPath, str, str, str]]:
    """Yield the feeds that never reach a site to which shore can move: it could not go on with them there."""
    for customer, facts in part(data, "customers").items():
        if text(facts, "feed_at") is None:
            continue
        reached = _reached(origins, [arc for arc in arcs if _matches(arc[3].get(_FEEDS), customer)])
        for index, site in enumerate(items(part(data, "shore"), "standby")):
            if isinstance(site, str) and site in sites and site not in reached:
                yield ("shore", "standby", index), site, _FEEDS, customer


def _starved(taking: list[_Arc], reached: set[str], stream: str, key: str) -> Iterator[tuple[KeyPath, str, str, str]]:
    told: set[KeyPath] = set()
    for path, source, _, _ in taking:
        if source not in reached and path not in told:
            told.add(path)
            yield (*path, "streams", stream), source, stream, key


def _reached(origins: set[str], arcs: list[_Arc]) -> set[str]:
    onward: dict[str, set[str]] = {}
    for _, source, target, _ in arcs:
        onward.setdefault(source, set()).add(target)
    reached, new = set(origins), set(origins)
    while new:
        new = set().union(*(onward.get(site, ()) for site in new)) - reached
        reached |= new
    return reached


def _origins(data: Mapping[str, Any], sites: dict[str, Any], stream: dict[str, Any]) -> set[str]:
    """Return the sites where records of a stream may enter. A site with an invalid kind counts as any kind."""
    at = text(part(data, "shore"), "at")
    match stream.get("insert_point", "site"):
        case InsertPoint.SHORE:
            return {at} if at in sites else set()
        case InsertPoint.SHIP:
            return {name for name, site in sites.items() if _kind(site) in (SiteKind.SHIP, None)}
        case _:
            return {name for name, site in sites.items() if _kind(site) != SiteKind.CUSTOMER}


def _kind(site: Any) -> str | None:
    kind = text(site, "kind")
    return kind if kind in list(SiteKind) else None


def _arcs(data: Mapping[str, Any], sites: dict[str, Any]) -> Iterator[_Arc]:
    for index, link in enumerate(items(data, "links")):
        source, target, streams = text(link, "from"), text(link, "to"), part(link, "streams")
        if source in sites and target in sites and source != target:
            yield ("links", index), source, target, streams
            if link.get("both") is True:
                yield ("links", index), target, source, streams


def _matches(selection: Any, customer: str) -> bool:
    if isinstance(selection, list):
        return any(isinstance(pattern, str) and fnmatch.fnmatchcase(customer, pattern) for pattern in selection)
    return bool(selection == "all")


# --- permissions


def check_permissions(data: Mapping[str, Any], streams: Mapping[str, Any]) -> Iterator[CheckFinding]:
    """Yield every mistake in the permissions of streams and of their keys."""
    people = {**part(data, "customers"), **part(data, "users")}
    for name, stream in streams.items():
        path: KeyPath = ("streams", name)
        yield from _expressions((*path, "permissions"), part(stream, "permissions"), people)
        for key, permissions in part(stream, "keys").items():
            yield from _key((*path, "keys", key), stream, key)
            if isinstance(permissions, dict):
                yield from _expressions((*path, "keys", key), permissions, people)


def _expressions(
    path: KeyPath, permissions: Mapping[str, Any], people: Collection[str], keys: Collection[str] = PERMISSIONS
) -> Iterator[CheckFinding]:
    for name in keys:
        written = text(permissions, name)
        if written is None:
            continue
        try:
            expression = parse(written)
        except ExpressionError as error:
            problem = f"access expression, character {error.position + 1}: {error.problem}"
            yield CheckFinding((*path, name), problem, error.hint)
            continue
        for found in dict.fromkeys(names(expression)):
            if found.kind is Kind.USER and found.name not in people:
                yield _unknown_user((*path, name), found.name, people)


def _unknown_user(path: KeyPath, name: str, people: Collection[str]) -> CheckFinding:
    if is_reserved(name):
        why = (
            "the super user of every site"
            if name == ADMIN
            else "a service of Fairlead, whose rights follow from the links"
        )
        return CheckFinding(path, f"access expression: {name} is {why}", "a customer or user of this topology")
    problem = f"access expression: there is no customer or user {quote(name)}"
    expected = ", ".join(people) or "a customer or user, but the topology has none"
    return CheckFinding(path, problem, expected, nearest(name, people))


def _key(path: KeyPath, stream: Any, pattern: str) -> Iterator[CheckFinding]:
    """Check that a key of a stream that moves begins with an owner's code, because its keys are container numbers."""
    owners = [owner for owner in items(stream, "owners") if isinstance(owner, str)]
    if text(stream, "insert_point") != InsertPoint.MOVES or not owners or not KEY_PATTERN.fullmatch(pattern):
        return
    key = pattern.removesuffix("*")
    length_fits = len(key) < 11 if pattern.endswith("*") else len(key) == 11
    if not length_fits or not any(key.startswith(owner) or owner.startswith(key) for owner in owners):
        expected = f"a container number of {', '.join(owners)}, or its beginning and *"
        yield CheckFinding(path, f"no box of this stream has the number {quote(pattern)}", expected, at_key=True)


# --- access to data of any type: a value of an unexpected type counts as absent


def part(data: Any, key: str) -> dict[str, Any]:
    """Return a mapping inside data; empty if it is missing or has another type."""
    value = data.get(key) if isinstance(data, Mapping) else None
    return value if isinstance(value, dict) else {}


def items(data: Any, key: str) -> list[Any]:
    """Return a list inside data; empty if it is missing or has another type."""
    value = data.get(key) if isinstance(data, Mapping) else None
    return value if isinstance(value, list) else []


def text(data: Any, key: str) -> str | None:
    """Return a text inside data; None if it is missing or has another type."""
    value = data.get(key) if isinstance(data, Mapping) else None
    return value if isinstance(value, str) else None
