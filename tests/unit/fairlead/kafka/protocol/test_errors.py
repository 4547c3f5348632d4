"""Error codes: the protocol's own table decides what is worth another try."""

from __future__ import annotations

import pytest
from kafka.errors import kafka_errors

from fairlead.errors import ExitCode
from fairlead.kafka.protocol.errors import (
    NAMES,
    RETRIABLE,
    FatalBrokerError,
    RetriableBrokerError,
    broker_error,
    is_retriable,
)
from fairlead.kafka.protocol.types import TP


@pytest.mark.parametrize("code", [3, 5, 6, 7, 13, 19, 20, 56, 70, 71, 74, 75, 78, 100])
def test_codes_that_may_go_away(code: int) -> None:
    error = broker_error(code, TP("log.a"))
    assert isinstance(error, RetriableBrokerError) and error.retriable and is_retriable(code)
    assert error.exit_code == ExitCode.UNAVAILABLE


@pytest.mark.parametrize("code", [-1, 1, 2, 10, 29, 32, 45, 47, 53, 76, 87])
def test_codes_that_stay(code: int) -> None:
    error = broker_error(code, TP("log.a"))
    assert isinstance(error, FatalBrokerError) and not error.retriable and not is_retriable(code)


def test_error_names_code_log_and_detail() -> None:
    error = broker_error(87, TP("log.a", 2), "the offset should be 0")
    assert error.what == "the broker answered error 87 INVALID_RECORD for log log.a/2: the offset should be 0"
    assert (error.code, error.name, error.log) == (87, "INVALID_RECORD", TP("log.a", 2))
    assert error.fields["log"] == "log.a/2"


def test_unknown_code_is_fatal() -> None:
    assert not broker_error(9999).retriable


def test_the_table_is_kafka_pythons() -> None:
    oracle = {code: error for code, error in kafka_errors.items() if code is not None}
    assert {code: error.message for code, error in oracle.items()} == NAMES
    assert {code for code, error in oracle.items() if error.retriable} == RETRIABLE
