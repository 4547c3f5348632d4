"""A cluster that gives no executor is said to be one."""

from __future__ import annotations

import pytest

from fairlead.errors import UnavailableError
from shore.session import are_due, await_first


def test_the_first_executor_is_enough() -> None:
    counts = iter([0, 0, 1])
    await_first(lambda: next(counts), "spark://master:7077", pause=0.0)
    assert next(counts, "all were asked for") == "all were asked for"


def test_a_cluster_without_one_is_named_with_what_to_look_at() -> None:
    with pytest.raises(UnavailableError, match=r"spark://master:7077 gave no executor") as caught:
        await_first(lambda: 0, "spark://master:7077", patience=0.0, pause=0.0)
    assert "spark.driver.host" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("master", "settings", "due"),
    [
        ("local[2]", {}, False),
        ("spark://master:7077", {}, True),
        ("spark://master:7077", {"spark.dynamicAllocation.enabled": "true"}, False),
    ],
)
def test_where_executors_must_come(master: str, settings: dict[str, str], due: bool) -> None:
    assert are_due(master, settings) is due
