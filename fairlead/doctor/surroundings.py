"""Findings about where Fairlead runs: ports, the clock, letters, paths, certificates. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fairlead.certs.model import SOON
from fairlead.doctor.model import Finding, Verdict

LONGEST_NAME = 255  # of a log's folder: a topic of 249 letters and its partition; Kafka cuts what it deletes to this
LONGEST_BELOW = LONGEST_NAME + 120  # from the state folder to a file of such a log, with a long site's name
_SOON = dt.timedelta(days=SOON)


@dataclass(frozen=True, slots=True)
class Clock:
    """``synchronised``: what the kernel says, None where it does not. ``ahead``: by how many seconds the newest file of
    the state folder is later than now. ``foreign``: sites that run elsewhere."""

    synchronised: bool | None
    ahead: float = 0.0
    foreign: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Letters:
    """How Python (and Java after it) writes file names and text."""

    file_names: str
    output: str
    locale: str


@dataclass(frozen=True, slots=True)
class Place:
    """The state folder's path, and the longest name and path that its file system takes (None: not known)."""

    folder: str
    name_limit: int | None
    path_limit: int | None


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate's file and end, or why it cannot be read."""

    file: str
    expires: dt.datetime | None
    error: str = ""


def ports(taken: Mapping[str, str], free: int, ephemeral: tuple[int, int] | None, chosen: tuple[int, int]) -> Finding:
    """Of ports.

    Args:
        taken: Remembered ports of processes that do not run and that somebody else has: ``tokyo's Kafka, 23456``
            and who holds it.
        free: How many ports that were looked for are free.
        ephemeral: From which range this system takes the ports of outgoing connections.
        chosen: The range from which Fairlead takes its own.
    """
    first, last = chosen
    needed, why = f"free ports between {first} and {last}", "each broker listens on two, each Mosquitto on one"
    if taken:
        text = "; ".join(f"{what} is held by {who}" for what, who in taken.items())
        todo = "end that process; or forget the site's data, then it gets other ports: fairlead down SITE --purge"
        return Finding("ports", Verdict.FAILED, text, "the ports that sites had before", "clients know them", todo)
    if not free:
        return Finding("ports", Verdict.FAILED, "none is free", needed, why, "end something that listens")
    if ephemeral is not None and ephemeral[0] <= last and ephemeral[1] >= first:
        text = f"outgoing connections take {ephemeral[0]} to {ephemeral[1]}"
        todo = 'sysctl -w net.ipv4.ip_local_port_range="32768 60999"'
        why = "a connection may take the port of a site that is down, which then cannot start"
        return Finding("ports", Verdict.WARNING, text, f"nothing between {first} and {last}", why, todo)
    return Finding("ports", Verdict.OK, "those of known sites are free or their own", needed, why)


def clock(found: Clock) -> Finding:
    """Of the clock. Local brokers share it; Kafka tells nobody its time, so that of others cannot be compared."""
    needed, why = "synchronised, never set back", "alerts, custody and reports order what sites say by time"
    others = f"; the clocks of {', '.join(found.foreign)} cannot be asked, look there" if found.foreign else ""
    if found.ahead > 5:
        text = f"the state folder has files from {found.ahead:,.0f} s in the future{others}"
        todo = "set the clock right; it has been set back, or that folder was written by a machine whose clock is wrong"
        return Finding("clock", Verdict.FAILED, text, needed, why, todo)
    if found.synchronised is None:
        return Finding("clock", Verdict.NOTE, f"this system does not say{others}", needed, why)
    if not found.synchronised:
        todo = "start chrony, systemd-timesyncd or ntpd; in a virtual machine its host may do that unseen"
        return Finding("clock", Verdict.WARNING, f"the kernel says: not synchronised{others}", needed, why, todo)
    return Finding("clock", Verdict.NOTE if others else Verdict.OK, f"synchronised{others}", needed, why)


def letters(found: Letters, folder: str) -> Finding:
    """Of UTF-8: tables and maps are drawn with it, and Java reads the state folder's name by the locale."""
    needed, why = "UTF-8", "tables, maps and names of ports have letters beyond ASCII"
    text = f"output {found.output or 'unknown'}, file names {found.file_names}, locale {found.locale or 'not set'}"
    todo = "export LC_ALL=C.UTF-8"
    if not _is_utf8(found.file_names):
        return Finding("letters", Verdict.FAILED, text, needed, "files cannot be named as they are", todo)
    if not folder.isascii() and not _is_utf8(found.locale.partition(".")[2]):
        why = f"Java cannot open {folder} without a locale of UTF-8"
        return Finding("letters", Verdict.FAILED, text, needed, why, todo)
    if not _is_utf8(found.output):
        return Finding("letters", Verdict.WARNING, text, needed, why, todo)
    return Finding("letters", Verdict.OK, text, needed, why)


def paths(found: Place) -> Finding:
    """Of the state folder's path: Kafka makes a folder for each log, whose name is the topic's."""
    needed = f"names of {LONGEST_NAME} letters, {LONGEST_BELOW} after the folder's own path"
    why = "Kafka makes a folder for each log and calls it by the topic"
    length = len(found.folder.encode())
    text = f"{length} letters; names up to {found.name_limit or 'unknown'}, paths up to {found.path_limit or 'unknown'}"
    if found.path_limit is not None and length + LONGEST_BELOW > found.path_limit:
        return Finding("paths", Verdict.FAILED, text, needed, why, "set FAIRLEAD_HOME to a folder with a shorter path")
    if found.name_limit is not None and found.name_limit < LONGEST_NAME:
        todo = "set FAIRLEAD_HOME to a folder on another file system: encrypted home folders often take shorter names"
        return Finding("paths", Verdict.WARNING, text, needed, why, todo)
    return Finding("paths", Verdict.OK, text, needed, why)


def certificates(found: Sequence[Certificate], now: dt.datetime) -> Finding:
    """Of the certificates of sites that speak TLS."""
    needed, why = f"valid for {_SOON.days} days more", "clients refuse a site whose certificate has expired"
    if not found:
        return Finding("certificates", Verdict.OK, "no site speaks TLS", "none", why)
    broken = [f"{each.file}: {each.error}" for each in found if each.expires is None]
    ended = [each.file for each in found if each.expires is not None and each.expires <= now]
    soon = [
        f"{each.file} on {each.expires:%Y-%m-%d}"
        for each in found
        if each.expires and now < each.expires <= now + _SOON
    ]
    todo = "see fairlead certs --help"
    if broken or ended:
        text = "; ".join([*broken, *(f"{file} has expired" for file in ended)])
        return Finding("certificates", Verdict.FAILED, text, needed, why, todo)
    if soon:
        return Finding("certificates", Verdict.WARNING, f"expiring: {', '.join(soon)}", needed, why, todo)
    first = min(each.expires for each in found if each.expires)
    return Finding("certificates", Verdict.OK, f"{len(found)}, the first expires on {first:%Y-%m-%d}", needed, why)


def _is_utf8(name: str) -> bool:
    return name.lower().replace("-", "").replace("_", "") == "utf8"
