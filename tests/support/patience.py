"""Run shore on a machine that is too busy for Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from shore.errors import SlowWorkerError
from shore.jobs.query import job_failure

T = TypeVar("T")
_TRIES: Final = 5


def spark_errors(run: Callable[[], T]) -> T:
    """Return the result of ``run``, which uses Spark itself. Raise ``SlowWorkerError`` where Spark's error is one."""
    try:
        return run()
    except Exception as error:
        if isinstance(slow := job_failure("of a test", str(error)), SlowWorkerError):
            raise slow from error
        raise


def patient(run: Callable[[], T], tries: int = _TRIES) -> T:
    """Return the result of ``run``; repeat it, as the error advises, when Spark's workers did not start in time."""
    try:
        return run()
    except SlowWorkerError:
        if tries <= 1:
            raise
    return patient(run, tries - 1)
