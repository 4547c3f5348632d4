"""Feeds hold what customers are entitled to: many scenarios, played side by side in one Spark session."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.integration.shore.feeds.random_histories import random_history
from tests.integration.shore.feeds.scenarios import Scenario, play
from tests.integration.shore.feeds.told_histories import told_histories

pytestmark = [pytest.mark.long, pytest.mark.integration, pytest.mark.spark]

SCENARIOS: dict[str, Scenario] = told_histories() | {
    f"random history {seed}": random_history(seed) for seed in range(25)
}


@pytest.fixture(scope="module")
def played(spark: SparkSession) -> dict[str, Exception | None]:
    return play(spark, SCENARIOS)


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(played: dict[str, Exception | None], name: str) -> None:
    error = played[name]
    if error is not None:
        raise error
