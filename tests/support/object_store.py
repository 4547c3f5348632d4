"""Storages for tests of what shore keeps at a URL: a ``file://`` folder, and a real S3 server.

The S3 server is versitygw over a folder (https://github.com/versity/versitygw, Apache-2.0). It is a Go program: where a
Go toolchain is found it is built once, in about two minutes, and kept in Fairlead's cache. Without Go the tests run on
``file://`` alone, which shore opens by the same code (``shore.storage``, delta-rs), but which has folders.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from filelock import FileLock

from fairlead.home import cache
from fairlead.local.ports import choose_ports
from tests.support.waits import PATIENCE

VERSION: Final = "v1.8.0"
_MODULE: Final = "github.com/versity/versitygw/cmd/versitygw"
_BUCKET: Final = "tables"


def kinds() -> list[str]:
    """Return the kinds of storage that are available here."""
    return ["file", "s3"] if shutil.which("go") or _program().exists() else ["file"]


def _program() -> Path:
    return cache() / f"versitygw-{VERSION}" / "versitygw"


def _built() -> Path:
    program = _program()
    program.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(program.with_suffix(".lock")):
        if not program.exists():
            subprocess.run(  # noqa: S603  # constants
                ["go", "install", f"{_MODULE}@{VERSION}"],  # noqa: S607  # the toolchain that kinds() has found
                env=os.environ | {"GOBIN": str(program.parent)},
                check=True,
                capture_output=True,
            )
    return program


@contextlib.contextmanager
def s3_server(folder: Path) -> Iterator[dict[str, str]]:
    """Run an S3 server with one empty bucket; yield the environment variables by which delta-rs finds it."""
    program, password = _built(), secrets.token_hex(16)
    (folder / _BUCKET).mkdir(parents=True)
    (port,) = choose_ports(1)
    process = subprocess.Popen(  # noqa: S603  # the program that was built
        [program, "--port", f"127.0.0.1:{port}", "--quiet", "posix", str(folder)],
        env={"ROOT_ACCESS_KEY": "fairlead", "ROOT_SECRET_KEY": password, "PATH": os.environ["PATH"]},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + PATIENCE
        while not _answers(port):
            assert process.poll() is None, "the S3 server ended"
            assert time.monotonic() < deadline, "the S3 server does not answer"
            time.sleep(0.05)
        yield {
            "AWS_ACCESS_KEY_ID": "fairlead",
            "AWS_SECRET_ACCESS_KEY": password,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
        }
    finally:
        process.terminate()
        process.wait()


def s3_base() -> str:
    """Return a prefix of the test's own in the bucket."""
    return f"s3a://{_BUCKET}/{uuid.uuid4().hex}"


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
