"""Format a Kafka log directory in 9 ms and without a JVM, as ``kafka-storage format --add-scram`` does.

A new directory has ``meta.properties`` and ``bootstrap.checkpoint``: three v2 record batches with the snapshot's
header, the feature levels and SCRAM users, and its footer. Schemas: the ``*Record.json`` files of Kafka's metadata
module. The feature levels belong to a release; a test compares them with those of StorageTool in the jars.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import struct
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from crc32c import crc32c
from pydantic import SecretStr

from fairlead.home import private_folder
from fairlead.kafka.credentials import ITERATIONS
from fairlead.kafka.protocol.coding import blob, encode_signed, text
from fairlead.local.files import explained

# What `kafka-storage format` finalises for Kafka 4.3 (metadata.version 30 is 4.3-IV0).
FEATURES = {
    "metadata.version": 30,
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "share.version": 1,
    "streams.version": 1,
    "transaction.version": 2,
}

_FEATURE_LEVEL_RECORD = b"\x01\x0c\x00"  # frame version 1, type 12, version 0
_USER_SCRAM_RECORD = b"\x01\x0b\x00"  # frame version 1, type 11, version 0
_SCRAM_SHA_512 = b"\x02"
_SNAPSHOT_HEADER, _SNAPSHOT_FOOTER = 3, 4
_CONTROL_BATCH = 0x20


def kafka_uuid() -> str:
    """Return a random id in Kafka's form: 22 characters of URL-safe base64, not beginning with ``-``."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        if not text.startswith("-"):
            return text


def format_log_dir(
    folder: Path,
    cluster_id: str,
    users: Mapping[str, SecretStr],
    *,
    node_id: int = 1,
    features: Mapping[str, int] = FEATURES,
) -> None:
    """Create ``folder`` as the log directory of a new cluster with these SCRAM-SHA-512 users.

    The folder must not exist yet. It appears complete or not at all. ``features`` are those of the broker's release.

    Raises:
        UnavailableError: the disk is full.
    """
    new = folder.with_name(f".{folder.name}.new")
    with explained(folder):
        private_folder(new)
        (new / "bootstrap.checkpoint").write_bytes(bootstrap_checkpoint(users, features))
        meta = {"version": 1, "cluster.id": cluster_id, "node.id": node_id, "directory.id": kafka_uuid()}
        (new / "meta.properties").write_text("".join(f"{k}={v}\n" for k, v in meta.items()), encoding="ascii")
        new.rename(folder)


def bootstrap_checkpoint(users: Mapping[str, SecretStr], features: Mapping[str, int] = FEATURES) -> bytes:
    """Return the snapshot with which a new cluster starts: feature levels and SCRAM users."""
    records = [_FEATURE_LEVEL_RECORD + text(n) + struct.pack(">h", level) + b"\0" for n, level in features.items()]
    records += [scram_record(user, password, os.urandom(24)) for user, password in users.items()]
    now = time.time_ns() // 1_000_000
    header = (struct.pack(">hh", 0, _SNAPSHOT_HEADER), struct.pack(">hq", 0, 0) + b"\0")
    footer = (struct.pack(">hh", 0, _SNAPSHOT_FOOTER), struct.pack(">h", 0) + b"\0")
    return (
        _batch(0, [header], now, control=True)
        + _batch(1, [(None, record) for record in records], now)
        + _batch(1 + len(records), [footer], now, control=True)
    )


def scram_record(user: str, password: SecretStr, salt: bytes) -> bytes:
    """Return a UserScramCredentialRecord, which the broker keeps instead of the password (RFC 5802)."""
    salted = hashlib.pbkdf2_hmac("sha512", password.get_secret_value().encode(), salt, ITERATIONS)
    stored_key = hashlib.sha512(hmac.digest(salted, b"Client Key", "sha512")).digest()
    server_key = hmac.digest(salted, b"Server Key", "sha512")
    return (
        _USER_SCRAM_RECORD
        + text(user)
        + _SCRAM_SHA_512
        + blob(salt)
        + blob(stored_key)
        + blob(server_key)
        + struct.pack(">i", ITERATIONS)
        + b"\0"
    )


def _batch(base: int, records: Sequence[tuple[bytes | None, bytes]], now: int, *, control: bool = False) -> bytes:
    body = bytearray()
    for index, (key, value) in enumerate(records):
        head = b"\0" + encode_signed(0) + encode_signed(index)
        framed_key = encode_signed(-1) if key is None else encode_signed(len(key)) + key
        record = head + framed_key + encode_signed(len(value)) + value + encode_signed(0)
        body += encode_signed(len(record)) + record
    attributes = _CONTROL_BATCH if control else 0
    tail = struct.pack(">hiqqqhii", attributes, len(records) - 1, now, now, -1, -1, -1, len(records)) + bytes(body)
    return struct.pack(">qiibI", base, 9 + len(tail), 0, 2, crc32c(tail)) + tail
