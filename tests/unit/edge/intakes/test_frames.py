from __future__ import annotations

import asyncio
from typing import TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.errors import IntakeError
from edge.intakes.frames import (
    Confirm,
    Items,
    MarkItem,
    NothingItem,
    ReadingItem,
    Refused,
    RefusedItem,
    Setup,
    State,
    Stop,
    down_decoder,
    frame,
    read_frame,
    up_decoder,
)

T = TypeVar("T")


def any_of(kind: type[T]) -> st.SearchStrategy[T]:
    numbers = st.integers(-(2**63), 2**63 - 1)
    return st.builds(kind, **{name: numbers for name, its in kind.__annotations__.items() if its == "int"})


items = st.lists(st.one_of(*(any_of(kind) for kind in (ReadingItem, RefusedItem, MarkItem, NothingItem))), max_size=5)


async def through(data: bytes) -> list[bytes]:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    bodies = []
    while (body := await read_frame(reader)) is not None:
        bodies.append(body)
    return bodies


@given(st.lists(st.one_of(st.builds(Items, items), any_of(State), any_of(Refused)), max_size=4))
def test_what_an_intake_says_arrives(messages: list[Items | State | Refused]) -> None:
    data = b"".join(map(frame, messages))
    assert [up_decoder.decode(body) for body in asyncio.run(through(data))] == messages


@given(st.lists(st.one_of(*(any_of(kind) for kind in (Setup, Confirm, Stop))), max_size=4))
def test_what_the_core_says_arrives(messages: list[Setup | Confirm | Stop]) -> None:
    data = b"".join(map(frame, messages))
    assert [down_decoder.decode(body) for body in asyncio.run(through(data))] == messages


def test_a_frame_that_is_cut_off_is_no_frame() -> None:
    data = frame(Confirm(1)) + frame(Confirm(2))[:-1]
    assert [down_decoder.decode(body) for body in asyncio.run(through(data))] == [Confirm(1)]


def test_what_cannot_be_a_frame_is_refused() -> None:
    with pytest.raises(IntakeError, match="1,195,725,856 bytes"):
        asyncio.run(through(b"GET / HTTP/1.1\r\n"))
    with pytest.raises(msgspec.ValidationError):
        up_decoder.decode(frame(Stop())[4:])
