"""Counts of rows that Spark takes while it computes them."""

from __future__ import annotations

from unittest.mock import Mock, PropertyMock

import pytest
from py4j.protocol import Py4JJavaError

from shore.delta.lake import observed


def observation(error: str) -> Mock:
    java = Mock(_target_id="o1", _gateway_client=Mock())
    java.getClass().getName.return_value = error
    found = Mock()
    type(found).get = PropertyMock(side_effect=Py4JJavaError("An error occurred while calling o1.getRow.", java))
    return found


def test_rows_that_spark_knows_to_be_none_count_as_none() -> None:
    assert observed(observation("java.lang.AssertionError"), "rows") == 0


def test_a_count_that_a_stopped_query_does_not_know_is_an_error() -> None:
    """Taken for none, the batch would be committed without its changes."""
    with pytest.raises(Py4JJavaError):
        observed(observation("java.lang.InterruptedException"), "rows")
