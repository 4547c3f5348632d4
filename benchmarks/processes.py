"""What a process has used: CPU of it and its children, the most memory it ever had, its bytes on the wire."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import psutil

_HIGH_WATER: Final = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)
_PID: Final = re.compile(r"pid=(\d+)")
_SENT: Final = re.compile(r"\bbytes_sent:(\d+)")
_RECEIVED: Final = re.compile(r"\bbytes_received:(\d+)")


def cpu_seconds(process: psutil.Process) -> float:
    """User and system time so far, of the process and of all that it started, those that have ended included."""
    times = process.cpu_times()
    own = times.user + times.system + getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    for child in process.children():
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            own += cpu_seconds(child)
    return float(own)


def peak_rss_mb(process: psutil.Process) -> float:
    """The most resident memory that the process ever had, in MB (10^6 bytes)."""
    status = Path(f"/proc/{process.pid}/status")
    found = _HIGH_WATER.search(status.read_text(encoding="ascii")) if status.exists() else None
    return round(int(found[1]) * 1024 / 1e6 if found else process.memory_info().rss / 1e6, 1)


def sockets(process: psutil.Process) -> dict[str, tuple[int, int]]:
    """Payload bytes so far by connection (local and remote address): sent with repetitions, received. From the kernel's
    own counters (``ss``), so that counting costs the traffic nothing."""
    program = shutil.which("ss")
    if program is None:
        raise SystemExit("the bytes on the wire are read with ss (Debian: apt install iproute2)")
    done = subprocess.run([program, "-HtniOp"], capture_output=True, text=True, check=True)  # noqa: S603
    return parse_sockets(done.stdout, process.pid)


def parse_sockets(text: str, pid: int) -> dict[str, tuple[int, int]]:
    """The lines of ``ss -HtniOp`` that belong to one process."""
    found: dict[str, tuple[int, int]] = {}
    for line in text.splitlines():
        if any(int(owner) == pid for owner in _PID.findall(line)):
            words = line.split()
            sent, received = _SENT.search(line), _RECEIVED.search(line)
            found[f"{words[3]} {words[4]}"] = (int(sent[1]) if sent else 0, int(received[1]) if received else 0)
    return found


def bytes_between(
    before: Mapping[str, tuple[int, int]], after: Mapping[str, tuple[int, int]], port: int | None = None
) -> int:
    """Bytes in both directions between two readings, over all connections or those to one remote port."""
    total = 0
    for name, counts in after.items():
        if port is None or name.rpartition(":")[2] == str(port):
            total += sum(counts) - sum(before.get(name, (0, 0)))
    return total
