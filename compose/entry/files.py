"""Read a container's secrets (files) and settings (environment)."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

from pydantic import SecretStr

SECRETS = Path(os.environ.get("FAIRLEAD_SECRETS", "/run/secrets"))


def secret(name: str) -> SecretStr:
    """Return a secret by name; end the program with a hint if it is missing."""
    try:
        return SecretStr((SECRETS / name).read_text(encoding="utf-8").removesuffix("\n"))
    except OSError as error:
        fail(f"the secret {name} is not in {SECRETS}: {error.strerror}", "name it in the service's secrets")


def setting(name: str) -> str:
    """Return an environment variable; end the program with a hint if it is not set."""
    value = os.environ.get(name)
    if not value:
        fail(f"the environment variable {name} is not set", "fairlead compose render writes it into compose.yaml")
    return value


def fail(what: str, hint: str) -> NoReturn:
    """Print the error and the hint, and end with exit code 3."""
    sys.stderr.write(f"error: {what}\n  {hint}\n")
    raise SystemExit(3)
