"""What one customer may list and read: the share of its own tables. Answers block; ``routes`` gives them threads.

A share has the name of its customer, one schema ``default``, and the tables that ``content`` names for the kind of the
customer's feed. Whatever a customer asks for that is not its own is not there (404), whether others have it or not.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import hashlib
import hmac
import secrets
import shutil
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import pyarrow.parquet as pq

from board.sharing.content import SHARED, SharedTable, changes, changes_schema, content, opened
from board.sharing.protocol import ApiError, SharedFile, VersionSpan, schema_string
from board.sharing.tokens import Clock, Recipient, Tokens, utc_now
from board.sharing.versions import ChangedRows, History, Version, Versions, changes_digest
from fairlead.errors import ConfigurationError, UnknownNameError
from shore.feeds.readers import FeedReader, readers_here
from shore.paths import TablePaths
from shore.report.slices import open_slices
from topologies.model import Topology

SCHEMA: Final = "default"
FRESH: Final = dt.timedelta(seconds=30)  # while a version is so new, nobody looks whether there is a newer one
MEMORY: Final = "256MB"  # of one making: the board has pages to serve; what does not fit is sorted on disk
LIFETIME: Final = dt.timedelta(minutes=5)  # of a link to a file
_MAKERS: Final = 2  # versions that are made at the same time
_LONGEST: Final = 2000  # characters of a link
_NAMESPACE: Final = uuid.UUID("6f1b6a52-0b7e-5d0c-9f43-4f1f6b1c3f0e")


@dataclass(frozen=True, slots=True)
class CustomerTable:
    """One table of one customer. ``identity`` stays the same over all versions."""

    reader: FeedReader
    table: SharedTable

    @property
    def identity(self) -> str:
        return str(uuid.uuid5(_NAMESPACE, f"{self.reader.customer}/{self.table.name}"))

    @property
    def key(self) -> tuple[str, str]:
        """The customer and the table."""
        return self.reader.customer, self.table.name

    @property
    def columns(self) -> str:
        """A digest of the table's columns: a newer release may have others."""
        return hashlib.sha256(schema_string(self.table.schema).encode()).hexdigest()


class FileLink(msgspec.Struct, frozen=True):
    """What a link says: the file ``digest`` of a customer's table, until ``expires``, for a holder of ``token``."""

    customer: str
    table: str
    digest: str
    token: str
    expires: dt.datetime


class Links:
    """Make and check links to files that carry their own right: a customer's client opens them without its token.

    A link is good for some minutes, for one file, only from the process that made it, and only while the token with
    which it was asked for is good.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._key = secrets.token_bytes(32)  # lives as long as this process

    def make(self, to: Recipient, table: str, digest: str) -> tuple[str, dt.datetime]:
        """Return the text of a link, and when it ends."""
        expires = self._clock() + LIFETIME
        said = msgspec.json.encode(FileLink(to.customer, table, digest, to.token, expires))
        return f"{_text(said)}.{_text(self._sign(said))}", expires

    def read(self, text: str) -> FileLink | None:
        """Return what a link says; None when it was not made here, was changed, or has ended."""
        said, _, signature = text.partition(".")
        try:
            content, signed = _bytes(said), _bytes(signature)
        except (binascii.Error, ValueError):
            return None
        if len(text) > _LONGEST or not hmac.compare_digest(signed, self._sign(content)):
            return None
        link = msgspec.json.decode(content, type=FileLink)
        return link if link.expires > self._clock() else None

    def _sign(self, content: bytes) -> bytes:
        return hmac.digest(self._key, content, hashlib.sha256)


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    """Decode strictly: one content has one text."""
    found = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    if _text(found) != text:
        raise ValueError(text)
    return found


class SharingService:
    """The shares of one topology.

    Args:
        folder: The topology's state folder; it has the tokens.
        cache: A folder for the files of shares and nothing else. What customers left in it who have no share any more
            is removed.
        fresh: For how long a version counts as the newest without looking.
    """

    def __init__(
        self,
        topology: Topology,
        folder: Path,
        paths: TablePaths,
        cache: Path,
        clock: Clock = utc_now,
        *,
        fresh: dt.timedelta = FRESH,
    ) -> None:
        self._readers = {each.customer: each for each in readers_here(topology) if SHARED[each.grain]}
        self._paths = paths
        self._cache = cache
        self._clock = clock
        self._fresh = fresh
        self._tokens = Tokens(folder, clock)
        self._links = Links(clock)
        self._makers = threading.BoundedSemaphore(_MAKERS)
        self._locks: dict[tuple[str, str], threading.Lock] = {
            (customer, table.name): threading.Lock()
            for customer, reader in self._readers.items()
            for table in SHARED[reader.grain]
        }
        self._looked: dict[tuple[str, str], dt.datetime] = {}
        self._remove_strangers()

    def recipient(self, authorization: str) -> Recipient:
        """Return who sends this ``Authorization`` header.

        Raises:
            ApiError: it has no token that is good now (401), or that of a customer without a share (403).
        """
        scheme, _, token = authorization.partition(" ")
        found = self._tokens.recipient(token.strip()) if scheme.lower() == "bearer" else None
        if found is None:
            raise ApiError(401, "this needs a bearer token that is good now: ask for a new profile file")
        if found.customer not in self._readers:
            raise ApiError(403, "there is no share for you now")
        return found

    def shares(self, who: Recipient) -> list[dict[str, str]]:
        """Return the customer's shares: its one."""
        return [{"name": who.customer, "id": str(uuid.uuid5(_NAMESPACE, who.customer))}]

    def share(self, who: Recipient, share: str) -> dict[str, str]:
        """Return a share of the customer. Raises ``ApiError`` (404) for any other."""
        for each in self.shares(who):
            if each["name"].lower() == share.lower():
                return each
        raise _not_there()

    def schemas(self, who: Recipient, share: str) -> list[dict[str, str]]:
        """Return the schemas of a share. Raises ``ApiError`` (404) for any other."""
        return [{"name": SCHEMA, "share": self.share(who, share)["name"]}]

    def tables(self, who: Recipient, share: str, schema: str = SCHEMA) -> list[dict[str, str]]:
        """Return the tables of a share. Raises ``ApiError`` (404) for any other."""
        found = self.share(who, share)
        if schema.lower() != SCHEMA:
            raise _not_there()
        customer_tables = (
            CustomerTable(self._readers[who.customer], each) for each in SHARED[self._readers[who.customer].grain]
        )
        return [
            {
                "name": each.table.name,
                "schema": SCHEMA,
                "share": found["name"],
                "shareId": found["id"],
                "id": each.identity,
            }
            for each in customer_tables
        ]

    def customer_table(self, who: Recipient, share: str, schema: str, table: str) -> CustomerTable:
        """Return one table of a share. Raises ``ApiError`` (404) for any other."""
        listed = {each["name"] for each in self.tables(who, share, schema)}
        reader = self._readers[who.customer]
        for each in SHARED[reader.grain]:
            if each.name == table.lower() and each.name in listed:
                return CustomerTable(reader, each)
        raise _not_there()

    def history(self, customer_table: CustomerTable) -> History:
        """Return the versions of a table, the newest made now if the tables it comes from have changed.

        Raises:
            UnavailableError: a table cannot be read, or the disk is full.
        """
        with self._locks[customer_table.key]:
            return self._history(customer_table)

    def changes(self, customer_table: CustomerTable, asked: VersionSpan) -> list[tuple[Version, ChangedRows]]:
        """Return what changed in each version of a span, made now where nobody has asked before; versions without a
        change are left out.

        Raises:
            ApiError: as ``History.steps``.
            UnavailableError: a table cannot be read, or the disk is full.
        """
        versions, table = self._versions(*customer_table.key), customer_table.table
        found = []
        with self._locks[customer_table.key]:
            for before, after in self._history(customer_table).steps(asked):
                digest = changes_digest(before, after)
                file = versions.file(digest)
                if not file.is_file():
                    old, new = (versions.dataset(each, table.schema) for each in (before, after))
                    with self._makers, open_slices(self._paths, memory=MEMORY, threads=1) as slices:
                        versions.add_changes(digest, changes(slices, table, old, new), changes_schema(table))
                rows = pq.read_metadata(file).num_rows
                if rows:
                    found.append((after, ChangedRows(digest, rows, file.stat().st_size)))
        return found

    def _history(self, customer_table: CustomerTable) -> History:
        """``history``, for who has the table's lock."""
        key, now = customer_table.key, self._clock()
        versions = self._versions(*key)
        before = versions.history()
        looked = self._looked.get(key)
        if before is not None and looked is not None and dt.timedelta(0) <= now - looked < self._fresh:
            return before
        with self._makers, open_slices(self._paths, memory=MEMORY, threads=1) as slices:
            inputs = {name: str(version) for name, version in opened(slices, customer_table.table).items()}
            inputs |= {"kind": customer_table.reader.kind, "columns": customer_table.columns}
            if before is None or before.inputs != inputs:
                found = content(slices, customer_table.reader, customer_table.table)
                before = versions.add(before, inputs, found, customer_table.table.schema)
        self._looked[key] = now
        return before

    def files(
        self,
        who: Recipient,
        customer_table: CustomerTable,
        version: Version | ChangedRows,
        address: Callable[[str], str],
    ) -> tuple[SharedFile, ...]:
        """Return the files of a version, or of its changes, with links for who asks.

        Args:
            address: The URL of a link, by its text.
        """
        if not version.digest:
            return ()
        link, expires = self._links.make(who, customer_table.table.name, version.digest)
        return (SharedFile(address(link), version.digest, version.size, version.rows, expires),)

    def linked(self, text: str) -> Path:
        """Return the file of a link. What has been taken back since the link was made is not there any more.

        Raises:
            ApiError: the link is none of ours, has ended, or its token has (403); the version is kept no more (404).
            UnavailableError: as ``history``.
        """
        link = self._links.read(text)
        if link is None or self._tokens.holder(link.token) != Recipient(link.customer, link.token):
            raise ApiError(403, "this link is not good, or no longer: query the table again")
        reader = self._readers.get(link.customer)
        table = next((each for each in SHARED[reader.grain] if each.name == link.table), None) if reader else None
        if reader is None or table is None:
            raise _not_there()
        self.history(CustomerTable(reader, table))
        file = self._versions(link.customer, link.table).file(link.digest)
        if not file.is_file():
            raise ApiError(404, "this version is kept no more: query the table again")
        return file

    def _versions(self, customer: str, table: str) -> Versions:
        return Versions(self._cache / customer / table, self._clock)

    def _remove_strangers(self) -> None:
        """Remove from the cache what no share has."""
        for folder in self._cache.glob("*/*") if self._cache.is_dir() else ():
            if (folder.parent.name, folder.name) not in self._locks and folder.is_dir():
                shutil.rmtree(folder, ignore_errors=True)


def shared_names(topology: Topology, customer: str) -> tuple[str, ...]:
    """Return the tables of a customer's share.

    Raises:
        UnknownNameError: the topology has no such customer.
        ConfigurationError: it has no share.
    """
    if customer not in topology.customers:
        raise UnknownNameError("customer", customer, topology.customers)
    for reader in readers_here(topology):
        if reader.customer == customer and SHARED[reader.grain]:
            return tuple(each.name for each in SHARED[reader.grain])
    raise ConfigurationError(
        f"customer {customer} has no share",
        hint="shares are for customers with a feed of kind detailed, coarse or alerts at a site where shore may run",
    )


def _not_there() -> ApiError:
    return ApiError(404, "there is no such share, schema, table or file for you")
