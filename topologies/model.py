"""Define the typed model of a topology: sites, streams, links, people, and queries that the rest of Fairlead needs.

A topology lists sites and users and their permissions; it never holds a secret. Models are frozen and forbid unknown
keys. ``topologies.loader.check`` checks cross-references (a link to an unknown site, an undeclared stream), so that the
loader can report every mistake at once with its line.
"""

from __future__ import annotations

import datetime as dt
import fnmatch
import re
from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PrivateAttr, SecretStr

from fairlead.errors import UnknownNameError
from fairlead.kafka.endpoint import SaslMechanism
from fairlead.local.state import Profile
from fairlead.names import SITE_NAME, STREAM_NAME, LogName, is_container_number, is_imo_number, owner_code, parse_log
from fairlead.records.alert import RAISED_BY_SHORE, Severity
from topologies.values import (
    Bootstrap,
    BytesPerSecond,
    Duration,
    HttpUrl,
    Package,
    Percent,
    PositiveDuration,
    RowRetention,
    SparkSettings,
    Start,
    TimeOfDay,
    TimeZone,
    parse_web_address,
)


class Model(BaseModel):
    """Base of all models: frozen, unknown keys are mistakes."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


def _check_imo(value: str) -> str:
    if not value.isascii() or not is_imo_number(value):
        raise ValueError("expected an IMO ship number: seven digits with a right check digit, in quotes")
    return value


def _check_unlocode(value: str) -> str:
    if re.fullmatch("[A-Z]{2}[A-Z2-9]{3}", value) is None:
        raise ValueError("expected a UN/LOCODE: two letters of the country and three of the place (JPTYO)")
    return value


def _check_owner(value: str) -> str:
    if re.fullmatch("[A-Z]{3}[UJZ]", value) is None:
        raise ValueError("expected an ISO 6346 owner code with category: four letters ending in U, J or Z (BIGU)")
    return value


def _name(pattern: str) -> AfterValidator:
    compiled = re.compile(pattern)

    def check(value: str) -> str:
        if not compiled.fullmatch(value):
            raise ValueError("expected a name of lower-case letters, digits and hyphens, beginning with a letter")
        return value

    return AfterValidator(check)


KEY_PATTERN = re.compile(r"[A-Za-z0-9._-]+\*?")  # a key, or the beginning of keys and *, as in Kafka ACLs
Imo = Annotated[str, AfterValidator(_check_imo)]
Unlocode = Annotated[str, AfterValidator(_check_unlocode)]
OwnerCode = Annotated[str, AfterValidator(_check_owner)]
SiteName = Annotated[str, _name(SITE_NAME.pattern)]
StreamName = Annotated[str, _name(STREAM_NAME.pattern)]


NEEDED_WHOLE = ("custody", "strays")
"""Streams whose logs are copied from their start, and of which a site deletes its own only if it is told to."""


class SiteKind(StrEnum):
    """The kind of a site (docs/design.md). ``datacentre`` is a plain data centre, for topologies without shipping."""

    SHIP = "ship"
    PORT = "port"
    HQ = "hq"
    CUSTOMER = "customer"
    DATACENTRE = "datacentre"


class InsertPoint(StrEnum):
    """The site where new records may enter the logs of a stream.

    ``moves``: the site that has custody of the container. ``ship``: the ship whose IMO number the key begins with.
    ``site``: the site whose name the key begins with. ``shore``: the site where shore runs.
    """

    MOVES = "moves"
    SHIP = "ship"
    SITE = "site"
    SHORE = "shore"


class Priority(StrEnum):
    """The priority class of a log on a link: all records of a class are copied before any record of the next."""

    CONTROL = "control"
    URGENT = "urgent"
    NORMAL = "normal"
    BULK = "bulk"


PERMISSIONS = ("admin", "produce", "consume", "topic", "copy")
"""The five permissions of a stream, with MapR's names."""


class Permissions(Model):
    """The five permissions of a stream as access expressions (``topologies.expression``: u: g: r: p & | ! parentheses).

    An empty expression selects nobody. Fairlead's own services are not listed: their rights follow from the links.
    """

    admin: str = ""
    produce: str = ""
    consume: str = ""
    topic: str = ""
    copy_: str = Field(default="", alias="copy")

    def text(self, permission: str) -> str:
        """Return the expression of one of ``PERMISSIONS``."""
        return str(getattr(self, "copy_" if permission == "copy" else permission))


def _check_key_pattern(value: str) -> str:
    if KEY_PATTERN.fullmatch(value) is None:
        raise ValueError(
            "expected a log's key, or the beginning of keys with one * at the end (REDU123*), as in Kafka's ACLs; "
            "rights on all keys go into permissions"
        )
    return value


KeyPattern = Annotated[str, AfterValidator(_check_key_pattern)]


class Stream(Model):
    """A named group of logs ``<stream>.<key>`` with common settings.

    ``keys`` adds permissions on some of its logs to those of the stream: by key, or by the beginning of keys and ``*``.
    """

    title: str = ""
    insert_point: InsertPoint = InsertPoint.SITE
    owners: tuple[OwnerCode, ...] = ()  # only for insert_point "moves": owners of the boxes in this stream
    priority: Priority = Priority.NORMAL
    permissions: Permissions = Permissions()
    keys: dict[KeyPattern, Permissions] = Field(default_factory=dict)


class OidcAddress(Model):
    """An OpenID provider that issues the tokens with which users of a cluster log in (OAuth 2.0 client credentials).

    ``endpoint`` is its token endpoint. A user's client id is its name in ``logins``, its client secret is its password.
    """

    endpoint: HttpUrl
    scope: str = ""
    ca: str | None = None  # PEM file
    extensions: dict[str, str] = Field(default_factory=dict)


class KafkaAddress(Model):
    """An existing cluster; without one the site is started as a local process by ``fairlead up``.

    ``security`` and ``sasl_mechanism`` are Kafka's ``security.protocol`` and ``sasl.mechanism``. With ``SSL`` a user is
    known by its certificate: ``<user>.pem`` and ``<user>.key`` in the folder ``certificates``. ``logins`` has the names
    of users that have other names at the cluster (API keys, client ids).
    """

    bootstrap: Bootstrap  # host:port[,host:port...]
    security: Literal["SASL_PLAINTEXT", "SASL_SSL", "SSL"] = "SASL_SSL"
    sasl_mechanism: SaslMechanism = SaslMechanism.SCRAM_SHA_512
    ca: str | None = None  # PEM file
    certificates: str | None = None  # folder
    logins: dict[str, str] = Field(default_factory=dict)
    oauth: OidcAddress | None = None

    @property
    def tls(self) -> bool:
        """Whether clients connect by TLS."""
        return self.security != "SASL_PLAINTEXT"


class MqttAddress(Model):
    """An existing MQTT broker of the site. The default is TLS; plaintext is refused at MQTT's port for TLS."""

    host: str
    port: int = Field(ge=1, le=65535)
    security: Literal["TLS", "PLAINTEXT"] = "TLS"
    ca: str | None = None  # PEM file


class SiteCertificate(Model):
    """The user's own certificate for a site that ``fairlead up`` starts. Its Kafka and Mosquitto then accept TLS only.

    PEM files: the certificate, followed by the intermediate certificates up to an authority in ``ca``, which clients
    trust; and the certificate's key.
    """

    file: str
    key: str
    ca: str


class Place(Model):
    """A place in WGS 84 degrees."""

    latitude: float = Field(ge=-90, le=90)
    longitude: float = Field(ge=-180, le=180)


class Geofence(Model):
    """A circle on the sea or ashore; shore finds ships' visits of it in their positions."""

    at: Place
    within_km: float = Field(ge=0.1, le=5_000)


class Site(Model):
    """One Kafka cluster with its MQTT broker and services.

    ``position``: where a port's berths lie, if far from the coordinates of its UN/LOCODE, or if these are not known.
    ``mqtt_profile``: whether the MQTT broker and the devices lose no message when the broker is killed; null for the
    option of ``fairlead up``, whose default is durable. ``mqtt_gateway``: whether the MQTT user ``device`` exists, a
    gateway that may publish for every box, ship and terminal; each device may also have its own user. ``rack``: where
    the site's replicator runs, as Kafka's ``client.rack``; it reads other sites' logs from brokers with this
    ``broker.rack``.
    """

    kind: SiteKind
    title: str = ""
    unlocode: Unlocode | None = None
    position: Place | None = None
    imo: Imo | None = None
    retention: dict[StreamName | Literal["default"], Duration] = Field(default_factory=dict)
    kafka: KafkaAddress | None = None
    mqtt: MqttAddress | None = None
    mqtt_profile: Profile | None = None
    mqtt_gateway: bool = True
    rack: str = ""
    certificate: SiteCertificate | None = None

    @property
    def is_local(self) -> bool:
        """Whether ``fairlead up`` starts its cluster on this machine."""
        return self.kafka is None

    def retention_of(self, stream: str) -> dt.timedelta:
        """Return how long this site keeps records of a stream; forever unless the topology has another value."""
        if stream == ENDS:
            return self.retention.get(stream, ENDS_RETENTION)
        return self.retention.get(stream, self.retention.get("default", dt.timedelta.max))

    def own_retention_of(self, stream: str) -> dt.timedelta:
        """Return how long this site keeps records of logs that it holds.

        As ``retention_of``, but what the site needs for its own work, its ledger and what waits for custody, goes only
        if the topology names the stream.
        """
        if stream in NEEDED_WHOLE and stream not in self.retention:
            return dt.timedelta.max
        return self.retention_of(stream)


Selection = Literal["all", "aboard"] | tuple[str, ...]


class Link(Model):
    """A directed permission: site ``to`` may pull these streams from site ``from``, under this policy.

    ``streams`` maps a stream to ``all``, ``aboard`` (logs whose custody the target has or is being given) or a list of
    key patterns (shell style). ``when: berthed`` opens the link while the ship at either end is at the other end's
    port. ``priority`` gives a stream another class on this link than elsewhere. ``start`` applies to logs that the
    target does not have yet: ``earliest`` (all records of the source), ``latest`` (its newest record and later ones),
    ``end`` (later records only) or a time (the first record at or after it); offsets are the same in all cases.
    ``groups`` are patterns of consumer groups whose committed offsets are copied over the link.
    """

    from_: SiteName = Field(alias="from")
    to: SiteName
    streams: dict[StreamName, Selection]
    when: Literal["always", "berthed"] = "always"
    rate: BytesPerSecond | None = None
    priority: dict[StreamName, Priority] = Field(default_factory=dict)
    start: Start = "earliest"
    groups: tuple[str, ...] = ()
    both: bool = False  # there is the same link in the other direction as well

    @property
    def name(self) -> str:
        return f"{self.from_}->{self.to}" + (":berthed" if self.when == "berthed" else "")

    def priority_of(self, stream: str, usual: Priority) -> Priority:
        """Return the priority class of a stream on this link; ``usual`` is its class elsewhere."""
        return self.priority.get(stream, usual)

    def takes(self, log: LogName) -> bool:
        """Return whether the link selects a log. ``aboard`` counts as yes, because custody decides it at run time.
        ``Topology.takes`` also checks whether the source may extend the log."""
        selection = self.streams.get(log.stream)
        if selection is None:
            return False
        if isinstance(selection, str):
            return True
        return any(fnmatch.fnmatchcase(log.key, pattern) for pattern in selection)


Grain = Literal["detailed", "coarse", "movements", "alerts"]


class Quota(Model):
    """The limits of a user at each broker of a site; None means no limit.

    ``consume``, ``produce``: bytes per second. ``requests``: a share of one thread's time. Brokers delay their answers
    to a user above its limit; no request fails.
    """

    consume: BytesPerSecond | None = None
    produce: BytesPerSecond | None = None
    requests: Percent | None = None


class Customer(Model):
    """A party that reads the logs that it is entitled to, with its own Kafka user of the same name.

    ``feed_at``: the site where it reads ``feeds.<customer>`` (its bookings' containers), or null without a feed.
    ``feed``: the content of the feed. ``detailed``: every reading, alert and grant of custody; ``coarse``: milestones,
    hourly conditions and alerts; ``movements``: movements of ships and boxes of all lines at ``port``, without cargo
    data; ``alerts``: every alert about containers of these ``owners``, with or without a booking, and nothing else.
    ``table``: shore also keeps the feed as a Delta table in a folder of its own (``customers/<customer>``).
    """

    title: str = ""
    feed_at: SiteName | None = None
    feed: Grain = "detailed"
    port: Unlocode | None = None  # only for movements
    owners: tuple[OwnerCode, ...] = ()  # only for alerts
    table: bool = False
    groups: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    reads_at: tuple[SiteName, ...] = ()  # sites where its user exists besides feed_at
    quota: Quota = Quota()


class User(Model):
    """A person or program with its own Kafka user; ``at`` names the sites where the user exists."""

    title: str = ""
    groups: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    at: tuple[SiteName, ...] = ()
    quota: Quota = Quota()


RetainedTable = Literal[
    "readings",
    "readings_rejected",
    "positions",
    "environment",
    "digests",
    "conditions",
    "mkt",
    "excursions",
    "excursion_parts",
    "alerts_ashore",
    "port_calls",
    "voyages",
    "quality",
]
"""Tables whose rows may be deleted by age (``shore.maintenance.TIMES`` has their times)."""


class Maintenance(Model):
    """How often ``fairlead shore run`` looks after the tables; null switches one off.

    Args:
        compact: Small files become few.
        vacuum: Files that no version of the last seven days needs are deleted.
        expire: Rows past their table's retention are deleted.
    """

    compact: PositiveDuration | None = dt.timedelta(hours=1)
    vacuum: PositiveDuration | None = dt.timedelta(days=1)
    expire: PositiveDuration | None = dt.timedelta(days=1)


class Exceptions(Model):
    """From which hours on shore marks schedules and milestones as exceptions.

    Args:
        eta_hours: An arrival is expected more hours earlier or later than was said first.
        dwell_hours: A container stayed more hours in a port.
    """

    eta_hours: int = Field(default=12, ge=1, le=720)
    dwell_hours: int = Field(default=168, ge=1, le=8_760)


class Shore(Model):
    """The site where PySpark reads the logs and writes the customers' feeds, and its settings.

    Args:
        at: The site where shore runs.
        standby: Sites to which shore can move when ``at`` is lost (``fairlead shore run --site SITE``). Shore's user
            and its rights exist there, too.
        master: Spark's master: ``local[2]``, ``spark://host:7077``.
        tables: URL or folder of tables and checkpoints, which all of Spark's machines can reach; null for the
            topology's state folder.
        settings: Spark settings that override shore's defaults.
        packages: Jars besides Delta's, by Maven coordinates (for a storage such as S3).
        activation_energy: kJ/mol, for the mean kinetic temperature. The default is USP's value, for use when the
            product's own is unknown. Another value rebuilds table ``mkt``.
        exceptions: The limits of exceptions. Another limit renews the marks in ``schedules`` and ``milestones``.
        maintenance: How often files and old rows are looked after.
        retention: How long rows of a table are kept, 30 days at least; for ever where it is not named.
        fail_on_data_loss: Whether a job stops when records were deleted before it read them, until somebody
            acknowledges it. If not, it goes on and reports them.
    """

    at: SiteName
    standby: tuple[SiteName, ...] = ()
    master: str = "local[2]"
    tables: str | None = None
    settings: SparkSettings = Field(default_factory=dict)
    packages: tuple[Package, ...] = ()
    activation_energy: float = Field(default=83.144, ge=10.0, le=500.0)
    exceptions: Exceptions = Exceptions()
    maintenance: Maintenance = Field(default_factory=Maintenance)
    retention: dict[RetainedTable, RowRetention] = Field(default_factory=dict)
    fail_on_data_loss: bool = True

    @property
    def sites(self) -> tuple[str, ...]:
        """The sites where shore may run; the usual one is first."""
        return (self.at, *self.standby)


def _check_issuer(value: str) -> str:
    url = parse_web_address(value)
    if url.username is not None or url.password is not None or url.query or url.fragment:
        raise ValueError("expected an address without a user, a password, ? or #")
    return value


class Oidc(Model):
    """The OpenID Connect provider at which people may sign in to the board.

    Args:
        issuer: As the provider's discovery document has it.
        client_id: The board's name at the provider. Its secret is ``board-oidc`` among the secrets of the board's site.
        claim: The claim of the ID token that says who somebody is, such as ``email``, ``sub`` or ``groups``.
        names: For values of that claim, the customer or user that they sign in.
        scope: What the board asks the provider for.
        passwords: Whether the passwords of Kafka users sign in as well.
    """

    issuer: Annotated[str, AfterValidator(_check_issuer)]
    client_id: str = Field(min_length=1)
    claim: str = Field(default="email", min_length=1)
    names: Mapping[str, str] = Field(min_length=1)
    scope: str = "openid email"
    passwords: bool = True


class Board(Model):
    """The pages for a browser (``fairlead board``).

    ``at``: the sites where it may run; each has a Kafka user ``board`` for it. ``read``: the customers and users that
    see the whole fleet, its ports and containers. ``operate``: those of them that also acknowledge and clear alerts.
    Both are access expressions; the empty one selects nobody. Customers with a table of their own see it in any case.
    ``oidc``: the provider at which people may sign in, as well as by the passwords of their Kafka users, or only there.
    """

    at: tuple[SiteName, ...] = Field(min_length=1)
    read: str = ""
    operate: str = ""
    oidc: Oidc | None = None


class Quiet(Model):
    """The hours, of every day in one time zone, in which a route holds its notifications back.

    Args:
        critical: Whether alerts of severity CRITICAL are sent all the same.
    """

    from_: TimeOfDay = Field(alias="from")
    until: TimeOfDay
    zone: TimeZone
    critical: bool = True


def _check_webhook(value: str) -> str:
    url = parse_web_address(value)
    if url.username is not None or url.password is not None or url.fragment:
        raise ValueError("expected an address without a user, a password or #: the signature proves the sender")
    if not value.isascii() or not value.isprintable() or " " in value:
        raise ValueError(
            "expected an address in ASCII without spaces; other characters percent-encoded, as browsers copy it"
        )
    return value


def _check_target(value: str) -> str:
    if "://" not in value and value != PLACEHOLDER:
        raise ValueError(f"expected an address as apprise writes it (mailtos://...), or {PLACEHOLDER}")
    try:
        password = urlsplit(value).password if "://" in value else None
    except ValueError:
        password = None
    if password and password != PLACEHOLDER:
        raise ValueError(f"expected {PLACEHOLDER} in place of the password: topologies hold no secrets")
    return value


PLACEHOLDER = "{secret}"
"""The place of a route's secret in its address."""


class Webhook(Model):
    """An address that gets every notification as a signed HTTP POST."""

    webhook: Annotated[str, AfterValidator(_check_webhook)]


Change = Literal["opened", "raised", "cleared"]


class Route(Model):
    """The alerts that go to one receiver: those that fit every filter it has; an empty filter fits all.

    Args:
        to: A webhook, or an address of the library apprise with ``{secret}`` in place of its password or token.
        ports: The sites that raise the alert: ports, ships by their names; ``shore`` for those that only shore finds.
        streams: The streams of the container.
        customers: Only alerts that these customers get in their feeds.
        severity: The least one.
        changes: What of an alert is sent: that it opened, that its severity rose, that it is over.
    """

    to: Annotated[str, AfterValidator(_check_target)] | Webhook
    ports: tuple[SiteName, ...] = ()
    streams: tuple[StreamName, ...] = ()
    customers: tuple[SiteName, ...] = ()
    kinds: tuple[str, ...] = ()
    severity: Severity = "WARNING"
    changes: tuple[Change, ...] = ("opened", "raised", "cleared")
    quiet: Quiet | None = None


class Notify(Model):
    """The notifications of alerts, and the site beside which ``fairlead notify run`` sends them."""

    at: SiteName
    routes: dict[SiteName, Route]


DEFAULT_STREAMS: dict[str, Stream] = {
    "ships": Stream(title="Ships' logs", insert_point=InsertPoint.SHIP),
    "events": Stream(title="Port and vessel events"),
    "alerts": Stream(title="Alerts", priority=Priority.URGENT),
    "custody": Stream(title="Ledger of custody", priority=Priority.CONTROL),
    "strays": Stream(title="Readings waiting for custody", priority=Priority.BULK),
    "deadletters": Stream(title="Messages the bridge could not use", priority=Priority.BULK),
    "bookings": Stream(title="Changes to bookings"),
    "feeds": Stream(title="What each customer may read", insert_point=InsertPoint.SHORE),
    "ends": Stream(title="Log ends that each site confirms", priority=Priority.BULK),
}
"""The streams of every topology with shipping; a topology may declare one again to change it."""

ENDS = "ends"
"""The stream of the log ends that sites confirm to one another (``topologies.retention``). Every topology has it."""

ENDS_RETENTION = dt.timedelta(days=1)
"""How long a site keeps the logs of ``ends`` unless the topology names the stream; a whole list is a quarter of it."""

SHORE_ALERTS = f"alerts.{RAISED_BY_SHORE}"
"""The log of the alerts that shore finds, in the stream of the sites' alerts. Shore appends to it where it runs."""

BRIDGE_STREAMS = frozenset({"events", "alerts", "custody", "strays", "deadletters", "bookings"})
"""The bridge's own streams: exactly one log ``<stream>.<site>`` for each site that has a bridge."""

ONE_LOG_PER_SITE = BRIDGE_STREAMS | {ENDS}
"""Streams with exactly one log ``<stream>.<site>`` for each site that writes there."""

WRITTEN_BY_SERVICES = ONE_LOG_PER_SITE | {"ships", "feeds"}
"""Default streams that only Fairlead's own services write. They also write all streams that move by custody."""

_SHIP_LOGS = ("location", "environment", "roll-calls", "digest")
"""A ship's bridge writes ``ships.<imo>.<one of these>``."""


class Topology(Model):
    """A whole topology.

    ``name`` is also the name of its state folder. ``streams`` includes the default ones if there are ships or ports
    (``topologies.loader.load`` adds them). ``tls``: sites that ``fairlead up`` starts accept TLS only.
    """

    name: SiteName
    title: str = ""
    description: str = ""
    sites: dict[SiteName, Site]
    streams: dict[StreamName, Stream] = Field(default_factory=dict)
    links: tuple[Link, ...] = ()
    customers: dict[SiteName, Customer] = Field(default_factory=dict)
    users: dict[str, User] = Field(default_factory=dict)
    shore: Shore | None = None
    board: Board | None = None
    notify: Notify | None = None
    geofences: dict[SiteName, Geofence] = Field(default_factory=dict)
    tls: bool = False

    _secrets: dict[tuple[str, str], SecretStr] = PrivateAttr(default_factory=dict)  # never part of the model's data

    def with_secrets(self, secrets: Mapping[tuple[str, str], SecretStr]) -> Topology:
        """Return the same topology with passwords by (site, user) from a local override file."""
        copy = self.model_copy()
        copy._secrets = dict(secrets)  # noqa: SLF001 - of our own copy
        return copy

    def secret(self, site: str, user: str) -> SecretStr | None:
        """Return the password of a user at a site from a local override file; None if it has none."""
        return self._secrets.get((site, user))

    def directed_links(self) -> tuple[Link, ...]:
        """Return every link as one-directional links: a link with ``both`` becomes two."""
        out: list[Link] = []
        for link in self.links:
            one = link.model_copy(update={"both": False})
            out.append(one)
            if link.both:
                out.append(one.model_copy(update={"from_": link.to, "to": link.from_}))
        return tuple(out)

    def links_to(self, site: str) -> tuple[Link, ...]:
        return tuple(link for link in self.directed_links() if link.to == site)

    @property
    def sites_with_bridge(self) -> list[str]:
        """The sites with a bridge and an MQTT broker: all but customers'."""
        return [name for name, site in self.sites.items() if site.kind is not SiteKind.CUSTOMER]

    def has_replicator(self, site: str) -> bool:
        """Return whether ``fairlead replicate`` runs beside a site: a link leads there, or its retention has an end."""
        kept = self.sites[site].retention.values()
        return bool(self.links_to(site)) or any(each != dt.timedelta.max for each in kept)

    def links_from(self, site: str) -> tuple[Link, ...]:
        return tuple(link for link in self.directed_links() if link.from_ == site)

    @property
    def moving_streams(self) -> tuple[str, ...]:
        """The streams that have a log per container and whose insert point moves with the container."""
        return tuple(name for name, stream in self.streams.items() if stream.insert_point is InsertPoint.MOVES)

    @property
    def shore_raises_alerts(self) -> bool:
        """Whether shore looks for alerts in readings, and writes those that it finds to ``SHORE_ALERTS``."""
        return self.shore is not None and bool(self.moving_streams) and "alerts" in self.streams

    def container_stream(self, container_number: str) -> str | None:
        """Return the stream of a box, by its ISO 6346 owner code; None if no stream has this owner."""
        owner = owner_code(container_number)
        for name, stream in self.streams.items():
            if stream.insert_point is InsertPoint.MOVES and owner in stream.owners:
                return name
        return None

    def is_box_log(self, topic: str) -> bool:
        """Return whether a log is a container's: its stream moves and can have a log of this name."""
        log = parse_log(topic)
        return log is not None and log.stream in self.moving_streams and self.has_log(log)

    def stream_of_container(self, container_number: str) -> str:
        """Return the stream of a box, by its ISO 6346 owner code.

        Raises:
            UnknownNameError: no stream has this owner.
        """
        stream = self.container_stream(container_number)
        if stream is None:
            owners = [owner for each in self.streams.values() for owner in each.owners]
            raise UnknownNameError("owner code with a stream in this topology", owner_code(container_number), owners)
        return stream

    def written_by_services(self, stream: str) -> bool:
        """Return whether only Fairlead's services write a stream, so that no user may get WRITE on it."""
        return stream in WRITTEN_BY_SERVICES or self.streams[stream].insert_point is InsertPoint.MOVES

    def has_log(self, log: LogName) -> bool:
        """Return whether a log of this name can exist. Its stream must be known. In a stream that moves, its key must
        be the number of a box (ISO 6346, with its check digit) of one of the stream's owners."""
        stream = self.streams.get(log.stream)
        if stream is None or stream.insert_point is not InsertPoint.MOVES:
            return stream is not None
        return is_container_number(log.key) and owner_code(log.key) in stream.owners

    def gives(self, site: str, log: LogName) -> bool:
        """Return whether other sites copy a log from this one.

        From a ship they copy the logs of boxes, as far as its custody goes, and the logs that belong to the ship by
        their name. A ship berths in foreign terminals: a thief of its passwords must not write for another site.
        """
        if not self.has_log(log):
            return False
        spec = self.sites[site]
        if log.stream == ENDS and spec.kind is SiteKind.CUSTOMER:
            return log.key == site
        if spec.kind is not SiteKind.SHIP or self.streams[log.stream].insert_point is InsertPoint.MOVES:
            return True
        if self.fixed_holder(str(log)) != site:
            return False
        if log.stream in ONE_LOG_PER_SITE:
            return log.key == site and log.stream != "bookings"  # bookings are made at an office ashore
        return log.stream != "ships" or log.key in {f"{spec.imo}.{each}" for each in _SHIP_LOGS}

    def takes(self, link: Link, log: LogName) -> bool:
        """Return whether a link may carry a log: the link selects the log, and other sites copy it from its source.
        ``aboard`` counts as selected, because custody decides it at run time."""
        return link.takes(log) and self.gives(link.from_, log)

    def ship_with(self, imo: str) -> str | None:
        """Return the site of the ship with this IMO number; None if there is none."""
        return next((n for n, s in self.sites.items() if s.kind is SiteKind.SHIP and s.imo == imo), None)

    def port_at(self, unlocode: str) -> str | None:
        """Return the site of the port at this UN/LOCODE, else the headquarters there; None if there is none."""
        at = [(n, s) for n, s in self.sites.items() if s.unlocode == unlocode]
        at.sort(key=lambda item: item[1].kind is not SiteKind.PORT)
        return next((n for n, s in at if s.kind in (SiteKind.PORT, SiteKind.HQ)), None)

    def fixed_holder(self, topic: str) -> str | None:
        """Return the one site that appends to a log whose insert point never moves; None for container logs and unknown
        logs."""
        log = parse_log(topic)
        stream = self.streams.get(log.stream) if log else None
        if log is None or stream is None:
            return None
        head = log.key.partition(".")[0]
        match stream.insert_point:
            case InsertPoint.SITE if topic == SHORE_ALERTS:
                return self.shore.at if self.shore else None
            case InsertPoint.SITE:
                return head if head in self.sites else None
            case InsertPoint.SHIP:
                return self.ship_with(head)
            case InsertPoint.SHORE:
                return self.shore.at if self.shore else None
            case InsertPoint.MOVES:
                return None


def check_sites(topology: Topology, sites: Collection[str] | None) -> tuple[str, ...]:
    """Return the named sites, in the topology's order; all unless some are named.

    Raises:
        UnknownNameError: the topology has no such site.
    """
    for site in sites or ():
        if site not in topology.sites:
            raise UnknownNameError("site", site, topology.sites)
    return tuple(site for site in topology.sites if sites is None or site in sites)
