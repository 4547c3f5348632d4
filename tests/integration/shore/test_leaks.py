"""Each of twenty customers can read, with its own password at every site, exactly the bytes it is entitled to."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import SparkSession

from tests.support.leak_world import CHECKS, World, sailed

pytestmark = [pytest.mark.integration, pytest.mark.spark]


@pytest.fixture(scope="module")
def leaks(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[World]:
    with sailed(tmp_path_factory.mktemp("leaks"), seed=8, containers=30, hours=12, bookings=70, session=spark) as world:
        yield world


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_nothing_leaks(leaks: World, check: Callable[[World], None]) -> None:
    check(leaks)
