"""Devices, their MQTT passwords, and the topics to which each may publish. The gateway may publish for all devices.

A device's MQTT user names its subject: a container's number, a ship's IMO number, ``terminal-<site>…`` for a
reporter of events there, or ``office-<site>…`` for a publisher of bookings there. Its password has 192 random bits and
is the same at every site; brokers get only its hash, in the form of Mosquitto's password files. ``devices.json`` in the
topology's state folder (mode 0600) has all passwords.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr

from fairlead.errors import ConfigurationError
from fairlead.local.files import write_file
from fairlead.names import is_container_number, is_imo_number

ITERATIONS = 101
"""Rounds of PBKDF2, as in ``mosquitto_passwd``. More would not protect a random password better, and would slow down
every login and every reload."""

_AT_A_SITE = re.compile(r"(terminal|office)-[a-z0-9][a-z0-9-]{0,79}")


class DeviceKind(StrEnum):
    """The subject of a device, which decides its topics."""

    CONTAINER = "container"
    SHIP = "ship"
    TERMINAL = "terminal"
    OFFICE = "office"


_TOPIC_AT_A_SITE: Final[Mapping[DeviceKind | None, str]] = {
    DeviceKind.TERMINAL: "fairlead/v1/events",
    DeviceKind.OFFICE: "fairlead/v1/bookings",
}


def device_kind(name: str) -> DeviceKind | None:
    """Return the kind of a device by its name; None if no device can have the name."""
    if is_container_number(name):
        return DeviceKind.CONTAINER
    if is_imo_number(name):
        return DeviceKind.SHIP
    found = _AT_A_SITE.fullmatch(name)
    return DeviceKind(found[1]) if found else None


def device_rules(names: Iterable[str]) -> str:
    """Return the rules of an ``acl_file`` for devices: each writes to its own topics and reads nothing.

    Containers and ships share pattern rules, in which ``%u`` is the logged-in user. Each terminal and each office has a
    rule of its own. Terminals may not publish bookings, because a booking gives a customer a container's records.
    """
    rules = [
        "pattern write fairlead/v1/containers/%u/readings",
        "pattern write fairlead/v1/ships/%u/position",
        "pattern write fairlead/v1/ships/%u/environment",
        "",
    ]
    for name in sorted(names):
        topic = _TOPIC_AT_A_SITE.get(device_kind(name))
        if topic is not None:
            rules += [f"user {name}", f"topic write {topic}", ""]
    return "\n".join(rules)


def hashed(password: SecretStr) -> str:
    """Hash a password as Mosquitto 2 does: PBKDF2 with SHA-512 and a salt."""
    salt = os.urandom(12)
    key = hashlib.pbkdf2_hmac("sha512", password.get_secret_value().encode(), salt, ITERATIONS)
    return f"$7${ITERATIONS}${base64.b64encode(salt).decode()}${base64.b64encode(key).decode()}"


@dataclass(frozen=True, slots=True)
class MqttDevice:
    """An enrolled device. ``line`` is its line of a password file."""

    name: str
    kind: DeviceKind
    password: SecretStr
    hash: str
    enrolled: str

    @property
    def line(self) -> str:
        return f"{self.name}:{self.hash}\n"


class DeviceBook:
    """The devices of one topology. Each call reads the file; callers that write hold the state folder's lock."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def read(self) -> dict[str, MqttDevice]:
        """Return all devices, by name.

        Raises:
            ConfigurationError: the file is damaged.
        """
        try:
            data: dict[str, dict[str, str]] = json.loads(self._file.read_bytes())
            return {name: _device(name, entry) for name, entry in data.items()}
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigurationError(
                f"{self._file} is damaged", hint="restore it; or remove it and enrol all devices anew"
            ) from error

    def enrol(self, names: Collection[str], now: str, *, renew: bool = False) -> dict[str, MqttDevice]:
        """Give a random password to each name that has none, or, with ``renew``, to each. Return those devices.

        Raises:
            ConfigurationError: a name cannot be a device's; no device is enrolled.
        """
        check_names(names)
        book = self.read()
        made: dict[str, MqttDevice] = {}
        for name in dict.fromkeys(names):
            kind = device_kind(name)
            if kind is not None and (renew or name not in book):
                password = SecretStr(secrets.token_urlsafe(24))
                made[name] = MqttDevice(name, kind, password, hashed(password), now)
        self._write(book | made)
        return made

    def remove(self, names: Collection[str]) -> tuple[str, ...]:
        """Forget these devices; return those that were enrolled."""
        book = self.read()
        gone = tuple(name for name in dict.fromkeys(names) if book.pop(name, None) is not None)
        if gone:
            self._write(book)
        return gone

    def _write(self, book: dict[str, MqttDevice]) -> None:
        data: dict[str, Any] = {
            device.name: {
                "password": device.password.get_secret_value(),
                "hash": device.hash,
                "enrolled": device.enrolled,
            }
            for device in book.values()
        }
        write_file(self._file, json.dumps(data, indent=0, sort_keys=True))


def check_names(names: Collection[str]) -> None:
    """Check that each name can be a device's.

    Raises:
        ConfigurationError: at least one cannot; the message names the first and counts the others.
    """
    wrong = [name for name in names if device_kind(name) is None]
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise ConfigurationError(
            f"{wrong[0]!r} cannot be a device's name{more}",
            hint="a container's number with its check digit (BIGU1000010), a ship's IMO number (9074729), "
            "terminal-<site> or terminal-<site>-<name> for what reports events there, "
            "office-<site> or office-<site>-<name> for what publishes bookings there",
            names=wrong[:20],
        )


def _device(name: str, entry: dict[str, str]) -> MqttDevice:
    kind = device_kind(name)
    if kind is None or not entry["hash"].startswith("$7$") or "\n" in entry["hash"]:
        raise ValueError(name)
    return MqttDevice(name, kind, SecretStr(entry["password"]), entry["hash"], entry["enrolled"])
