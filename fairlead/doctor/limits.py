"""Findings about what there is enough of, or not: open files, memory maps, memory, disk. Pure.

The figures are measured ones (Kafka 4.3.1, KRaft, one broker): an empty broker has 140 open files and 331 memory maps,
each log adds 1 and 2, and about 40 kB of memory to 150 MB. With 20,000 open files a broker stopped at 18,400 logs.
"""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.doctor.model import Finding, Needs, Verdict

FILES_EMPTY, FILES_PER_LOG = 140, 1.08
MAPS_EMPTY, MAPS_PER_LOG = 331, 2
MEGABYTE = 1 << 20
BROKER_MEMORY, LOG_MEMORY, BROKER_MEMORY_MOST = 150 * MEGABYTE, 40 * 1024, 600 * MEGABYTE
WORKERS_MEMORY = 2 << 30  # a voyage's bridges and replicators, and Spark with 1 GB of heap
BROKER_DISK = 100 * MEGABYTE  # what fairlead up asks for
LOG_DISK = 24 * 1024  # a fresh log: two small files and a few records
UNLIMITED = -1
# Opening a log that a broker never had: two small files that must be on the disk (docs/custody.md).
_OPEN_LOG_MS, _OPEN_LOG_SYNCS = 2.4, 3.7
_SLOW_SYNC_MS = 5.0


@dataclass(frozen=True, slots=True)
class Disk:
    """The file system of the state folder. ``sync_ms``: a small file written and on the disk, the median of some."""

    folder: str
    free: int
    kind: str
    sync_ms: float | None
    error: str = ""


def open_files(soft: int, hard: int, needs: Needs) -> Finding:
    """Of the limit of open files. A JVM raises its soft limit to the hard one by itself, so the hard one counts."""
    wanted = round(FILES_EMPTY + needs.logs * FILES_PER_LOG)
    needed, why = f"{wanted:,} for a broker of {needs.logs:,} logs", "a broker holds one file of each log open"
    if hard == UNLIMITED:
        return Finding("open files", Verdict.OK, "no limit", needed, why)
    room = max(0, int((hard - FILES_EMPTY) / FILES_PER_LOG))
    text = f"{hard:,} (soft {soft:,}): at most {room:,} logs a broker"
    todo = "raise the hard limit: ulimit -Hn, LimitNOFILE= of systemd, nofile in /etc/security/limits.conf"
    if hard < wanted:
        return Finding("open files", Verdict.FAILED, text, needed, why, todo)
    if hard < wanted * 1.25:
        return Finding("open files", Verdict.WARNING, text, needed, why, todo)
    return Finding("open files", Verdict.OK, text, needed, why)


def memory_maps(limit: int | None, needs: Needs) -> Finding:
    """Of Linux' limit of memory maps of one process; None where there is no such limit."""
    wanted = MAPS_EMPTY + needs.logs * MAPS_PER_LOG
    needed, why = f"{wanted:,} for a broker of {needs.logs:,} logs", "a broker maps two index files of each log"
    if limit is None:
        return Finding("memory maps", Verdict.OK, "no limit that is known", needed, why)
    room = max(0, (limit - MAPS_EMPTY) // MAPS_PER_LOG)
    text = f"vm.max_map_count = {limit:,}: at most {room:,} logs a broker"
    todo = f"sysctl -w vm.max_map_count={max(262_144, 2 * wanted)}, and a line in /etc/sysctl.d so that it stays"
    if limit < wanted:
        return Finding("memory maps", Verdict.FAILED, text, needed, why, todo)
    if limit < wanted * 1.25:
        return Finding("memory maps", Verdict.WARNING, text, needed, why, todo)
    return Finding("memory maps", Verdict.OK, text, needed, why)


def memory(available: int, total: int, needs: Needs) -> Finding:
    """Of memory that is free now, for the brokers that do not run yet and for a voyage."""
    each = min(BROKER_MEMORY_MOST, BROKER_MEMORY + needs.logs * LOG_MEMORY)
    brokers = needs.stopped * each
    needed = (
        f"{_size(brokers)} for {needs.stopped} brokers to start, {_size(WORKERS_MEMORY)} more for a voyage with shore"
    )
    why = "a process that gets no memory is killed, most likely a broker"
    text = f"{_size(available)} of {_size(total)} available"
    if available < brokers:
        todo = "end something, take a smaller topology (minimal), or start some of the sites: fairlead up SITE"
        return Finding("memory", Verdict.FAILED, text, needed, why, todo)
    if available < brokers + WORKERS_MEMORY:
        return Finding("memory", Verdict.WARNING, text, needed, why, "sites will start; run shore elsewhere, or alone")
    return Finding("memory", Verdict.OK, text, needed, why)


def disk(found: Disk, needs: Needs) -> Finding:
    """Of the disk under the state folder: whether it can be written, its room, its kind, how soon a file is safe."""
    wanted = max(1, needs.stopped) * (BROKER_DISK + needs.logs * LOG_DISK)
    needed = f"{_size(wanted)}, a local disk that keeps a small file within {_SLOW_SYNC_MS:g} ms"
    why = "logs, tables and the brokers' state live there; every new log is small files that must be on the disk"
    text = f"{found.folder}: {_size(found.free)} free, {found.kind or 'unknown file system'}"
    elsewhere = "set FAIRLEAD_HOME to a folder on another disk"
    if found.error or found.sync_ms is None:
        return Finding(
            "disk", Verdict.FAILED, f"{text}; {found.error}", needed, why, f"make it writable, or {elsewhere}"
        )
    opening = needs.logs * (_OPEN_LOG_MS + _OPEN_LOG_SYNCS * found.sync_ms) / 1000
    text += f", {found.sync_ms:.2g} ms for a small file ({needs.logs:,} new logs in about {opening:,.0f} s)"
    if found.free < wanted:
        return Finding("disk", Verdict.FAILED, text, needed, why, f"make room, or {elsewhere}")
    if found.kind in ("tmpfs", "ramfs"):
        return Finding("disk", Verdict.WARNING, text, needed, "it is memory: gone when the machine restarts", elsewhere)
    if found.kind.startswith(("nfs", "cifs", "smb", "fuse.sshfs", "9p", "vboxsf")):
        return Finding(
            "disk", Verdict.WARNING, text, needed, "Kafka wants a local disk, whose locks and maps hold", elsewhere
        )
    if found.sync_ms > _SLOW_SYNC_MS:
        return Finding("disk", Verdict.WARNING, text, needed, why, f"expect port calls to be slow, or {elsewhere}")
    return Finding("disk", Verdict.OK, text, needed, why)


def _size(count: int) -> str:
    return f"{count / (1 << 30):.1f} GB" if count >= 1 << 30 else f"{count >> 20} MB"
