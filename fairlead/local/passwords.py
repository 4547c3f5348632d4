"""Passwords of local sites: created once, kept in a file with mode 0600, overridden by environment variables."""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path

import msgspec
from pydantic import SecretStr

from fairlead.errors import ConfigurationError
from fairlead.home import purge_command
from fairlead.local.files import write_file

MQTT_BRIDGE = "bridge-mqtt"
_NEXT = "/next"  # a suffix that cannot clash with a site: no site's name has a slash
_PRINTABLE = re.compile(r"[\x20-\x7e]{8,200}")


def secret_variable(site: str, user: str) -> str:
    """Return the environment variable that gives a user's password: ``FAIRLEAD_SECRET_LOS_ANGELES_BRIDGE``."""
    return "FAIRLEAD_SECRET_" + re.sub(r"[^A-Z0-9]", "_", f"{site}_{user}".upper())


def mqtt_secret(user: str) -> str:
    """Return the name under which ``secrets.json`` has the password of an MQTT user. The bridge is a Kafka user too,
    with another password, so its Mosquitto password does not give access to Kafka."""
    return MQTT_BRIDGE if user == "bridge" else user


def next_variable(site: str, user: str) -> str:
    """Return the environment variable with a user's next password, for a site outside this machine."""
    return f"{secret_variable(site, user)}_NEXT"


class Passwords:
    """Passwords by site and user, in ``secrets.json`` (mode 0600), as the brokers have them.

    While a password is being changed, the file also has the next one: ``begin`` stores it before the brokers get it,
    ``keep`` ends the change once they accept it. Logins try both. An interrupted change counts as still running.
    """

    def __init__(self, file: Path, *, env: Mapping[str, str] | None = None) -> None:
        self._file = file
        self._env = os.environ if env is None else env

    def known(self, site: str, user: str) -> SecretStr | None:
        """Return the password that the site's brokers got last; None for a user that they do not know."""
        password = self._read().get(site, {}).get(user)
        return SecretStr(password) if password is not None else None

    def given(self, site: str, user: str) -> SecretStr | None:
        """Return the password from the environment, else the known one, else None.

        Raises:
            ConfigurationError: the password from the environment is not 8 to 200 printable ASCII characters.
        """
        variable = secret_variable(site, user)
        from_env = self._env.get(variable)
        if from_env is None:
            return self.known(site, user)
        if not _PRINTABLE.fullmatch(from_env) or "\\" in from_env or '"' in from_env:
            raise ConfigurationError(
                f"the password in {variable} cannot be used",
                hint="8 to 200 printable ASCII characters, no quote and no backslash",
                variable=variable,
            )
        return SecretStr(from_env)

    def wanted(self, site: str, user: str) -> SecretStr:
        """Return the next password, else the given one, else a new random one, which is not stored yet."""
        return self.next(site, user) or self.given(site, user) or SecretStr(secrets.token_urlsafe(24))

    def others(self, site: str, user: str) -> tuple[SecretStr, ...]:
        """Return other passwords that the brokers may accept: during a change, or when the environment's password
        differs from the one that the brokers got."""
        given = self.given(site, user)
        known = (self.next(site, user), self.known(site, user))
        return tuple(dict.fromkeys(password for password in known if password is not None and password != given))

    def next(self, site: str, user: str) -> SecretStr | None:
        """Return the next password during a change, else None."""
        password = self._read().get(site + _NEXT, {}).get(user)
        return SecretStr(password) if password is not None else None

    def begin(self, site: str, user: str) -> SecretStr:
        """Choose, store and return the next password, before the brokers get it: that of an interrupted change, else
        the environment's, else a random one.

        Raises:
            ConfigurationError: the environment has the password that the brokers have already.
        """
        pending = self.next(site, user)
        if pending is not None:
            return pending
        variable = secret_variable(site, user)
        given = self.given(site, user) if variable in self._env else None
        if given is not None and given == self.known(site, user):
            raise ConfigurationError(
                f"the password of {user} at {site} comes from {variable}, which has the one that counts already",
                hint="set it to the new password, for this command and for what runs as that user; or unset it",
                variable=variable,
            )
        new = given or SecretStr(secrets.token_urlsafe(24))
        self._write(site + _NEXT, {user: new})
        return new

    def keep(self, site: str, passwords: Mapping[str, SecretStr]) -> None:
        """Store the passwords that the site's brokers have now; this ends a change."""
        data = self._read()
        data.setdefault(site, {}).update({user: value.get_secret_value() for user, value in passwords.items()})
        pending = data.pop(site + _NEXT, {})
        if left := {user: new for user, new in pending.items() if data[site].get(user) != new}:
            data[site + _NEXT] = left
        self._save(data)

    def forget_user(self, site: str, user: str) -> None:
        """Drop one user's passwords at a site."""
        data = self._read()
        for section in (site, site + _NEXT):
            data.get(section, {}).pop(user, None)
        self._save({section: users for section, users in data.items() if users})

    def forget(self, site: str) -> None:
        """Drop a site's passwords."""
        data = self._read()
        if [found for name in (site, site + _NEXT) if (found := data.pop(name, None)) is not None]:
            self._save(data)

    def _write(self, section: str, passwords: Mapping[str, SecretStr]) -> None:
        data = self._read()
        data.setdefault(section, {}).update({user: value.get_secret_value() for user, value in passwords.items()})
        self._save(data)

    def _save(self, data: dict[str, dict[str, str]]) -> None:
        write_file(self._file, json.dumps(data, indent=1, sort_keys=True))

    def _read(self) -> dict[str, dict[str, str]]:
        try:
            data = msgspec.json.decode(self._file.read_bytes(), type=dict[str, dict[str, str]])
        except FileNotFoundError:
            return {}
        except (msgspec.DecodeError, UnicodeDecodeError):
            # Not chained: the parser's error may quote the file, and a traceback would show it.
            raise ConfigurationError(
                f"{self._file} is damaged",
                hint=f"restore it, or forget the sites' data: {purge_command(self._file.parent)}",
            ) from None
        return data
