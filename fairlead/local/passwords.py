"""Passwords of local sites: made once, kept in a file that only its owner can read, overridden by the environment."""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from pydantic import SecretStr

from fairlead.errors import ConfigurationError
from fairlead.local.files import write_file

_PRINTABLE = re.compile(r"[\x20-\x7e]{8,200}")


def secret_variable(site: str, user: str) -> str:
    """The environment variable that gives a user's password: ``FAIRLEAD_SECRET_LOS_ANGELES_BRIDGE``."""
    return "FAIRLEAD_SECRET_" + re.sub(r"[^A-Z0-9]", "_", f"{site}_{user}".upper())


class Passwords:
    """Passwords by site and user, in ``secrets.json`` (mode 0600). What the file holds is what the brokers know."""

    def __init__(self, file: Path, *, env: Mapping[str, str] | None = None) -> None:
        self._file = file
        self._env = os.environ if env is None else env

    def known(self, site: str, user: str) -> SecretStr | None:
        """What the site's brokers were told last; None for a user they have not heard of."""
        password = self._read().get(site, {}).get(user)
        return SecretStr(password) if password is not None else None

    def given(self, site: str, user: str) -> SecretStr | None:
        """The environment's password, else the known one, else None.

        Raises:
            ConfigurationError: the environment's password is too short or has other than printable ASCII characters.
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
        """The given password, else a new random one (not yet kept)."""
        return self.given(site, user) or SecretStr(secrets.token_urlsafe(24))

    def keep(self, site: str, passwords: Mapping[str, SecretStr]) -> None:
        """Note what the site's brokers know now."""
        data = self._read()
        data.setdefault(site, {}).update({user: value.get_secret_value() for user, value in passwords.items()})
        write_file(self._file, json.dumps(data, indent=1, sort_keys=True))

    def forget(self, site: str) -> None:
        """Drop a site's passwords."""
        data = self._read()
        if data.pop(site, None) is not None:
            write_file(self._file, json.dumps(data, indent=1, sort_keys=True))

    def _read(self) -> dict[str, dict[str, str]]:
        try:
            data: dict[str, dict[str, str]] = json.loads(self._file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise ConfigurationError(
                f"{self._file} is damaged", hint="restore it, or forget the sites' data: fairlead down --purge"
            ) from error
        return data
