"""Give a user a new password, site by site: open connections continue, new logins need the new password.

Kafka stores one SCRAM-SHA-512 credential per user, so it never accepts two passwords at once. Fairlead's services read
their password at each login and know both while it changes (``LocalSites.change_password``). At a site outside this
machine the operator provides the new password in ``FAIRLEAD_SECRET_<SITE>_<USER>_NEXT``, or in the usual variable or
local override file if only the cluster still has the old one.

A leaked password needs more. Kafka ends a session only when its broker stops, or when the client must log in again
(``connections.max.reauth.ms``, counted from each login). But it checks every request against the current ACLs. So the
user's ACLs are revoked, which stops open sessions at once, and restored when no earlier session can be open any more.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, cast

from confluent_kafka.admin import ConfigResource, ResourceType

from acl.compile import compile_site
from acl.history import LEAKED, UNTIL, Entry, UserChange, noting, stamp
from acl.kafka import AdminStore, Client, OpenStore, note, rules_of
from acl.plan import AccessRun, SitePlan, carry_out
from acl.rules import Binding
from acl.users import existing
from fairlead.errors import ConfigurationError, FairleadError, RefusedError, UnavailableError, UnknownNameError
from fairlead.kafka.admin import with_active_password
from fairlead.kafka.credentials import give_password
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.local import mosquitto
from fairlead.local.kafka import CONTROLLER
from fairlead.local.passwords import MQTT_BRIDGE, next_variable, secret_variable
from fairlead.local.sites import LocalSites
from topologies.endpoints import EndpointResolver
from topologies.model import Topology
from topologies.users import ADMIN, is_reserved, service_users

MARGIN = 2.0  # seconds beyond the longest life of a session
_SETTING = "connections.max.reauth.ms"


@dataclass(frozen=True, slots=True)
class RevokedAcls:
    """How many of a user's rules were revoked, and how long its sessions may live.

    Args:
        count: Number of rules; 0 where an earlier rotation, which was cut off, has revoked them.
        seconds: Maximum life of a session; None if sessions never end by themselves.
        since: When the password changed (``time.monotonic``); before that, when the rules were revoked.
        ends: When the last old session ends (UTC); None before the password has changed, or if sessions never end.
    """

    count: int
    seconds: float | None
    since: float
    ends: dt.datetime | None = None

    def counted(self) -> RevokedAcls:
        """Return a copy that counts from now, when the old password stops opening sessions."""
        ends = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=self.seconds + MARGIN) if self.seconds else None
        return replace(self, since=time.monotonic(), ends=ends)

    @property
    def left(self) -> float | None:
        """Seconds until the rules can be restored; None if sessions never end."""
        if self.seconds is None:
            return None
        return max(0.0, self.since + self.seconds + MARGIN - time.monotonic())


def revoke(admin: KafkaEndpoint, user: str) -> RevokedAcls:
    """Remove all rules that name a user; return when all brokers apply the change."""
    with Client(admin) as client:
        seconds = session_seconds(_settings(client))
        store = AdminStore(client, local=False)
        rules = rules_of(store, user)
        carry_out(SitePlan(admin.site, (), rules, 0).steps, AccessRun(store))
    return RevokedAcls(len(rules), seconds, time.monotonic())


def session_seconds(brokers: Mapping[str, Mapping[str, str | None]]) -> float | None:
    """Return the longest life of a session of a user with a password, by the brokers' settings; None if unlimited
    (Kafka's default)."""
    lives = [int(value or 0) for settings in brokers.values() for value in _lives(settings)]
    return max(lives) / 1000 if lives and all(lives) else None


def _lives(settings: Mapping[str, str | None]) -> list[str | None]:
    """Return a broker's setting for each listener and mechanism by which a user logs in with a SCRAM password: that of
    the mechanism at the listener, else the listener's, else the general one.

    Controllers' listeners are for brokers. Of a broker that tells no listener of this kind, each setting counts. A
    value that the broker hides is None.
    """
    inner = _listed(settings, "controller.listener.names")
    protocols = dict(each.split(":", 1) for each in _listed(settings, "listener.security.protocol.map") if ":" in each)
    found = []
    for name in (address.partition(":")[0] for address in _listed(settings, "listeners")):
        if name in inner or not protocols.get(name, name).startswith("SASL_"):
            continue
        own = f"listener.name.{name.lower()}."
        mechanisms = _listed(settings, f"{own}sasl.enabled.mechanisms") or _listed(settings, "sasl.enabled.mechanisms")
        for mechanism in mechanisms:
            if mechanism.startswith("SCRAM-"):
                places = (f"{own}{mechanism.lower()}.{_SETTING}", f"{own}{_SETTING}", _SETTING)
                found.append(next((settings[each] for each in places if each in settings), None))
    return found or [value for name, value in settings.items() if name.endswith(_SETTING)] or [None]


def _listed(settings: Mapping[str, str | None], name: str) -> list[str]:
    """Return the values of a list in capital letters, as Kafka takes names of listeners and protocols."""
    return [each.strip().upper() for each in (settings.get(name) or "").split(",") if each.strip()]


def _settings(client: Client) -> dict[str, dict[str, str | None]]:
    described = client.wait(
        cast("Future[Any]", client.admin.describe_cluster(request_timeout=client.timeout)), "asking"
    )
    resources = [ConfigResource(ResourceType.BROKER, str(node.id)) for node in described.nodes]
    futures = client.admin.describe_configs(resources, request_timeout=client.timeout)
    return {
        resource.name: {name: entry.value for name, entry in client.wait(future, "asking for settings").items()}
        for resource, future in futures.items()
    }


Progress = Callable[[str, str], None]
MQTT_USERS = (mosquitto.DEVICE, mosquitto.REPLAY)  # users of Mosquitto only, at sites that have them


@dataclass(frozen=True, slots=True)
class Rotated:
    """The result at one site.

    Args:
        password_in: The place of the new password, never the password itself. Empty if it was not changed.
        error: Why the password was not changed; if it was, why the rules were not restored (``readmit``).
        revoked: The user's rules, if they are revoked until its old sessions have ended.
        by_hand: The steps left for the operator; empty if there are none.
    """

    site: str
    user: str
    password_in: str = ""
    error: FairleadError | None = None
    revoked: RevokedAcls | None = None
    by_hand: str = ""


class RotationIncomplete(UnavailableError):
    """At some sites the password could not be changed, or the rules not restored; the other sites are done."""


def sites_of(topology: Topology, user: str) -> tuple[str, ...]:
    """Return the sites where a user has a password.

    Raises:
        UnknownNameError: the user has none at any site. RefusedError: the brokers use it among themselves.
    """
    if user == CONTROLLER:
        raise RefusedError(
            f"the password of {CONTROLLER} is the brokers' own, among themselves, and changes with their data only",
            hint="no client has it; if it leaked with a broker's folder, make the site anew: "
            "fairlead down SITE --purge, fairlead up SITE",
        )
    found = tuple(
        site
        for site in topology.sites
        if user == ADMIN
        or user in service_users(topology, site)
        or (user in MQTT_USERS and topology.sites[site].is_local and topology.sites[site].mqtt is None)
    )
    if not found:
        known = {name for site in topology.sites for name in service_users(topology, site)}
        raise UnknownNameError("user with a password", user, known | {ADMIN, *MQTT_USERS})
    return found


def rotate(
    topology: Topology,
    resolver: EndpointResolver,
    local: LocalSites,
    user: str,
    sites: Collection[str],
    on_progress: Progress = lambda _site, _text: None,
    *,
    now: bool = False,
) -> tuple[Rotated, ...]:
    """Change a user's password at these sites, one after another; errors are in the results.

    Args:
        now: The password has leaked: first revoke the user's rules, so that open sessions lose access. ``readmit``
            restores them. Not for Fairlead's services and ``admin``.

    Raises:
        RefusedError: ``now`` for a user that Fairlead itself uses. Nothing was changed.
    """
    if now:
        check_may_revoke(user)

    def one(site: str) -> Rotated:
        revoked: RevokedAcls | None = None
        intent = UserChange(**stamp(topology.name, site), user=user, action="rotate", detail=LEAKED if now else {})

        def facts() -> dict[str, Any]:
            until = revoked.ends if revoked else None
            return {"detail": {**intent.detail, UNTIL: until.isoformat()}} if until else {}

        try:
            with noting(lambda entries: _note(resolver, site, entries), intent, facts=facts):
                if now:
                    revoked = revoke(resolver.kafka(site, ADMIN), user)
                    on_progress(site, f"{revoked.count} ACLs of {user} revoked")
                password_in = (_locally if topology.sites[site].is_local else _outside)(resolver, local, site, user)
                if revoked:
                    revoked = revoked.counted()  # until now the old password could open sessions
        except FairleadError as error:
            on_progress(site, error.what)
            return Rotated(site, user, error=error, revoked=revoked)
        on_progress(site, f"{user} has another password, in {password_in}")
        return Rotated(site, user, password_in, revoked=revoked, by_hand=_by_hand(topology, site, user))

    return tuple(one(site) for site in sites)


def check_may_revoke(user: str) -> None:
    """Raise RefusedError for a user that Fairlead itself uses, because its services cannot work without its rules."""
    if is_reserved(user):
        raise RefusedError(
            f"{user} is a user of Fairlead's own: without its rules the site would stop working",
            hint=f"fairlead acl rotate {user} refuses the old password at once; sessions that are open end when the "
            "site's brokers are restarted one by one, which Fairlead's services survive",
        )


def readmit(read: Callable[[], Topology], open_store: OpenStore, done: Rotated) -> Rotated:
    """Give a user at one site the rules that the topology has for it. Call it when the user's old sessions have ended.

    Args:
        read: Returns the topology as it is now; somebody may have changed it since the rotation began.

    Returns:
        The result: as it was, or with the error for which the rules are not restored.
    """
    site, user = done.site, done.user
    try:
        topology = read()
        rules = tuple(sorted(Binding.of(rule) for rule in compile_site(topology, site) if rule.user == user))
        intent = UserChange(**stamp(topology.name, site), user=user, action="readmit")
        with open_store(site) as store, noting(store.note, intent):
            carry_out(SitePlan(site, rules, (), 0).steps, AccessRun(store))
    except FairleadError as error:
        return replace(done, error=error)
    return done


def check_complete(results: Collection[Rotated]) -> None:
    """Raise unless every site is done: the error itself if the only site has its old password, else
    ``RotationIncomplete``."""
    failed = [(result, result.error) for result in results if result.error is not None]
    old = [(result.site, error) for result, error in failed if not result.password_in]
    closed = [(result.site, error) for result, error in failed if result.password_in]
    if len(old) == len(results) == 1:
        raise old[0][1]
    if failed:
        told, to_do = [], []
        for what, does, some in (
            ("the old password still counts at", "the same command with --site for each finishes", old),
            (f"{failed[0][0].user} has no ACLs yet at", "fairlead acl apply restores the ACLs", closed),
        ):
            if some:
                told.append(f"{what} " + ", ".join(f"{site} ({error.what})" for site, error in some))
                to_do.append(does)
        raise RotationIncomplete(
            "; ".join(told),
            hint=f"the other sites are done; when these are back: {', and '.join(to_do)}",
            sites=[result.site for result, _ in failed],
        )


def _locally(resolver: EndpointResolver, local: LocalSites, site: str, user: str) -> str:
    local.change_password(site, user, give_password)
    return f"{local.folder / 'secrets.json'} (mode 0600), under {site}, {user}"


def _outside(resolver: EndpointResolver, local: LocalSites, site: str, user: str) -> str:
    endpoint, admin = resolver.kafka(site, user), with_active_password(resolver.kafka(site, ADMIN))
    new = resolver.next_password(site, user)
    if user == ADMIN and new is None:
        raise ConfigurationError(
            f"{site} is outside this machine, so both passwords of {ADMIN} are needed to change it",
            hint=f"the present one in {secret_variable(site, user)}, the new one in {next_variable(site, user)}",
            site=site,
        )
    _require_user(admin, user)
    wanted = new or endpoint.password
    if wanted is None:  # an endpoint of a site outside this machine always has one
        raise ConfigurationError(f"the password of {user} at {site} is not known", site=site, user=user)
    give_password(admin, user, wanted)
    return next_variable(site, user) if new is not None else f"{secret_variable(site, user)}, or the override file"


def _require_user(admin: KafkaEndpoint, user: str) -> None:
    with Client(admin) as client:
        if not existing(client, [user]):
            raise UnknownNameError(f"SCRAM user of {admin.site} named", user, [admin.user or ADMIN])


def _by_hand(topology: Topology, site: str, user: str) -> str:
    address = topology.sites[site].mqtt
    if address is None or user != mosquitto.BRIDGE:
        return ""
    return (
        f"{user} also logs in to the MQTT broker at {address.host}:{address.port}, which Fairlead did not start. Its "
        "password there is another one and has not changed: change it there, with the new one in the bridge's "
        f"environment or secrets' folder before ({next_variable(site, MQTT_BRIDGE)}, or {site}.{MQTT_BRIDGE}.next)"
    )


def _note(resolver: EndpointResolver, site: str, entries: Iterable[Entry]) -> None:
    note(resolver.kafka(site, ADMIN), entries)  # read again: admin's own password may be the one that changes
