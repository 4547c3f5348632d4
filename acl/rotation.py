"""Another password for a user, site by site: what is connected goes on, new logins need the new one.

Kafka keeps one SCRAM-SHA-512 credential for each user, so there is no time in which it takes two passwords. Fairlead's
services read theirs at each login and are told both while it changes (``LocalSites.change_password``). At a site
outside this machine the new password is the operator's to give: ``FAIRLEAD_SECRET_<SITE>_<USER>_NEXT``, or the usual
variable or local override file where only the cluster is to follow.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from acl.cutoff import Withdrawn, give_back, withdraw
from acl.entries import Entry, UserChange, noting, stamp
from acl.heldout import LEAKED, UNTIL
from acl.history import note
from acl.kafka import Client
from acl.users import existing
from fairlead.admin import counting
from fairlead.credentials import give_password
from fairlead.endpoint import KafkaEndpoint
from fairlead.errors import ConfigurationError, FairleadError, RefusedError, UnavailableError, UnknownNameError
from fairlead.local import mosquitto
from fairlead.local.kafka import CONTROLLER
from fairlead.local.passwords import next_variable, secret_variable
from fairlead.local.sites import LocalSites
from topologies.directory import Directory
from topologies.model import Topology
from topologies.users import ADMIN, is_reserved, service_users

Progress = Callable[[str, str], None]
MQTT_USERS = (mosquitto.DEVICE, mosquitto.REPLAY)  # of Mosquitto alone, where a site has them


@dataclass(frozen=True, slots=True)
class Rotated:
    """What came of it at one site.

    Args:
        password_in: Where the new password is; never the password. Empty where it was not changed.
        withdrawn: The user's rules, if they were taken away until its old sessions have ended.
        by_hand: What is left to the operator there; empty where nothing is.
    """

    site: str
    user: str
    password_in: str = ""
    error: FairleadError | None = None
    withdrawn: Withdrawn | None = None
    by_hand: str = ""


class RotationIncomplete(UnavailableError):
    """The password could not be changed at some sites; the others are done. The same command finishes."""


def sites_of(topology: Topology, user: str) -> tuple[str, ...]:
    """The sites where a user has a password.

    Raises:
        UnknownNameError: nowhere. RefusedError: it is the brokers' own.
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
    directory: Directory,
    local: LocalSites,
    user: str,
    sites: Collection[str],
    on_progress: Progress = lambda _site, _text: None,
    *,
    now: bool = False,
) -> tuple[Rotated, ...]:
    """Change a user's password at these sites, one after another; errors are in the results.

    Args:
        now: The password has leaked: first take away the user's rules, so that what is connected gets nothing more.
            ``readmit`` gives them back. Not for Fairlead's services and ``admin``.

    Raises:
        RefusedError: ``now`` for a user that Fairlead itself works as. Nothing was changed.
    """
    if now and is_reserved(user):
        raise RefusedError(
            f"{user} is a user of Fairlead's own: without its rules the site would stop working",
            hint=f"fairlead acl rotate {user} refuses the old password at once; sessions that are open end when the "
            "site's brokers are restarted one by one, which Fairlead's services survive",
        )

    def one(site: str) -> Rotated:
        withdrawn: Withdrawn | None = None
        intent = _intent(topology, site, user, now=now)

        def facts() -> dict[str, Any]:
            until = withdrawn.ends if withdrawn else None
            return {"detail": {**intent.detail, UNTIL: until.isoformat()}} if until else {}

        try:
            with noting(lambda entries: _note(directory, site, entries), intent, facts=facts):
                if now:
                    withdrawn = withdraw(directory.kafka(site, ADMIN), user)
                    on_progress(site, f"{len(withdrawn.rules)} rules of {user} withdrawn")
                password_in = (_locally if topology.sites[site].is_local else _outside)(directory, local, site, user)
                if withdrawn:
                    withdrawn = withdrawn.counted()  # until here the old password opened sessions
        except FairleadError as error:
            on_progress(site, error.what)
            return Rotated(site, user, error=error, withdrawn=withdrawn)
        on_progress(site, f"{user} has another password, in {password_in}")
        return Rotated(site, user, password_in, withdrawn=withdrawn, by_hand=_by_hand(topology, site, user))

    return tuple(one(site) for site in sites)


def readmit(topology: Topology, directory: Directory, done: Rotated) -> None:
    """Give a user its rules at one site again, when its old sessions have ended."""
    if done.withdrawn is None:
        return
    intent = UserChange(**stamp(topology.name, done.site), user=done.user, action="readmit")
    with noting(lambda entries: _note(directory, done.site, entries), intent):
        give_back(directory.kafka(done.site, ADMIN), done.withdrawn)


def check_complete(results: Collection[Rotated]) -> None:
    """Raise unless every site is done: the site's own error when there is only one, else ``RotationIncomplete``."""
    failed = [(result.site, result.error) for result in results if result.error is not None]
    if len(failed) == 1 and len(results) == 1:
        raise failed[0][1]
    if failed:
        raise RotationIncomplete(
            "the old password still counts at " + ", ".join(f"{site} ({error.what})" for site, error in failed),
            hint="the other sites are done; when these are back, the same command with --site for each finishes",
            sites=[site for site, _ in failed],
        )


def _locally(directory: Directory, local: LocalSites, site: str, user: str) -> str:
    local.change_password(site, user, give_password)
    return f"{local.folder / 'secrets.json'} (mode 0600), under {site}, {user}"


def _outside(directory: Directory, local: LocalSites, site: str, user: str) -> str:
    endpoint, admin = directory.kafka(site, user), counting(directory.kafka(site, ADMIN))
    new = directory.next_password(site, user)
    if user == ADMIN and new is None:
        raise ConfigurationError(
            f"{site} is outside this machine, and to change the password of {ADMIN} both are needed",
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
        f"{user} also logs in to the MQTT broker at {address.host}:{address.port}, which Fairlead did not start: its "
        "password there is changed there, with the new one in the bridge's environment or secrets' folder before "
        f"({next_variable(site, user)}, or {site}.{user}.next)"
    )


def _intent(topology: Topology, site: str, user: str, *, now: bool) -> UserChange:
    return UserChange(**stamp(topology.name, site), user=user, action="rotate", detail=LEAKED if now else {})


def _note(directory: Directory, site: str, entries: Iterable[Entry]) -> None:
    note(directory.kafka(site, ADMIN), entries)  # asked for anew: it may be admin's own password that changes
