"""A formatted log directory, read back with kafka-python's record parser; and SCRAM as RFC 5802 has it."""

from __future__ import annotations

import hashlib
import hmac
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record import MemoryRecords
from pydantic import SecretStr

from fairlead.errors import UnavailableError
from fairlead.local import formatting

_WORDS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=60)


def batches(data: bytes) -> list[tuple[Any, list[Any]]]:
    records = MemoryRecords(data)
    found = []
    while records.has_next():
        batch = records.next_batch()
        assert batch.validate_crc()
        found.append((batch, list(batch)))
    return found


@given(st.dictionaries(_WORDS, _WORDS, max_size=8))
def test_the_checkpoint_holds_features_and_users(users: dict[str, str]) -> None:
    data = formatting.bootstrap_checkpoint({user: SecretStr(password) for user, password in users.items()})
    (header, _), (body, records), (footer, _) = batches(data)
    assert header.is_control_batch and footer.is_control_batch and not body.is_control_batch
    assert (header.base_offset, body.base_offset, footer.base_offset) == (0, 1, 1 + len(records))
    values = [record.value for record in records]
    levels = values[: len(formatting.FEATURES)]
    for name, value in zip(formatting.FEATURES, levels, strict=True):
        text = name.encode()
        assert (
            value
            == b"\x01\x0c\x00" + bytes([len(text) + 1]) + text + struct.pack(">h", formatting.FEATURES[name]) + b"\x00"
        )
    assert len(values) - len(levels) == len(users)
    for user, value in zip(users, values[len(levels) :], strict=True):
        assert value[3:].startswith(bytes([len(user) + 1]) + user.encode())


@given(_WORDS, st.binary(min_size=8, max_size=40))
def test_a_client_with_the_password_proves_it(password: str, salt: bytes) -> None:
    record = formatting.scram_record("bridge", SecretStr(password), salt)
    rest = record[len(b"\x01\x0b\x00\x07bridge\x02") :]
    fields: list[bytes] = []
    while len(rest) > 5:
        length = rest[0] - 1
        fields.append(rest[1 : 1 + length])
        rest = rest[1 + length :]
    kept_salt, stored_key, server_key = fields
    assert kept_salt == salt
    (iterations,) = struct.unpack(">i", rest[:4])
    # The client's side of RFC 5802: its proof, taken apart by the server, gives the stored key.
    salted = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, iterations)
    client_key = hmac.new(salted, b"Client Key", "sha512").digest()
    message = b"n=bridge,r=nonce,r=nonce2,s=,i=4096,c=biws"
    signature = hmac.new(stored_key, message, "sha512").digest()
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    assert hashlib.sha512(bytes(a ^ b for a, b in zip(proof, signature, strict=True))).digest() == stored_key
    assert hmac.new(salted, b"Server Key", "sha512").digest() == server_key
    # All that the record holds: the user's name, the salt and two derived keys, which say nothing of the password.
    head = b"\x01\x0b\x00\x07bridge\x02"
    assert record == head + b"".join(bytes([len(each) + 1]) + each for each in fields) + rest
    assert password.encode() not in stored_key + server_key or len(password) < 4


def test_a_log_dir_appears_whole(tmp_path: Path) -> None:
    folder = tmp_path / "kafka" / "data"
    (tmp_path / "kafka" / ".data.new").mkdir(parents=True)  # left by a crash
    formatting.format_log_dir(folder, "c" * 22, {"admin": SecretStr("secret-word")})
    meta = dict(line.split("=", 1) for line in (folder / "meta.properties").read_text().split())
    assert meta["cluster.id"] == "c" * 22 and meta["node.id"] == "1" and meta["version"] == "1"
    assert sorted(path.name for path in folder.parent.iterdir()) == ["data"]


def test_a_full_disk_is_said(tmp_path: Path) -> None:
    new = tmp_path / ".data.new"
    new.mkdir()
    (new / "bootstrap.checkpoint").symlink_to("/dev/full")
    with pytest.raises(UnavailableError, match="is full"):
        formatting.format_log_dir(tmp_path / "data", "c" * 22, {})
    assert not (tmp_path / "data").exists()


def test_ids_do_not_begin_with_a_hyphen() -> None:
    ids = {formatting.kafka_uuid() for _ in range(2000)}
    assert len(ids) == 2000
    assert all(len(text) == 22 and not text.startswith("-") for text in ids)
