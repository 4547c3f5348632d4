"""Tests: ``unit`` (pure, seconds), ``integration`` (real Kafka, Mosquitto and Spark, started once per run) and ``e2e``
(the command line as a user runs it). Nothing here is timed; figures are in ``benchmarks``.

What proofs and helpers outside of test modules insist on is shown with its values when it fails.
"""

import pytest

pytest.register_assert_rewrite("tests.integration", "tests.support", "tests.unit")
