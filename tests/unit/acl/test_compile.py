"""The compiled rules against the topology, asked one by one: what must be allowed, and above all what must not."""

from __future__ import annotations

import fnmatch

import pytest
from hypothesis import HealthCheck, given, settings

from acl.compile import compile_site, reasons
from acl.rules import Operation, Pattern, Resource, Rule, allowing, implies
from fairlead.errors import ConfigurationError
from fairlead.names import LogName, parse_log
from fairlead.records.alert import ALERT_ORDERS
from fairlead.records.custody import CUSTODY_ORDERS
from tests.support.examples import examples
from tests.unit.acl.worlds import PEOPLE, SITES, TOPICS, arrives, can_be_here, feed_readable, topologies
from topologies.expression import Subject, evaluate, parse
from topologies.loader.load import load
from topologies.model import ONE_LOG_PER_SITE, SHORE_ALERTS, InsertPoint, SiteKind, Topology, User
from topologies.retention import KeeperGraph
from topologies.users import REPLICATOR_GROUPS, service_users

SHIPPED = ("big-blue", "minimal", "two-way", "chain", "fan-in")
SERVICE_STREAMS = {"ships", "feeds", *ONE_LOG_PER_SITE}
OPERATIONS = (Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER_CONFIGS)
world_settings = settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])


def may(rules: frozenset[Rule], user: str, operation: Operation, topic: str) -> bool:
    return bool(allowing(rules, user, operation, Resource.TOPIC, topic))


def includes(topology: Topology, log: LogName, permission: str, user: str) -> bool:
    """Whether the stream's expression includes the user, or that of a key pattern which the log's key matches."""
    groups, roles = PEOPLE[user]
    subject = Subject(user, frozenset(groups), frozenset(roles))
    stream = topology.streams[log.stream]
    about = [stream.permissions, *(p for key, p in stream.keys.items() if fnmatch.fnmatchcase(log.key, key))]
    return any(evaluate(parse(getattr(permissions, permission)), subject) for permissions in about)


def expected(topology: Topology, user: str, operation: Operation, topic: str, site: str) -> bool:
    """What a person should be able to do, said without rules, prefixes or merging."""
    log = parse_log(topic)
    if log is None or log.stream not in topology.streams:
        return False
    stream = log.stream
    given = {
        Operation.READ: ("consume", "copy"),
        Operation.WRITE: ("produce", "copy"),
        Operation.CREATE: ("topic", "copy"),
        Operation.DELETE: ("topic", "copy"),
        Operation.ALTER_CONFIGS: ("admin",),
    }[operation]
    granted = any(includes(topology, log, "copy_" if p == "copy" else p, user) for p in given)
    if operation is Operation.READ:
        own_feed = topic == f"feeds.{user}" and feed_readable(topology, user, site)
        return own_feed or (granted and can_be_here(topology, stream, site))
    if operation is Operation.ALTER_CONFIGS:
        return granted and can_be_here(topology, stream, site)
    moves = topology.streams[stream].insert_point is InsertPoint.MOVES
    return (
        granted
        and not moves
        and stream not in SERVICE_STREAMS
        and topology.fixed_holder(topic) == site
        and (SITES[site].kind is not SiteKind.CUSTOMER)
    )


@given(topologies())
@world_settings
def test_people_may_do_what_expressions_say_and_nothing_else(topology: Topology) -> None:
    for site in topology.sites:
        rules = compile_site(topology, site)
        for user in PEOPLE.keys() & service_users(topology, site).keys():
            of_user = frozenset(rule for rule in rules if rule.user in (user, "*"))
            for operation in OPERATIONS:
                for topic in TOPICS:
                    wanted = expected(topology, user, operation, topic, site)
                    assert may(of_user, user, operation, topic) == wanted, (site, user, operation, topic)


@given(topologies())
@world_settings
def test_services_may_do_what_they_need_and_nothing_else(topology: Topology) -> None:
    for site in topology.sites:
        rules = compile_site(topology, site)
        public = {rule for rule in rules if rule.user == "*"}
        users = service_users(topology, site)
        for topic in TOPICS:
            log = parse_log(topic)
            stream = topology.streams.get(log.stream) if log else None
            if any(rule.covers(Resource.TOPIC, topic) for rule in public):
                continue  # open to everybody, so to services as well
            if log is None or stream is None:
                assert not any(rule.covers(Resource.TOPIC, topic) for rule in rules), topic
                continue
            moves, own = stream.insert_point is InsertPoint.MOVES, topology.fixed_holder(topic) == site
            if "bridge" in users and not moves:
                writable = may(rules, "bridge", Operation.WRITE, topic)
                assert not writable or (own and log.stream in SERVICE_STREAMS and topic != SHORE_ALERTS)
            if "bridge" in users and moves:
                at_sea = SITES[site].kind is SiteKind.SHIP
                holds = arrives(topology, log.stream, site) if at_sea else can_be_here(topology, log.stream, site)
                assert may(rules, "bridge", Operation.WRITE, topic) == holds, (site, topic)
                assert may(rules, "bridge", Operation.CREATE, topic) == (holds and not at_sea), (site, topic)
            if "bridge" in users:
                assert not may(rules, "bridge", Operation.DELETE, topic)
                assert not may(rules, "bridge", Operation.ALTER_CONFIGS, topic)
            if "shore" in users:
                writable = may(rules, "shore", Operation.WRITE, topic)
                standby = topology.shore is not None and site in topology.shore.standby
                shores = stream.insert_point is InsertPoint.SHORE or bool(
                    topic == SHORE_ALERTS and topology.moving_streams
                )
                assert writable == (shores and (own or standby)), (site, topic)
            if "replicator" in users:
                taken = any(link.takes(log) for link in topology.links_to(site))
                for operation in (Operation.WRITE, Operation.CREATE, Operation.DELETE):
                    allowed = may(rules, "replicator", operation, topic)
                    assert not (allowed and own), (site, topic)
                    assert not (allowed and not arrives(topology, log.stream, site)), (site, topic)
                    if taken and (moves or topology.fixed_holder(topic) not in (None, site)):
                        known = log.key in topology.sites or topic == SHORE_ALERTS
                        replica_of_known_log = log.stream not in ONE_LOG_PER_SITE or known
                        assert allowed or not replica_of_known_log or _not_a_log(topology, topic), (site, topic)
            for name, user in users.items():
                if user.target is not None:
                    assert not may(rules, name, Operation.WRITE, topic)
                    if any(link.takes(log) for link in user.links):
                        assert may(rules, name, Operation.READ, topic)
                    elif all(log.stream not in link.streams for link in user.links):
                        assert not may(rules, name, Operation.READ, topic)


def _not_a_log(topology: Topology, topic: str) -> bool:
    """Whether no site ever has this log, though its name begins like one: events.port.cpu, bookings of a ship."""
    log = parse_log(topic)
    assert log is not None
    head, dot, _ = log.key.partition(".")
    kind = topology.sites[head].kind if head in topology.sites else None
    return (
        (log.stream in ONE_LOG_PER_SITE and bool(dot))
        or (log.stream == "bookings" and kind is SiteKind.SHIP)
        or (topology.streams[log.stream].insert_point is InsertPoint.SITE and kind is SiteKind.CUSTOMER)
    )


ORDERS = {"fairlead.orders", CUSTODY_ORDERS, ALERT_ORDERS}


@given(topologies())
@world_settings
def test_rules_are_few_and_narrow(topology: Topology) -> None:
    for site in topology.sites:
        rules = compile_site(topology, site)
        assert rules == frozenset(reasons(topology, site))
        assert all(all(why) and why for why in reasons(topology, site).values())
        for rule in rules:
            assert not any(other != rule and implies(other, rule) for other in rules), rule
            assert rule.resource is not Resource.CLUSTER
            if rule.resource is Resource.TOPIC:
                assert rule.name.partition(".")[0] in topology.streams or str(rule.name) in ORDERS
                assert "." in rule.name
            else:
                own = REPLICATOR_GROUPS if rule.user == "replicator" else f"{rule.user}."
                assert (rule.pattern, rule.name) == (Pattern.PREFIXED, own)


@given(topologies())
@world_settings
def test_nobody_reaches_into_anothers_groups(topology: Topology) -> None:
    for site in topology.sites:
        rules = compile_site(topology, site)
        users = service_users(topology, site)
        for one in users:
            for other in users:
                if one != other:
                    assert not allowing(rules, one, Operation.READ, Resource.GROUP, f"{other}.cli")
                    assert not allowing(rules, one, Operation.WRITE, Resource.TRANSACTIONAL_ID, f"{other}.tx")


@given(topologies())
@world_settings
def test_groups_and_transactions_of_its_own_are_for_who_can_use_them(topology: Topology) -> None:
    for site in topology.sites:
        rules = compile_site(topology, site)
        for user in PEOPLE.keys() & service_users(topology, site).keys():
            can = {r.operation for r in rules if r.user in (user, "*") and r.resource is Resource.TOPIC}
            for kind, operation in ((Resource.GROUP, Operation.READ), (Resource.TRANSACTIONAL_ID, Operation.WRITE)):
                assert bool(allowing(rules, user, operation, kind, f"{user}.x")) == (operation in can), (site, user)
                assert not allowing(rules, user, operation, kind, user)


@given(topologies())
@world_settings
def test_what_a_key_pattern_gives_is_added_and_takes_nothing_away(topology: Topology) -> None:
    without = {name: stream.model_copy(update={"keys": {}}) for name, stream in topology.streams.items()}
    plain = topology.model_copy(update={"streams": without})
    for site in topology.sites:
        rules = compile_site(topology, site)
        assert all(any(implies(wide, narrow) for wide in rules) for narrow in compile_site(plain, site))


@pytest.mark.parametrize("name", SHIPPED)
def test_a_later_stream_or_user_gets_nothing_from_todays_rules(name: str) -> None:
    topology = load(name)
    for site in topology.sites:
        for rule in compile_site(topology, site):
            for stream in topology.streams:
                assert not rule.covers(Resource.TOPIC, f"{stream}2.A")
                assert not rule.covers(Resource.TOPIC, f"{stream}-b.A")
            assert not rule.covers(Resource.TOPIC, "anything")


@pytest.mark.parametrize("user", ["ducks.evil", "bridge", "replicator.tokyo", "*", "Ann", "a b", ""])
def test_names_that_reach_into_others_are_refused(user: str) -> None:
    topology = load("two-way").model_copy(update={"users": {user: User(at=("east",))}})
    with pytest.raises(ConfigurationError, match="cannot be the name"):
        compile_site(topology, "east")


# --- Big Blue, said out loud -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def big_blue() -> Topology:
    return load("big-blue")


def readable(rules: frozenset[Rule], user: str, topics: list[str]) -> set[str]:
    return {topic for topic in topics if may(rules, user, Operation.READ, topic)}


def catalogue(topology: Topology) -> list[str]:
    fixed = [f"{stream}.{site}" for stream in ONE_LOG_PER_SITE for site in topology.sites]
    ships = [f"ships.{site.imo}.location" for site in topology.sites.values() if site.imo]
    boxes = ["containers.BIGU1234567", "yellow.YELU1234567", "red.REDU1234567"]
    return [*fixed, *ships, *boxes, *(f"feeds.{name}" for name in ("ducks", "yellow", "red", "toyshop", "ducks2"))]


def test_customers_of_big_blue_read_their_own_and_nothing_else(big_blue: Topology) -> None:
    topics = catalogue(big_blue)
    for site in big_blue.sites:
        rules = compile_site(big_blue, site)
        assert readable(rules, "ducks", topics) == ({"feeds.ducks"} if site in ("los-angeles", "ducks-hq") else set())
        for owner, log in (("yellow", "yellow.YELU1234567"), ("red", "red.REDU1234567")):
            feed = {f"feeds.{owner}"} if site == "los-angeles" else set()
            own = {log} if site in ("los-angeles", "singapore") else set()  # wherever the user exists
            assert readable(rules, owner, topics) == feed | own
        assert readable(rules, "toyshop", topics) == ({"feeds.toyshop"} if site == "los-angeles" else set())
        for customer in big_blue.customers:
            changing = [r for r in rules if r.user == customer and r.operation is not Operation.READ]
            assert changing == []


def test_every_log_of_big_blue_has_one_writer_at_each_site(big_blue: Topology) -> None:
    for site in big_blue.sites:
        rules = compile_site(big_blue, site)
        for topic in catalogue(big_blue):
            stream = topic.partition(".")[0]
            writers = {user for user in service_users(big_blue, site) if may(rules, user, Operation.WRITE, topic)}
            if stream in ("containers", "yellow", "red"):
                assert writers <= {"bridge", "replicator"}  # which of them, custody says
            elif topic == f"ends.{site}":
                confirms = bool(KeeperGraph(big_blue).confirmed_streams(site))
                assert writers == ({"replicator"} if confirms else set()), (site, topic)
            elif big_blue.fixed_holder(topic) == site and site != "ducks-hq":
                not_at_sea = stream == "bookings" and big_blue.sites[site].kind is SiteKind.SHIP
                assert writers == (set() if not_at_sea else {"shore" if stream == "feeds" else "bridge"}), (site, topic)
            else:
                assert writers <= {"replicator"}, (site, topic)


def test_a_ship_opens_no_container_log(big_blue: Topology) -> None:
    ship, port = compile_site(big_blue, "duck-star"), compile_site(big_blue, "tokyo")
    assert not may(ship, "bridge", Operation.CREATE, "containers.BIGU1234567")
    assert may(ship, "bridge", Operation.WRITE, "containers.BIGU1234567")
    assert may(ship, "replicator", Operation.CREATE, "containers.BIGU1234567")
    assert may(port, "bridge", Operation.CREATE, "containers.BIGU1234567")


def test_the_customers_site_takes_its_feed_only(big_blue: Topology) -> None:
    at_source, at_target = compile_site(big_blue, "tokyo"), compile_site(big_blue, "ducks-hq")
    topics = catalogue(big_blue)
    assert readable(at_source, "replicator.ducks-hq", topics) == {"feeds.ducks"}
    assert readable(at_source, "replicator", topics) >= {"ends.ducks-hq"}  # what the customer's site has
    assert readable(at_target, "replicator", topics) == {"feeds.ducks", "ends.ducks-hq"}
    assert {rule.name for rule in at_target} == {
        "feeds.ducks",
        "ducks.",
        "fairlead.orders",
        "ends.ducks-hq",
        REPLICATOR_GROUPS,
    }


def test_an_edge_may_delete_old_records_of_its_own_and_the_centre_says_what_it_has() -> None:
    topology = load("fan-in")
    edge, centre = compile_site(topology, "new-york"), compile_site(topology, "london")
    own, copied = "metrics.new-york.cpu", "ends.london"
    allowed = {operation for operation in Operation if may(edge, "replicator", operation, own)}
    assert allowed == {Operation.READ, Operation.DELETE, Operation.DESCRIBE}
    assert may(centre, "replicator", Operation.WRITE, copied)
    assert may(edge, "replicator", Operation.WRITE, copied)  # as a copy
    assert readable(centre, "replicator.new-york", [copied, own, "ends.paris"]) == {copied}
    assert not may(edge, "replicator", Operation.WRITE, "ends.new-york")  # nobody waits for an edge
    for site in topology.sites:
        writers = {rule.user for rule in compile_site(topology, site) if rule.name.startswith("ends.")} - {
            "replicator.new-york",
            "replicator.paris",
        }
        assert writers == {"replicator"}


@pytest.mark.parametrize("name", SHIPPED)
def test_orders_are_read_by_the_sites_own_replicator_and_nobody_writes_them(name: str) -> None:
    topology = load(name)
    for site in topology.sites:
        about = {rule for rule in compile_site(topology, site) if rule.covers(Resource.TOPIC, "fairlead.orders")}
        followed = bool(topology.links_to(site))
        assert {(rule.user, rule.operation) for rule in about} == (
            {("replicator", Operation.READ)} if followed else set()
        )
        assert not any(rule.covers(Resource.TOPIC, "fairlead.orders2") for rule in about)


@pytest.mark.parametrize("name", SHIPPED)
def test_orders_about_custody_are_read_by_the_sites_own_bridge_and_nobody_writes_them(name: str) -> None:
    topology = load(name)
    for site, spec in topology.sites.items():
        about = {rule for rule in compile_site(topology, site) if rule.covers(Resource.TOPIC, CUSTODY_ORDERS)}
        bridged = spec.kind is not SiteKind.CUSTOMER and "custody" in topology.streams
        assert {(rule.user, rule.operation) for rule in about} == ({("bridge", Operation.READ)} if bridged else set())


@pytest.mark.parametrize("name", SHIPPED)
def test_orders_about_alerts_are_read_by_every_bridge_and_written_by_the_board_alone(name: str) -> None:
    topology = load(name)
    for site in topology.sites:
        about = {rule for rule in compile_site(topology, site) if rule.covers(Resource.TOPIC, ALERT_ORDERS)}
        users = service_users(topology, site) if "alerts" in topology.streams else {}
        expected = {("bridge", Operation.READ)} if "bridge" in users else set()
        if "board" in users:
            expected |= {("board", Operation.CREATE), ("board", Operation.WRITE)}
        assert {(rule.user, rule.operation) for rule in about} == expected


def test_rules_do_not_grow_with_containers_and_little_with_customers(big_blue: Topology) -> None:
    more = {f"owner-{n}": big_blue.customers["ducks"] for n in range(100)}
    bigger = big_blue.model_copy(update={"customers": {**big_blue.customers, **more}})
    assert len(compile_site(bigger, "los-angeles")) - len(compile_site(big_blue, "los-angeles")) == 200
