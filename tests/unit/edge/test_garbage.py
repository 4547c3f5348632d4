from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from edge.bridge import NEW_OBJECTS, search_less_often


@pytest.fixture(autouse=True)
def _threshold() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((700, 10, 10), (NEW_OBJECTS, 10, 10)),
        ((2 * NEW_OBJECTS, 10, 10), (2 * NEW_OBJECTS, 10, 10)),
        ((0, 10, 10), (0, 10, 10)),
    ],
)
def test_new_objects_are_searched_seldom_and_a_setting_of_somebody_else_stays(
    before: tuple[int, int, int], after: tuple[int, int, int]
) -> None:
    """Python's garbage collector examines objects less often; thresholds that somebody else has raised or switched
    off stay.
    """
    gc.set_threshold(*before)
    search_less_often()
    assert gc.get_threshold() == after
