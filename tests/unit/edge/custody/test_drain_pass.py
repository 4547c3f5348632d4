"""Which strays count as drained after one pass through a strays log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from edge.custody.protocol import CopyStrays, CustodyProtocol, RememberLogs, StoreStrays
from edge.holdings import Holdings
from edge.messages import MessageId
from edge.strays.store import StrayBook, StrayIndex, Strays
from fairlead.custody.view import CustodyView
from fairlead.records.custody import CustodyEntry
from tests.support.edge.receiving import LOG, NOW, entry

STRAYS = "strays.tokyo"


class Tokyo:
    """Holds the log in term 2, and keeps one reading of it at offset 4."""

    def __init__(self) -> None:
        self.index = StrayIndex()
        self.index.add(LOG, 4, MessageId("d1", 1, 0))
        self.holdings = Holdings("tokyo", CustodyView())
        book = StrayBook(cast(Strays, MagicMock(log=STRAYS, index=self.index)), (), self.holdings.view)
        self.protocol = CustodyProtocol(self.holdings, book, sites=(), now=lambda: NOW, nonce=lambda: "n")
        self.hold(entry(2, "tokyo"))

    def hold(self, given: CustodyEntry) -> None:
        self.holdings.view.apply(given)
        self.holdings.hold(LOG, given.term)

    def lose(self) -> None:
        self.holdings.mark_broken(LOG)

    def lose_and_get_back(self) -> None:
        """Lose the log to a seizure in Sydney, which gives it back before the pass ends."""
        self.lose()
        self.holdings.view.apply(entry(18, "sydney", event="SEIZURE", granted_by="sydney"))
        self.hold(entry(19, "tokyo", from_site="sydney", granted_by="sydney"))


@pytest.mark.parametrize(
    ("meanwhile", "left"), [(lambda _: None, []), (Tokyo.lose, [4]), (Tokyo.lose_and_get_back, [4])]
)
def test_strays_of_a_log_that_was_lost_during_the_pass_still_wait(
    meanwhile: Callable[[Tokyo], None], left: list[int]
) -> None:
    """Strays of a log that this site has lost during the pass still wait, also if it holds the log again."""
    tokyo = Tokyo()
    drain = tokyo.protocol.drain([LOG])
    actions: list[Any] = [next(drain), drain.send(None), drain.send(None)]
    assert [type(each) for each in actions] == [StoreStrays, RememberLogs, CopyStrays]
    meanwhile(tokyo)
    with pytest.raises(StopIteration):
        drain.send(None)
    assert list(tokyo.index.offsets(LOG)) == left


@pytest.mark.parametrize("drained", [False, True])
def test_strays_that_come_during_the_pass_are_left_to_the_next(drained: bool) -> None:
    """A pass copies the strays that were there when it began; those that come meanwhile wait for the next pass."""
    tokyo = Tokyo()
    drain = tokyo.protocol.drain([LOG])
    assert [type(each) for each in (next(drain), drain.send(None))] == [StoreStrays, RememberLogs]
    tokyo.index.add(LOG, 5, MessageId("d1", 1, 1))
    if drained:
        tokyo.index.drained(LOG, upto=5)  # as a grant and a return of the log do
        with pytest.raises(StopIteration):
            drain.send(None)
    else:
        assert drain.send(None) == CopyStrays(STRAYS, 5, {LOG: frozenset({4})})
        with pytest.raises(StopIteration):
            drain.send(None)
    assert list(tokyo.index.offsets(LOG)) == [5]


def test_strays_behind_a_damaged_batch_that_is_whole_again_before_the_pass_ends_still_wait() -> None:
    """Another reader meets the damage while the logs are remembered, and the strays come back while others are copied:
    this pass did not copy them."""
    tokyo = Tokyo()
    tokyo.index.add(LOG, 5, MessageId("d1", 1, 1))
    drain = tokyo.protocol.drain([LOG])
    assert [type(each) for each in (next(drain), drain.send(None))] == [StoreStrays, RememberLogs]
    tokyo.index.go_back(5)
    assert drain.send(None) == CopyStrays(STRAYS, 5, {LOG: frozenset({4})})
    tokyo.index.add(LOG, 5, MessageId("d1", 1, 1))
    with pytest.raises(StopIteration):
        drain.send(None)
    assert list(tokyo.index.offsets(LOG)) == [5]
