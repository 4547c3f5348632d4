"""Settings for all tests."""

from __future__ import annotations

import os

from hypothesis import settings

# Machines are noisy: a slow example is no failure. What is found once is tried again first (the example database). On a
# build machine (CI set, as Hypothesis' own profile "ci" has it) the examples of a test are the same each time, so that
# a change is judged by what it changed; new examples are looked for everywhere else.
settings.register_profile("fairlead", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("fairlead")
