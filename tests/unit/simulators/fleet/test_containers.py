from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import ConfigurationError
from fairlead.names import is_container_number, owner_code
from simulators.fleet import planner


def numbers(owner: str, count: int, seed: int) -> list[str]:
    return planner.container_numbers(owner, count, Random(seed))  # noqa: S311 - no secret


@given(st.sampled_from(["BIGU", "YELU", "REDU", "ZZZU"]), st.integers(0, 300), st.integers())
def test_container_numbers_are_valid_and_distinct(owner: str, count: int, seed: int) -> None:
    found = numbers(owner, count, seed)
    assert len(set(found)) == count
    for number in found:
        assert is_container_number(number)
        assert owner_code(number) == owner
        assert planner.remainder(number[:10]) == int(number[10]), "a remainder of 10 would be written as 0"


@pytest.mark.parametrize("number", ["CSQU3054383", "MSKU9070323", "APZU4812090", "GESU3927660", "TEXU3070079"])
def test_remainder_of_known_numbers(number: str) -> None:
    assert planner.remainder(number[:10]) % 10 == int(number[10])


def test_more_containers_than_serials_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="950000 containers of owner BIGU"):
        numbers("BIGU", 950_000, 1)
