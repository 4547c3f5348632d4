"""The sites of integration tests: their names, their users, and how a test makes further ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fairlead.local.sites import LocalSites

SITES = ("alpha", "beta")
FURTHER_SITES = ("gamma", "delta", "epsilon")
USERS = ("bridge", "replicator", "replicator.alpha", "replicator.beta", "shore", "customer1")
NewSites = Callable[[Path], LocalSites]
"""Makes sites with their state in the given folder, not running yet."""
