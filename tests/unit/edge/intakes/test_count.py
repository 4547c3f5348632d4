from __future__ import annotations

import pytest

from edge.intakes.wayin import check_count
from fairlead.errors import ConfigurationError


@pytest.mark.parametrize("count", [-1, 17])
def test_a_number_of_intakes_that_cannot_be_is_refused(count: int) -> None:
    with pytest.raises(ConfigurationError, match=rf"{count} intakes\n.*0 to 16"):
        check_count(count)


def test_none_to_sixteen_can_be() -> None:
    for count in (0, 1, 16):
        check_count(count)
