"""What an intake and the core say to each other: frames of msgpack behind their length in four bytes. Pure.

Items are numbered by their order on the socket, from 1, through all MQTT connections of the intake; ``Confirm`` names
the last of those that are all stored. So a confirmation can never mean a message of another connection.
"""

from __future__ import annotations

import asyncio

import msgspec

from edge.errors import IntakeError

MOST_BYTES = 64 * 1024 * 1024  # far above what an intake puts into one, even with the largest message of a broker
_LENGTH = 4


class ReadingItem(msgspec.Struct, frozen=True, array_like=True, tag="r", gc=False):
    """A reading that was found good: what ``edge.messages.ReadingMessage`` says of it, and the bytes."""

    log: str
    number: str
    device: str
    boot: int
    sequence: int
    device_ms: int
    received_ms: int
    redelivered: bool
    payload: bytes


class RefusedItem(msgspec.Struct, frozen=True, array_like=True, tag="x", gc=False):
    """A message that cannot be used, for the dead letters."""

    topic: str
    reason: str
    detail: str
    received_ms: int
    redelivered: bool
    payload: bytes


class MarkItem(msgspec.Struct, frozen=True, array_like=True, tag="m", gc=False):
    """One of the core's own marks has come through the intake's session: all before it is in the frames before."""

    text: bytes


class NothingItem(msgspec.Struct, frozen=True, array_like=True, tag="n", gc=False):
    """A message that is not for an intake, because the core has it from its own session."""


Item = ReadingItem | RefusedItem | MarkItem | NothingItem


class Setup(msgspec.Struct, frozen=True, array_like=True, tag="setup"):
    """What an intake is to do; the first frame it gets. ``topology`` is JSON, ``endpoint`` as ``MqttEndpoint``."""

    site: str
    topology: bytes
    host: str
    port: int
    user: str | None
    password: str | None
    tls_ca: str | None
    client_id: str
    share: str
    marks: str
    window: int
    other_passwords: tuple[str, ...] = ()


class Confirm(msgspec.Struct, frozen=True, array_like=True, tag="confirm"):
    """Items up to this number are stored."""

    upto: int


class Stop(msgspec.Struct, frozen=True, array_like=True, tag="stop"):
    """Take no more messages. The socket is closed when all that can be confirmed is."""


class Items(msgspec.Struct, frozen=True, array_like=True, tag="items"):
    items: list[Item]


class State(msgspec.Struct, frozen=True, array_like=True, tag="state"):
    """The intake's MQTT session is connected and subscribed, or is not any more."""

    connected: bool
    connections: int
    sessions_lost: int


class Refused(msgspec.Struct, frozen=True, array_like=True, tag="refused"):
    """The MQTT broker refuses the intake, and waiting would not help; its last frame."""

    what: str
    hint: str


Down = Setup | Confirm | Stop
Up = Items | State | Refused

_encoder = msgspec.msgpack.Encoder()
up_decoder = msgspec.msgpack.Decoder(Up)
down_decoder = msgspec.msgpack.Decoder(Down)


def frame(message: Up | Down) -> bytes:
    """The bytes of one frame."""
    buffer = bytearray(_LENGTH)
    _encoder.encode_into(message, buffer, _LENGTH)
    buffer[:_LENGTH] = (len(buffer) - _LENGTH).to_bytes(_LENGTH, "big")
    return bytes(buffer)


async def read_frame(reader: asyncio.StreamReader) -> bytes | None:
    """The body of the next frame; None when the other side has closed, be it in the middle of one.

    Raises:
        IntakeError: it cannot be a frame.
    """
    try:
        length = int.from_bytes(await reader.readexactly(_LENGTH), "big")
        if length > MOST_BYTES:
            raise IntakeError(f"a frame of {length:,} bytes between the bridge and an intake")
        return await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
