"""Which errors are retried, and for how long."""

from __future__ import annotations

import pytest

from edge.logwriter import retry as patience
from edge.logwriter.retry import retry_transient
from fairlead.errors import FairleadError, LoginRefusedError, RefusedError, UnavailableError
from fairlead.kafka.protocol.errors import AuthenticationFailed

REFUSED = [LoginRefusedError("no"), AuthenticationFailed("no")]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "FIRST_DELAY", 0.001)
    monkeypatch.setattr(patience, "LONGEST_DELAY", 0.002)


async def run(*errors: FairleadError, refused_seconds: float) -> str:
    left = list(errors)

    async def work() -> str:
        if left:
            raise left.pop(0)
        return "done"

    return await retry_transient(work, "test", refused_seconds=refused_seconds)


async def test_what_is_away_is_waited_for() -> None:
    """An unavailable broker is waited for."""
    assert await run(*[UnavailableError("away")] * 5, refused_seconds=0) == "done"


async def test_what_is_not_allowed_is_told_at_once() -> None:
    """An authorization error is raised at once."""
    with pytest.raises(RefusedError):
        await run(RefusedError("never"), refused_seconds=60)


@pytest.mark.parametrize("refused", REFUSED)
async def test_a_refused_login_is_tried_again_for_a_while(refused: FairleadError) -> None:
    """A refused login is retried for a while."""
    assert await run(refused, refused, UnavailableError("away"), refused, refused_seconds=60) == "done"


@pytest.mark.parametrize("refused", REFUSED)
async def test_a_login_that_stays_refused_is_told(refused: FairleadError) -> None:
    """A login that stays refused is raised."""
    with pytest.raises(type(refused)):
        await run(*[refused] * 1000, refused_seconds=0.02)
