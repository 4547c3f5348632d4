"""Passwords in a local override file: section ``secrets``, site by site and user by user. Pure.

    secrets:
      tokyo:
        bridge: ...

Only ``<name>.local.yaml`` may have it, which is nobody's to share; a topology itself never holds a secret.
"""

from __future__ import annotations

from pydantic import SecretStr

from fairlead.errors import nearest
from topologies.mistakes import Path
from topologies.source import Source

SECTION = "secrets"
_WANTED = "secrets: {<site>: {<user>: <password>}}"

Secrets = dict[tuple[str, str], SecretStr]


def take_secrets(override: Source, sites: list[str]) -> Secrets:
    """Take the section out of an override: passwords by (site, user). Mistakes are added to the override's."""
    found: Secrets = {}
    section = override.data.pop(SECTION, None) if isinstance(override.data, dict) else None
    if section is None:
        return found

    def wrong(path: Path, problem: str, expected: str = _WANTED, near: str | None = None) -> None:
        place = override.origins.of_key(path)
        override.mistakes.append(place.mistake(path, problem, expected, near))

    if not isinstance(section, dict):
        wrong((SECTION,), "not a mapping of sites")
        return found
    for site, users in section.items():
        if site not in sites:
            wrong((SECTION, site), "the topology has no such site", ", ".join(sites), nearest(site, sites))
        elif not isinstance(users, dict):
            wrong((SECTION, site), "not a mapping of users")
        else:
            for user, password in users.items():
                if isinstance(password, str) and password:
                    found[site, user] = SecretStr(password)
                else:
                    wrong((SECTION, site, user), "not a text in quotes", "a password; put numbers in quotes")
    return found
