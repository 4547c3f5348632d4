"""What a container is given: secrets as files, its name by environment."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

from pydantic import SecretStr

SECRETS = Path(os.environ.get("FAIRLEAD_SECRETS", "/run/secrets"))


def secret(name: str) -> SecretStr:
    """A secret by name; ends the program with what to do when it is not there."""
    try:
        return SecretStr((SECRETS / name).read_text(encoding="utf-8").removesuffix("\n"))
    except OSError as error:
        fail(f"the secret {name} is not in {SECRETS}: {error.strerror}", "name it in the service's secrets")


def setting(name: str) -> str:
    """An environment variable that must be set."""
    value = os.environ.get(name)
    if not value:
        fail(f"the environment variable {name} is not set", "fairlead compose render writes it into compose.yaml")
    return value


def fail(what: str, hint: str) -> NoReturn:
    """Say what is wrong in one line each, and end."""
    sys.stderr.write(f"error: {what}\n  {hint}\n")
    raise SystemExit(3)
