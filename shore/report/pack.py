"""Write the files of a claim: every row behind a container's report, as CSV and Parquet, and a manifest.

The files are named after the tables (``docs/tables/``). Parquet keeps the columns' meanings and units, and the payload
of each reading as it stands in the log; CSV leaves the payload out. ``manifest.json`` records the Delta versions that
were read, the logs and offsets of the readings, with a digest over their payloads, and the digest of every file.
``SHA256SUMS`` is for ``sha256sum --check``.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from fairlead.errors import RefusedError
from fairlead.versions import fairlead_version
from shore.read import csv_cells
from shore.report.container import ContainerReport
from shore.report.slices import Slices
from shore.tables import TABLES

MANIFEST: Final = "manifest.json"
SUMS: Final = "SHA256SUMS"
DIGEST: Final = (
    "SHA-256 over the log's records in the order of their offsets: the offset as eight bytes, the length of the "
    "payload as four, both big endian, then the payload"
)
_PACKED: Final = (
    "readings",
    "readings_rejected",
    "conditions",
    "excursions",
    "mkt",
    "cold_treatments",
    "custody",
    "dock_movements",
    "alerts_now",
    "alerts",
    "alerts_ashore",
    "bookings",
    "quality",
)
"""The tables of the pack; ``alert_readings`` comes with them."""


class PackedFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file. ``rows`` is null for the page."""

    name: str
    sha256: str
    bytes: int
    rows: int | None = None


class PackedLog(msgspec.Struct, frozen=True, kw_only=True):
    """The records of one log in ``readings``: ``records`` of them, from ``first_offset`` to ``last_offset``.

    ``sha256`` is their digest as ``DIGEST`` describes it. Missing offsets in between are markers, records that could
    not be read (``readings_rejected``), or outside the requested time.
    """

    log: str
    first_offset: int
    last_offset: int
    records: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """``manifest.json``. ``since`` and ``until``: the requested device times; ``tables``: Delta versions."""

    equipment_reference: str
    since: dt.datetime | None
    until: dt.datetime | None
    written_at: dt.datetime
    written_by: str
    tables: Mapping[str, int]
    missing_tables: tuple[str, ...]
    logs: tuple[PackedLog, ...]
    digest_of_logs: str
    files: tuple[PackedFile, ...]


def write_pack(found: Slices, report: ContainerReport, folder: Path, page: str) -> Manifest:
    """Write page, files and manifest. An older pack of the same container in the folder is replaced.

    Readings are written in batches, however many there are. The files appear only when all of them are complete.

    Raises:
        RefusedError: the folder has something else in it.
    """
    _check_folder(folder, report.equipment_reference)
    with _staged(folder) as staging:
        files, logs = [], _LogDigests()
        (staging / f"{report.equipment_reference}.html").write_text(page, encoding="utf-8")
        files.append(_packed(staging / f"{report.equipment_reference}.html"))
        for name in _PACKED:
            order = ", ".join(TABLES[name].key)
            rows = found.batches(f"select * from {name} order by {order}")  # noqa: S608  # our own names
            files += _write(staging, name, TABLES[name].schema, rows, logs if name == "readings" else None)
        behind = found.batches("select * from alert_readings order by all")
        files += _write(staging, "alert_readings", behind.schema, behind)
        manifest = Manifest(
            equipment_reference=report.equipment_reference,
            since=report.since,
            until=report.until,
            written_at=dt.datetime.now(dt.UTC).replace(microsecond=0),
            written_by=f"fairlead {fairlead_version()}",
            tables=report.versions,
            missing_tables=report.missing,
            logs=tuple(logs.done()),
            digest_of_logs=DIGEST,
            files=tuple(files),
        )
        (staging / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")
        listed = [*files, _packed(staging / MANIFEST)]
        sums = "".join(f"{file.sha256}  {file.name}\n" for file in listed)
        (staging / SUMS).write_text(sums, encoding="utf-8")
    return manifest


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a pack. Raises FileNotFoundError and msgspec's errors."""
    return msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)


def _check_folder(folder: Path, number: str) -> None:
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    with contextlib.suppress(OSError, msgspec.DecodeError):
        if read_manifest(folder).equipment_reference == number:
            return
    raise RefusedError(
        f"{folder} holds something else than a report of {number}",
        hint="name an empty or a new folder with --out",
        folder=str(folder),
    )


@contextlib.contextmanager
def _staged(folder: Path) -> Iterator[Path]:
    """A folder beside the target; its files are moved there if everything succeeds."""
    staging = folder.with_name(f".{folder.name}.{os.getpid()}")
    staging.mkdir(parents=True)
    try:
        yield staging
        folder.mkdir(exist_ok=True)
        for file in sorted(staging.iterdir(), key=lambda each: each.name in (MANIFEST, SUMS)):
            file.replace(folder / file.name)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


class _LogDigests:
    """Digests of logs whose rows come in the order of their offsets."""

    def __init__(self) -> None:
        self._found: dict[str, list[int]] = {}  # first and last offset, records
        self._hashes: dict[str, Any] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        logs, offsets, payloads = (batch.column(name).to_pylist() for name in ("log", "log_offset", "payload"))
        for log, offset, payload in zip(logs, offsets, payloads, strict=True):
            about = self._found.setdefault(log, [offset, offset, 0])
            about[1], about[2] = offset, about[2] + 1
            digest = self._hashes.setdefault(log, hashlib.sha256())
            digest.update(offset.to_bytes(8, "big") + len(payload or b"").to_bytes(4, "big"))
            digest.update(payload or b"")

    def done(self) -> Iterator[PackedLog]:
        for log, (first, last, records) in sorted(self._found.items()):
            digest = self._hashes[log].hexdigest()
            yield PackedLog(log=log, first_offset=first, last_offset=last, records=records, sha256=digest)


def _write(
    folder: Path, name: str, schema: pa.Schema, batches: pa.RecordBatchReader, logs: _LogDigests | None = None
) -> list[PackedFile]:
    """Write the same rows as CSV and as Parquet."""
    text, binary = folder / f"{name}.csv", folder / f"{name}.parquet"
    plain = pa.schema([_plain(field) for field in schema if not _is_raw(field.type)])
    rows = 0
    with pacsv.CSVWriter(str(text), plain) as csv, pq.ParquetWriter(str(binary), schema, compression="zstd") as parquet:
        for read in batches:
            batch = read.select(schema.names).cast(schema)
            rows += batch.num_rows
            parquet.write_batch(batch)
            csv.write_batch(_as_text(batch, plain))
            if logs is not None:
                logs.add(batch)
    return [_packed(text, rows), _packed(binary, rows)]


def _is_raw(kind: pa.DataType) -> bool:
    """Whether a column is in Parquet alone: bytes and lists as they stand in the log."""
    return bool(pa.types.is_binary(kind) or pa.types.is_nested(kind))


def _plain(field: pa.Field) -> pa.Field:
    return pa.field(field.name, pa.string() if pa.types.is_timestamp(field.type) else field.type)


def _as_text(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert a batch for CSV: times are RFC 3339 in UTC, and no text is a formula."""
    columns = []
    for field in schema:
        column = batch.column(field.name)
        if pa.types.is_timestamp(column.type):
            column = pc.strftime(column, format="%Y-%m-%dT%H:%M:%SZ")
        elif pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            column = csv_cells(column)
        columns.append(column)
    return pa.record_batch(columns, schema=schema)


def _packed(file: Path, rows: int | None = None) -> PackedFile:
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    return PackedFile(name=file.name, sha256=digest, bytes=file.stat().st_size, rows=rows)
