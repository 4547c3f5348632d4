"""Container, ship and log names against published golden values (ISO 6346, IMO) and their own check digits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.names import LogName, container_check_digit, is_container_number, is_imo_number, owner_code, parse_log


@pytest.mark.parametrize(
    "number",
    ["CSQU3054383", "MSKU9070323", "APZU4812090", "GESU3927660", "TEXU3070079", "MSKU6011672", "ABCU1234560"],
)
def test_valid_container_numbers(number: str) -> None:
    assert is_container_number(number)
    assert owner_code(number) == number[:4]


@pytest.mark.parametrize(
    "number",
    ["MSCU1234567", "CSQU3054384", "csqu3054383", "CSQU 3054383", "CSQU305438", "", "CSQU30543833", "ÅSQU3054383"],
)
def test_invalid_container_numbers(number: str) -> None:
    assert not is_container_number(number)


@given(serial=st.integers(0, 999_999), wrong=st.integers(1, 9))
def test_only_one_check_digit_is_right(serial: int, wrong: int) -> None:
    ten = f"BIGU{serial:06d}"
    digit = container_check_digit(ten)
    assert is_container_number(ten + digit)
    assert not is_container_number(ten + str((int(digit) + wrong) % 10))


@pytest.mark.parametrize(("number", "valid"), [("9074729", True), ("9811000", True), ("9321483", True)])
def test_valid_imo_numbers(number: str, valid: bool) -> None:
    assert is_imo_number(number) is valid


@pytest.mark.parametrize("number", ["9384721", "1111111", "907472", "90747290", "IMO9074729", ""])
def test_invalid_imo_numbers(number: str) -> None:
    assert not is_imo_number(number)


def test_a_log_name_splits_at_its_first_dot() -> None:
    assert parse_log("ships.9074729.location") == LogName("ships", "9074729.location")
    assert str(LogName("containers", "BIGU1000016")) == "containers.BIGU1000016"


@pytest.mark.parametrize("topic", ["__consumer_offsets", "containers", "containers.", ".x", "Containers.x", "a b.c"])
def test_what_is_no_log(topic: str) -> None:
    assert parse_log(topic) is None


@given(st.text())
def test_parse_log_never_raises_and_inverts_str(topic: str) -> None:
    log = parse_log(topic)
    assert log is None or str(log) == topic
