"""Every mistake is reported with line, column, path, the expected form and the nearest valid name."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from tests.support.topologies.examples import RIGHT, mistakes_of, with_line
from topologies.loader.load import read
from topologies.loader.mistakes import Mistake, TopologyErrors, has_user_info, render


class Case(NamedTuple):
    """One spoiled line and the one mistake that it must give, at the place marked ``^``."""

    line: int
    text: str
    path: str
    problem: str
    expected: str
    nearest: str | None = None


FORM = [
    Case(
        11,
        "  - {from: tokyo, to: sydney, streams: {alerts: all}, start: ^later}",
        "links[0].start",
        "'later'",
        "earliest, latest, end, or a time",
    ),
    Case(
        11,
        "  - {from: tokyo, to: sydney, streams: {alerts: all}, priority: {alerts: ^quick}}",
        "links[0].priority.alerts",
        "'quick'",
        "control, urgent",
    ),
    Case(1, "^nmae: small\nname: small", "nmae", "no such key", "name, title", "name"),
    Case(1, "name: ^Small One", "name", "'Small One'", "lower-case letters"),
    Case(3, "  tokyo: {kind: ^prot, unlocode: JPTYO}", "sites.tokyo.kind", "'prot'", "ship, port, hq", "port"),
    Case(3, "  tokyo: {kind: port, unlocode: ^Tokyo}", "sites.tokyo.unlocode", "'Tokyo'", "UN/LOCODE"),
    Case(3, "  ^tokyo: {unlocode: JPTYO}", "sites.tokyo.kind", "is missing", "ship, port, hq"),
    Case(5, "  duck-star: {kind: ship, imo: ^9074729}", "sites.duck-star.imo", "9074729", "put it in quotes"),
    Case(5, '  duck-star: {kind: ship, imo: ^"9074728"}', "sites.duck-star.imo", "'9074728'", "check digit"),
    Case(
        3,
        "  tokyo: {kind: port, unlocode: JPTYO, retention: {default: ^90}}",
        "sites.tokyo.retention.default",
        "90 does not belong here",
        "a duration",
    ),
    Case(
        3,
        "  tokyo: {kind: port, unlocode: JPTYO, kafka: {bootstrap: ^nowhere}}",
        "sites.tokyo.kafka.bootstrap",
        "'nowhere'",
        "host:port",
    ),
    Case(
        3,
        "  tokyo: {kind: port, unlocode: JPTYO, mqtt: {host: a, port: ^70000}}",
        "sites.tokyo.mqtt.port",
        "70000",
        "less than or equal to 65535",
    ),
    Case(
        3,
        "  tokyo: {kind: hq, kafka: {bootstrap: 'a:1', security: ^SASL_PLAINTEXT, sasl_mechanism: PLAIN}}",
        "sites.tokyo.kafka.security",
        "sends a secret that anybody on the way can read",
        "SASL_SSL",
    ),
    Case(
        3,
        "  tokyo: {kind: hq, kafka: {bootstrap: 'a:1', security: SSL, certificates: c, ^sasl_mechanism: PLAIN}}",
        "sites.tokyo.kafka.sasl_mechanism",
        "where the certificate is the login",
        "no sasl_mechanism",
    ),
    Case(
        3,
        "  tokyo: {kind: hq, ^kafka: {bootstrap: 'a:1', security: SSL}}",
        "sites.tokyo.kafka",
        "without certificates",
        "certificates: FOLDER",
    ),
    Case(
        3,
        "  tokyo: {kind: hq, ^kafka: {bootstrap: 'a:1', sasl_mechanism: OAUTHBEARER}}",
        "sites.tokyo.kafka",
        "OAUTHBEARER without oauth",
        "oauth: {endpoint",
    ),
    Case(
        3,
        "  tokyo: {kind: hq, kafka: {bootstrap: 'a:1', sasl_mechanism: OAUTHBEARER, oauth: {endpoint: ^'http://a/t'}}}",
        "sites.tokyo.kafka.oauth.endpoint",
        "does not belong here",
        "https://host/path",
    ),
    Case(
        3,
        "  tokyo: {kind: port, unlocode: JPTYO, mqtt: {host: a, port: 8883, security: ^PLAINTEXT}}",
        "sites.tokyo.mqtt.security",
        "clear text at port 8883",
        "security: TLS",
    ),
    Case(
        3,
        "  tokyo: {kind: port, unlocode: JPTYO, mqtt: {host: a, port: 1883, security: PLAINTEXT, ca: ^x.pem}}",
        "sites.tokyo.mqtt.ca",
        "in clear text",
        "no ca",
    ),
    Case(
        3, "  ^Tokyo!: {kind: hq}\n  tokyo: {kind: port, unlocode: JPTYO}", "sites.Tokyo!", "cannot be a name", "name"
    ),
    Case(8, "  containers: {insert_point: moves, owners: [^BIG1]}", "streams.containers.owners[0]", "'BIG1'", "BIGU"),
    Case(
        8,
        "  containers: {insert_point: ^moved, owners: [BIGU]}",
        "streams.containers.insert_point",
        "'moved'",
        "moves",
        "moves",
    ),
    Case(
        12,
        "  - {from: tokyo, to: duck-star, when: ^berthd, streams: {containers: aboard}}",
        "links[1].when",
        "'berthd'",
        "always or berthed",
        "berthed",
    ),
    Case(
        12,
        "  - {from: tokyo, to: duck-star, streams: {containers: ^abord}}",
        "links[1].streams.containers",
        "'abord'",
        "all, aboard or a list",
        "aboard",
    ),
    Case(
        13,
        "  - {from: duck-star, to: tokyo, rate: ^fast, streams: {alerts: all}}",
        "links[2].rate",
        "'fast'",
        "64 kbit/s",
    ),
    Case(13, "  - {from: duck-star, to: tokyo, rate: ^-1, streams: {alerts: all}}", "links[2].rate", "-1", "64 kbit/s"),
    Case(13, "  - ^{from: duck-star, streams: {alerts: all}}", "links[2].to", "is missing", "text"),
    Case(
        13,
        "  - {^from_: duck-star, from: duck-star, to: tokyo, streams: {alerts: all}}",
        "links[2].from_",
        "no such key",
        "from, to",
        "from",
    ),
    Case(19, "shore: {at: sydney, ^mastr: local}", "shore.mastr", "no such key", "at, standby, master", "master"),
    Case(19, "shore: {at: sydney, ^storage: s3a://b/c}", "shore.storage", "the key is tables now", "tables"),
    Case(19, "shore: {at: sydney, retention: {readings: ^7d}}", "shore.retention.readings", "7d", "30d or more"),
    Case(
        19,
        "shore: {at: sydney, exceptions: {^eta_hour: 6}}",
        "shore.exceptions.eta_hour",
        "no such key",
        "eta_hours, dwell_hours",
        "eta_hours",
    ),
    Case(
        19,
        "shore: {at: sydney, exceptions: {eta_hours: ^0}}",
        "shore.exceptions.eta_hours",
        "0 does not belong",
        "greater than or equal to 1",
    ),
    Case(
        19,
        "shore: {at: sydney, exceptions: {dwell_hours: ^7d}}",
        "shore.exceptions.dwell_hours",
        "'7d' does not belong",
        "a whole number",
    ),
    Case(
        19,
        "shore: {at: sydney}\ngeofences: {cape: {at: {latitude: 1, longitude: ^190}, within_km: 25}}",
        "geofences.cape.at.longitude",
        "190",
        "less than or equal to 180",
    ),
    Case(
        19,
        "shore: {at: sydney}\ngeofences: {cape: {at: ^[1, 2], within_km: 25}}",
        "geofences.cape.at",
        "a list does not belong",
        "a mapping with latitude, longitude",
    ),
    Case(
        19,
        "shore: {at: sydney}\ngeofences: {cape: {at: {latitude: 1, longitude: 2}, within_km: ^0}}",
        "geofences.cape.within_km",
        "0 does not belong",
        "greater than or equal to 0.1",
    ),
    Case(
        19,
        "shore: {at: sydney}\ngeofences: {cape: {at: {latitude: 1, longitude: 2}, within_km: 5, ^within: 5}}",
        "geofences.cape.within",
        "no such key",
        "at, within_km",
        "within_km",
    ),
    Case(
        19,
        "shore: {at: sydney}\ngeofences: {^Cape Horn: {at: {latitude: 1, longitude: 2}, within_km: 5}}",
        "geofences.Cape Horn",
        "cannot be a name",
        "lower-case letters",
    ),
    Case(19, "shore: {at: sydney, settings: {^executor: 2}}", "shore.settings.executor", "executor", "spark.<name>"),
    Case(
        19,
        "shore: {at: sydney, settings: {^spark.master: local}}",
        "shore.settings.spark.master",
        "spark.master",
        "key 'master'",
    ),
    Case(
        19,
        "shore: {at: sydney, settings: {^spark.sql.session.timeZone: Asia/Tokyo}}",
        "shore.settings.spark.sql.session.timeZone",
        "spark.sql.session.timeZone",
        "another setting",
    ),
    Case(
        19,
        "shore: {at: sydney, settings: {^spark.hadoop.fs.s3a.secret.key: abc}}",
        "shore.settings.spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.s3a.secret.key",
        "no secret",
    ),
    Case(19, "shore: {at: sydney, packages: [^hadoop-aws]}", "shore.packages[0]", "hadoop-aws", "group:artifact"),
]

BETWEEN = [
    Case(
        11,
        "  - {from: tokyo, to: sydney, both: true, streams: {alerts: all, containers: all}, groups: [a-*, ^'*-b']}",
        "links[0].groups[1]",
        "Kafka's ACLs cannot express the groups '*-b'",
        "one * at the end",
    ),
    Case(
        11,
        "  - {from: tokyo, to: sydney, both: true, streams: {alerts: all, containers: all}, priority: {^event: bulk}}",
        "links[0].priority.event",
        "no stream on this link 'event'",
        "alerts",
    ),
    Case(8, "  ^fairlead: {}\n  containers: {insert_point: moves, owners: [BIGU]}", "streams.fairlead", "own", "name"),
    Case(
        11,
        "  - {from: tokyo, to: ^sidney, streams: {alerts: all}}",
        "links[0].to",
        "no site 'sidney'",
        "tokyo, sydney",
        "sydney",
    ),
    Case(
        11,
        "  - {from: tokyo, to: sydney, streams: {^containrs: all}}",
        "links[0].streams.containrs",
        "no stream 'containrs'",
        "containers, yellow, ships",
        "containers",
    ),
    Case(5, "  ^duck-star: {kind: ship}", "sites.duck-star", "without its IMO", "imo:"),
    Case(4, "  ^sydney: {kind: port}", "sites.sydney", "without its UN/LOCODE", "unlocode:"),
    Case(4, '  sydney: {kind: port, unlocode: AUSYD, ^imo: "9074729"}', "sites.sydney.imo", "on a port", "only ships"),
    Case(
        5,
        '  duck-star: {kind: ship, imo: "9074729", ^position: {latitude: 1, longitude: 2}}',
        "sites.duck-star.position",
        "a position on a ship",
        "only ports",
    ),
    Case(
        4,
        "  sydney: {kind: port, unlocode: AUSYD, position: {latitude: ^91, longitude: 2}}",
        "sites.sydney.position.latitude",
        "91",
        "90",
    ),
    Case(4, "  sydney: {kind: port, unlocode: ^JPTYO}", "sites.sydney.unlocode", "tokyo has the same", "one port each"),
    Case(
        6,
        '  shop: {kind: customer}\n  twin: {kind: ship, imo: ^"9074729"}',
        "sites.twin.imo",
        "duck-star has the same",
        "one ship each",
    ),
    Case(
        6,
        "  shop: {kind: customer, kafka: {bootstrap: 'a:1,b:1'}}\n  twin: {kind: hq, kafka: {bootstrap: ^'c:1, B:1'}}",
        "sites.twin.kafka.bootstrap",
        "shop has the same broker 'b:1'",
        "each site its own cluster",
    ),
    Case(
        6,
        "  shop: {kind: customer, mqtt: {host: a, port: 8883}}\n  twin: {kind: hq, mqtt: {host: ^A, port: 8883}}",
        "sites.twin.mqtt.host",
        "shop has the same MQTT broker 'a:8883'",
        "each site its own",
    ),
    Case(
        4,
        "  sydney: {kind: port, unlocode: AUSYD, retention: {^contaners: 3d}}",
        "sites.sydney.retention.contaners",
        "no stream 'contaners'",
        "default, containers",
        "containers",
    ),
    Case(
        9,
        "  yellow: {insert_point: moves, owners: [^BIGU]}",
        "streams.yellow.owners[0]",
        "in stream containers",
        "one stream",
    ),
    Case(9, "  ^yellow: {insert_point: moves}", "streams.yellow", "without owners", "owners:"),
    Case(9, "  yellow: {^owners: [YELU]}", "streams.yellow.owners", "does not move", "insert_point: moves"),
    Case(9, "  ^default: {title: x}", "streams.default", "every stream", "another name"),
    Case(11, "  - {from: tokyo, to: ^tokyo, streams: {alerts: all}}", "links[0].to", "to itself", "two sites"),
    Case(11, "  - {from: tokyo, to: sydney, ^streams: {}}", "links[0].streams", "without streams", "at least one"),
    Case(
        12,
        "  - ^{from: sydney, to: tokyo, streams: {containers: all}}",
        "links[1]",
        "links[0] goes from sydney to tokyo already",
        "one link",
    ),
    Case(
        12,
        "  - {from: tokyo, to: shop, when: ^berthed, streams: {alerts: all}}",
        "links[1].when",
        "not a ship and a port",
        "a ship",
    ),
    Case(
        12,
        "  - {from: tokyo, to: duck-star, streams: {alerts: ^aboard}}",
        "links[1].streams.alerts",
        "does not move with boxes",
        "containers, yellow",
    ),
    Case(
        12,
        "  - {from: tokyo, to: duck-star, streams: {alerts: ^[]}}",
        "links[1].streams.alerts",
        "an empty list of patterns",
        "patterns",
    ),
    Case(
        14,
        "  - {from: sydney, to: shop, streams: {feeds: [^duks]}}",
        "links[3].streams.feeds[0]",
        "no customer 'duks'",
        "ducks",
        "ducks",
    ),
    Case(
        14,
        "  - {from: tokyo, to: shop, streams: {^feeds: [ducks]}}",
        "links[3].streams.feeds",
        "tokyo never has feeds.ducks",
        "copies it to tokyo",
    ),
    Case(
        14,
        "  - {from: shop, to: sydney, streams: {^events: all}}",
        "links[3].streams.events",
        "shop never has stream events",
        "copies it to shop",
    ),
    Case(
        13,
        "  - {from: duck-star, to: tokyo, streams: {alerts: all, ^feeds: [ducks]}}",
        "links[2].streams.feeds",
        "do not pass on streams that other sites write",
        "a site ashore",
    ),
    Case(16, "  ducks: {feed_at: ^sidney}", "customers.ducks.feed_at", "no site 'sidney'", "sydney", "sydney"),
    Case(
        16,
        "  ducks: {feed_at: ^tokyo}",
        "customers.ducks.feed_at",
        "feeds.ducks never reaches tokyo",
        "from shore to tokyo",
    ),
    Case(16, "  ducks: {reads_at: [^shpo]}", "customers.ducks.reads_at[0]", "no site 'shpo'", "shop", "shop"),
    Case(16, "  ducks: {^feed: coarse}", "customers.ducks.feed", "a kind of feed without the feed", "feed_at: <site>"),
    Case(
        16, "  ducks: {^table: true}", "customers.ducks.table", "a table of a feed without the feed", "feed_at: <site>"
    ),
    Case(
        16,
        "  ducks: {feed_at: sydney, ^feed: movements}",
        "customers.ducks.feed",
        "movements at no port",
        "port: <UN/LOCODE>",
    ),
    Case(
        16,
        "  ducks: {feed_at: sydney, ^port: SGSIN}",
        "customers.ducks.port",
        "only a feed of movements is about a port",
        "feed: movements",
    ),
    Case(
        16,
        "  ducks: {feed_at: sydney, ^feed: alerts}",
        "customers.ducks.feed",
        "alerts of nobody's containers",
        "owners: [<owner code>]",
    ),
    Case(
        16,
        "  ducks: {feed_at: sydney, ^owners: [BIGU]}",
        "customers.ducks.owners",
        "only a feed of alerts is about owners",
        "feed: alerts",
    ),
    Case(
        16,
        "  ducks: {feed_at: sydney, feed: alerts, owners: [^BAGU]}",
        "customers.ducks.owners[0]",
        "no owner of a stream 'BAGU'",
        "BIGU",
        "BIGU",
    ),
    Case(18, "  analyst: {at: [^toyko]}", "users.analyst.at[0]", "no site 'toyko'", "tokyo", "tokyo"),
    Case(18, "  ^ducks: {at: [tokyo]}", "users.ducks", "a customer already", "another name"),
    Case(18, "  ^'a b': {at: [tokyo]}", "users.a b", "cannot be a user's name", "letters"),
    *(
        Case(18, f"  ^{name}: {{at: [tokyo]}}", f"users.{name}", "Fairlead's own", "another name")
        for name in ("admin", "bridge", "replicator", "replicator.tokyo", "shore", "controller", "device")
    ),
    Case(19, "shore: {at: ^sidney}", "shore.at", "no site 'sidney'", "sydney", "sydney"),
    Case(19, "shore: {at: sydney, standby: [^tokio]}", "shore.standby[0]", "no site 'tokio'", "tokyo", "tokyo"),
    Case(19, "shore: {at: sydney, standby: [^sydney]}", "shore.standby[0]", "at 'sydney' already", "another site"),
    Case(19, "shore: {at: sydney, standby: [^tokyo]}", "shore.standby[0]", "feeds.ducks never reaches tokyo", "links"),
]


def test_no_site_has_the_name_of_shores_log() -> None:
    (found,) = mistakes_of(RIGHT.replace("shop", "shore"))
    assert (found.path, "alerts.shore" in found.problem) == ("sites.shore", True)


def test_shore_cannot_move_to_a_ship() -> None:
    found = mistakes_of(with_line(19, "shore: {at: sydney, standby: [duck-star]}"))
    assert any("cannot move to 'duck-star'" in mistake.problem for mistake in found)


def test_clusters_behind_one_address_are_told_apart_by_their_logins() -> None:
    """A cloud may have many clusters behind one address, and choose by the API key or by an extension of the token."""
    kafka = "{{bootstrap: 'cloud.example:9092', sasl_mechanism: {}}}"
    keys = [kafka.format(f"PLAIN, logins: {{admin: KEY{number}}}") for number in (1, 2)]
    issuer = "OAUTHBEARER, oauth: {{endpoint: 'https://id.example/token', extensions: {{logicalCluster: lkc-{}}}}}"
    tokens = [kafka.format(issuer.format(number)) for number in (1, 2)]
    for one, other in (keys, tokens):
        shop, twin = f"  shop: {{kind: customer, kafka: {one}}}", "  twin: {{kind: hq, kafka: {}}}"
        assert "twin" in read(with_line(6, f"{shop}\n{twin.format(other)}"), "small.yaml").sites
        (found,) = mistakes_of(with_line(6, f"{shop}\n{twin.format(one)}"))
        assert found.path == "sites.twin.kafka.bootstrap"


@pytest.mark.parametrize("case", FORM + BETWEEN, ids=lambda case: f"{case.path}:{case.problem}")
def test_one_mistake_is_found_where_it_stands(case: Case) -> None:
    marked = with_line(case.line, case.text)
    before = marked[: marked.index("^")]
    line, column = before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1
    (found,) = mistakes_of(marked.replace("^", ""))
    assert (found.file, found.line, found.column, found.path) == ("small.yaml", line, column, case.path)
    assert case.problem in found.problem
    assert case.expected in found.expected
    assert found.nearest == case.nearest


def test_geofences_need_shore() -> None:
    geofences = "geofences: {cape: {at: {latitude: 1, longitude: 2}, within_km: 5}}\n"
    assert read(RIGHT + geofences, "small.yaml").geofences["cape"].within_km == 5
    found = mistakes_of(RIGHT.replace("shore: {at: sydney}\n", geofences))
    assert ("geofences", "shore: {at: <site>}") in [(mistake.path, mistake.expected) for mistake in found]


def test_a_feed_needs_shore() -> None:
    found = mistakes_of(RIGHT.replace("shore: {at: sydney}\n", ""))
    assert [(m.line, m.path) for m in found] == [(16, "customers.ducks.feed_at")]
    assert "without shore" in found[0].problem


def test_a_feed_needs_its_stream() -> None:
    """It is there by itself only where there is shipping: without it the customer would be let in, and read nothing."""
    found = mistakes_of(
        """\
name: office
sites:
  sydney: {kind: hq}
customers:
  ducks: {feed_at: sydney}
shore: {at: sydney}
"""
    )
    assert [(m.line, m.path, m.expected) for m in found] == [
        (5, "customers.ducks.feed_at", "streams: {feeds: {insert_point: shore}}")
    ]
    assert "without stream feeds" in found[0].problem


def test_no_feed_comes_by_way_of_a_ship() -> None:
    """Ships pass on no records of other sites but those of boxes."""
    text = with_line(13, "  - {from: duck-star, to: shop, streams: {alerts: all, feeds: all}}")
    text = text.replace("streams: {containers: aboard}", "streams: {containers: aboard, feeds: all}")
    found = mistakes_of(text.replace("  - {from: sydney, to: shop, streams: {feeds: [ducks]}}\n", ""))
    assert "links[2].streams.feeds" in {mistake.path for mistake in found}


def test_the_right_example_is_right() -> None:
    assert read(RIGHT, "small.yaml").name == "small"


def test_mistakes_of_form_and_between_parts_come_together_in_the_order_of_the_lines() -> None:
    text = RIGHT.replace("kind: port, unlocode: JPTYO", "kind: prot, unlocode: JPTYO").replace(
        "{at: sydney}", "{at: x}"
    )
    found = mistakes_of(text.replace("to: shop", "to: shap").replace("name: small", "name: S"))
    assert [(m.line, m.path) for m in found] == [
        (1, "name"),
        (3, "sites.tokyo.kind"),
        (14, "links[3].to"),
        (19, "shore.at"),
    ]


def test_a_mistake_behind_an_anchor_is_reported_once() -> None:
    text = RIGHT.replace("streams: {containers: aboard}", "streams: &x {containrs: aboard}")
    found = mistakes_of(text.replace("rate: 64 kbit/s, streams: {alerts: all}", "streams: *x"))
    assert [(m.line, m.path) for m in found] == [(12, "links[1].streams.containrs")]


@pytest.mark.parametrize(
    ("text", "line", "column", "problem"),
    [
        ("", 1, 1, "empty"),
        ("# only a comment\n", 1, 1, "empty"),
        ("- a\n- b\n", 1, 1, "a list instead of a topology"),
        ("name: a\nsites: {tokyo: [}\n", 2, 17, "not YAML"),
        ("name: a\n\tsites: {}\n", 2, 1, "not YAML"),
        ("name: a\n---\nname: b\n", 2, 1, "not YAML"),
        ("name: a\nsites: *nowhere\n", 2, 8, "not YAML"),
        ("name: a\x07b\n", 1, 8, "does not allow: U+0007"),
        ('name: "\\UFFFFFFFF"\n', 1, 10, "not YAML"),
        ("[" * 1500, 1, 1, "nested too deeply"),
    ],
)
def test_other_files_are_refused(text: str, line: int, column: int, problem: str) -> None:
    first = mistakes_of(text)[0]
    assert (first.line, first.column) == (line, column)
    assert problem in first.problem


@pytest.mark.parametrize(
    ("text", "line", "path", "problem"),
    [
        (RIGHT + "shore: {at: tokyo}\n", 20, "shore", "the first is on line 19"),
        (with_line(3, "  tokyo: {kind: port, unlocode: JPTYO, kind: hq}"), 3, "sites.tokyo.kind", "written twice"),
        (with_line(3, "  tokyo: {kind: port, unlocode: !x JPTYO}"), 3, "sites.tokyo.unlocode", "the tag !x"),
        (with_line(3, "  ? [a]\n  : 1\n  tokyo: {kind: port, unlocode: JPTYO}"), 3, "sites", "a key that is not text"),
        (with_line(3, "  tokyo: &t {kind: port, unlocode: JPTYO, x: *t}"), 3, "sites.tokyo.x", "inside its own anchor"),
        (with_line(3, "  tokyo: {kind: port, unlocode: JPTYO, <<: 3}"), 3, "sites.tokyo", "without another mapping"),
    ],
)
def test_yaml_that_topologies_do_not_allow_is_refused(text: str, line: int, path: str, problem: str) -> None:
    found = [m for m in mistakes_of(text) if m.path == path and problem in m.problem]
    assert [m.line for m in found] == [line]


def test_names_that_yaml_takes_for_truth_values_are_names() -> None:
    topology = read("name: names\nsites:\n  no: {kind: datacentre}\n  on: {kind: datacentre}\n", "x.yaml")
    assert list(topology.sites) == ["no", "on"]


def test_merge_keys_work_and_written_keys_win() -> None:
    text = """\
name: merged
sites:
  a: &a {kind: datacentre, title: A, retention: {default: 1d}}
  b: {<<: *a, title: B}
  c: {<<: [{title: C}, *a]}
"""
    sites = read(text, "x.yaml").sites
    assert [(s.title, s.kind, s.retention == sites["a"].retention) for s in sites.values()] == [
        ("A", "datacentre", True),
        ("B", "datacentre", True),
        ("C", "datacentre", True),
    ]


def test_a_billion_laughs_end_soon() -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    assert any("too large" in m.problem for m in mistakes_of("\n".join(levels)))


def test_a_billion_merges_end_soon() -> None:
    levels = ["a0: &a0 {x: 1}"]
    levels += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 12)]
    assert any("too large" in m.problem for m in mistakes_of("\n".join(levels)))


@pytest.mark.parametrize(
    ("sites", "customers", "users", "place", "variable"),
    [
        ("", "ducks-next: {reads_at: [tokyo]}", "", "customers.ducks", "FAIRLEAD_SECRET_TOKYO_DUCKS_NEXT"),
        ("", "", "ducks-next: {at: [sydney]}", "users.ducks-next", "FAIRLEAD_SECRET_SYDNEY_DUCKS_NEXT"),
        ("", "", "bridge-mqtt: {at: [tokyo]}", "users.bridge-mqtt", "FAIRLEAD_SECRET_TOKYO_BRIDGE_MQTT"),
        ("", "", "bridge-session: {at: [shop]}", "users.bridge-session", "FAIRLEAD_SECRET_SHOP_BRIDGE_SESSION"),
        ("", "", "admin-next: {at: [shop]}", "users.admin-next", "FAIRLEAD_SECRET_SHOP_ADMIN_NEXT"),
        (
            "tokyo-east: {kind: hq}",
            "east-shop: {reads_at: [tokyo]}\n  shop: {reads_at: [tokyo-east]}",
            "",
            "customers.shop",
            "FAIRLEAD_SECRET_TOKYO_EAST_SHOP",
        ),
    ],
)
def test_names_whose_secrets_would_be_one_are_refused(
    sites: str, customers: str, users: str, place: str, variable: str
) -> None:
    """Whoever sets the one would give the other party the same password."""
    text = RIGHT.replace(
        "  ducks: {feed_at: sydney, reads_at: [shop]}", "  ducks: {feed_at: sydney, reads_at: [shop, tokyo]}"
    )
    for section, more in (("sites", sites), ("customers", customers), ("users", users)):
        text = text.replace(f"{section}:\n", f"{section}:\n  {more}\n") if more else text
    clashes = [m for m in mistakes_of(text) if variable in m.problem]
    assert len(clashes) == 1, mistakes_of(text)
    assert clashes[0].path == place and clashes[0].line > 1


def test_names_that_look_alike_and_have_secrets_of_their_own_are_fine() -> None:
    fine = RIGHT.replace("analyst: {at: [tokyo]}", "analyst: {at: [tokyo]}\n  ducks-next: {at: [tokyo]}")
    assert "ducks-next" in read(fine, "small.yaml").users  # ducks has no password at tokyo


@pytest.mark.parametrize(
    "line",
    [
        "  tokyo: {kind: port, unlocode: JPTYO, kafka: {bootstrap: 'a:1', password: hunter2}}",
        "  tokyo: {kind: port, unlocode: JPTYO, sasl_password: 'hunter2'}",
        "  tokyo: {kind: port, unlocode: JPTYO, secret: [hunter2]}",
        "  tokyo: {kind: port, unlocode: JPTYO, token: hunter2, password:\n    hunter2}",
        "  tokyo: {kind: port, unlocode: JPTYO, mqtt: {host: 'me:hunter2@there', port: 1}}",
        "  tokyo: {kind: prot, unlocode: JPTYO, kafka: {bootstrap: 'me:hunter2@there:1'}}",
    ],
)
def test_secrets_are_refused_and_never_repeated(line: str) -> None:
    with pytest.raises(TopologyErrors) as caught:
        read(with_line(3, line), "small.yaml")
    secret = [m for m in caught.value.mistakes if "a secret in" in m.problem]
    assert all("FAIRLEAD_SECRET_<SITE>_<USER>" in m.expected for m in secret) and secret
    assert "hunter2" not in str(caught.value) + repr(caught.value.fields) + repr(caught.value.mistakes)


@pytest.mark.parametrize("scalar", ["#" * 200_000, "a:" * 100_000, "token: " * 20_000, "a" * 200_000 + ":b@c"])
def test_a_very_long_line_is_neither_shown_nor_looked_through(scalar: str) -> None:
    # Looking through it takes the square of its length: without the limit this ends in the session's timeout.
    found = mistakes_of(with_line(1, f"name: '{scalar}'"))
    assert [(m.path, m.problem, m.excerpt) for m in found] == [("name", "a very long text does not belong here", "")]


@pytest.mark.parametrize(
    ("address", "secret"),
    [
        ("s3://key:word@bucket/x", True),
        ("user:word@host:9092", True),
        ("abfss://container@account.dfs.core.windows.net/x", False),
        ("s3://bucket/a:b@c", False),
        ("host:9092", False),
        ("", False),
    ],
)
def test_which_addresses_carry_a_password(address: str, secret: bool) -> None:
    assert has_user_info(address) is secret


def test_secrets_do_not_show_where_the_file_is_no_yaml() -> None:
    with pytest.raises(TopologyErrors) as caught:
        read("name: a\npassword: hunter2: [\n", "small.yaml")
    assert caught.value.mistakes[0].line == 2
    assert "hunter2" not in str(caught.value)


def test_mistakes_are_shown_with_their_line() -> None:
    shown = render(
        [
            Mistake("f.yaml", 12, 7, "links[0].to", "there is no site 'x'", "a, b", "a", excerpt="  - to: x"),
            Mistake("$FAIRLEAD_SITES__A__KIND", 0, 0, "sites.a.kind", "'y' does not belong here"),
        ]
    )
    assert shown == (
        "f.yaml:12:7: links[0].to: there is no site 'x'\n"
        "  12 |   - to: x\n"
        "     |       ^\n"
        "  expected: a, b\n"
        "  did you mean: a\n"
        "\n"
        "$FAIRLEAD_SITES__A__KIND: sites.a.kind: 'y' does not belong here"
    )


def test_the_caret_stands_under_its_column_in_long_and_wide_lines() -> None:
    wide = render([Mistake("f", 1, 4, "", "p", excerpt="東京x!")]).splitlines()
    assert wide[2].index("^") == wide[1].index("x!") + 2 + 1  # two wide characters before: two more columns, then one
    excerpt = "a" * 300 + "!" + "b" * 300
    long = render([Mistake("f", 1, 301, "", "p", excerpt=excerpt)]).splitlines()
    assert len(long[1]) < 120
    assert long[1][long[2].index("^")] == "!"
