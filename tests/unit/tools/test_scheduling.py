"""How test workers choose their files."""

from __future__ import annotations

import pytest

from tests.support.scheduling import LONG, SPARK, UNIT, VOYAGES, longest

SPARK_FILES = tuple(f"{SPARK}test_{name}.py" for name in ("a", "b", "c"))
VOYAGE_FILES = tuple(f"{VOYAGES}test_{name}.py" for name in ("a", "b"))
UNIT_FILES = tuple(f"{UNIT}edge/test_{number}.py" for number in range(8))
ALL = (*UNIT_FILES, *VOYAGE_FILES, *SPARK_FILES, "tests/integration/acl/test_a.py", *LONG[:3])


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_every_file_is_chosen_and_at_most_two_use_spark_while_others_wait(workers: int) -> None:
    waiting = dict.fromkeys(ALL)
    while waiting:
        chosen = []
        for worker in range(workers):
            if waiting:
                scope = longest(waiting, worker) or next(iter(waiting))
                del waiting[scope]
                chosen.append(scope)
        if any(scope not in (*SPARK_FILES, *VOYAGE_FILES) for scope in waiting):
            assert sum(scope.startswith((SPARK, VOYAGES)) for scope in chosen) <= 2


def test_long_files_are_chosen_before_short_ones() -> None:
    waiting = dict.fromkeys((*UNIT_FILES, "tests/integration/acl/test_a.py", *reversed(LONG[:3])))
    chosen = []
    while (scope := longest(waiting, 2)) is not None:
        del waiting[scope]
        chosen.append(scope)
    assert chosen == [*LONG[:3], "tests/integration/acl/test_a.py"]
    assert tuple(waiting) == UNIT_FILES


def test_a_worker_stays_in_its_folder() -> None:
    waiting = (LONG[0], "tests/integration/acl/test_a.py", "tests/integration/tls/test_a.py")
    assert longest(waiting, 2, "tests/integration/tls/test_b.py") == "tests/integration/tls/test_a.py"
    assert longest(waiting, 2, "tests/integration/notify/test_b.py") == LONG[0]
