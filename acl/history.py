"""Writing and reading the audit log of access at one site (``acl.entries`` says what it is).

Blocking confluent-kafka calls: run them with ``asyncio.to_thread``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from acl.entries import TOPIC, Entry
from acl.reader import Reader, Start
from fairlead.endpoint import KafkaEndpoint
from fairlead.errors import LoginRefusedError, RefusedError, UnavailableError
from fairlead.order_topic import TIMEOUT, append_records

_CLIENT: Final = "fairlead-access"
_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(Entry)


@dataclass(frozen=True, slots=True)
class Damaged:
    """A record of the log that this version of Fairlead cannot read."""

    offset: int
    problem: str


class NoAuditLog(RefusedError):
    """The user may not write a site's audit log."""


def note(endpoint: KafkaEndpoint, entries: Iterable[Entry], patience: float = TIMEOUT) -> None:
    """Append entries to the audit log of a site, as its administrator; the topic is made with the first.

    Raises:
        NoAuditLog: the user may not write there. LoginRefusedError: wrong password. UnavailableError: the site does not
            answer, or has not confirmed all of them.
    """
    records: list[tuple[bytes | None, bytes]] = [(None, _encoder.encode(entry)) for entry in entries]
    try:
        landed = append_records(endpoint, TOPIC, records, client_id=_CLIENT, timeout=patience)
    except LoginRefusedError:
        raise
    except RefusedError as error:
        raise NoAuditLog(
            f"{endpoint.user} may not write the audit log {TOPIC} at site {endpoint.site}, and what cannot be noted is "
            "not changed",
            hint=f"allow {endpoint.user} CREATE, READ and WRITE on topic {TOPIC} there",
            site=endpoint.site,
            user=endpoint.user,
        ) from error
    if len(landed) < len(records):
        raise UnavailableError(
            f"{endpoint.site}'s Kafka confirmed {len(landed)} of {len(records)} entries of {TOPIC}",
            hint="is it running? fairlead status",
            site=endpoint.site,
        )


def read(endpoint: KafkaEndpoint) -> tuple[tuple[Entry, ...], tuple[Damaged, ...]]:
    """The whole audit log of a site, oldest first, and what of it cannot be read; nothing where there is none yet.

    Raises:
        NotAuthorised, WrongPassword, UnavailableError: see ``acl.kafka.translate``.
    """
    entries: list[Entry] = []
    damaged: list[Damaged] = []
    with Reader(endpoint, group=f"{endpoint.user}.access") as reader:
        if TOPIC not in reader.visible():
            return (), ()
        for record in reader.read([TOPIC], start=Start.BEGINNING, follow=False):
            if record is None:
                continue
            try:
                entries.append(_decoder.decode(record.value or b""))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                damaged.append(Damaged(record.offset, str(error)))
    return tuple(entries), tuple(damaged)
