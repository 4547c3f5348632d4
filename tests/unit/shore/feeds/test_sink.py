"""The sink of feeds does not go on where a feed has lost records that its table has."""

from __future__ import annotations

from typing import Any, cast
from unittest.mock import Mock

import pytest

from fairlead.kafka.client.reader import OffsetRange
from shore.errors import FeedMovedError
from shore.feeds.readers import FeedReader
from shore.paths import TablePaths
from shore.sink import exactly_once
from shore.sink.exactly_once import FeedSink


@pytest.mark.parametrize(("end", "own", "table"), [(5, 5, None), (4, 0, "feeds"), (5, 6, "customers/ducks")])
def test_a_feed_that_ends_before_a_table_of_it_is_refused(
    end: int, own: int, table: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records that it lost count as given, and the next ones would get their offsets."""
    monkeypatch.setattr(exactly_once, "check_whole", lambda paths: 3)
    monkeypatch.setattr(exactly_once, "feed_extents", lambda endpoint, customers: {"ducks": OffsetRange(0, end)})
    monkeypatch.setattr(exactly_once, "ends_of_table", lambda lake: {"ducks": 5, "left": 9})
    monkeypatch.setattr(exactly_once, "_end_of_own_table", lambda paths, customer: own)
    lake, readers = Mock(paths=TablePaths("/nowhere")), [FeedReader("ducks", table=True)]
    if table is None:
        assert FeedSink.open(lake, cast(Any, None), readers).ends == {"ducks": 5}
    else:
        with pytest.raises(FeedMovedError, match=rf"feeds\.ducks ends at {end}, and table {table} has its records"):
            FeedSink.open(lake, cast(Any, None), readers)
