"""Settings for all tests."""

from __future__ import annotations

from hypothesis import settings

# Machines are noisy: a slow example is no failure. What is found once is tried again first (the example database).
settings.register_profile("fairlead", deadline=None)
settings.load_profile("fairlead")
