"""Looking at the machine: everything that the findings are made of. Changes nothing but for a small file that it makes
and takes away again in the state folder, to see how long that takes."""

from __future__ import annotations

import contextlib
import ctypes
import locale
import os
import platform
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

import psutil

from fairlead import home
from fairlead.doctor import limits, programs, surroundings
from fairlead.errors import UnavailableError
from fairlead.jars import find_java, jar_set
from fairlead.jars.java import java_version
from fairlead.jars.store import missing_jars
from fairlead.local import mosquitto, ports
from fairlead.local.files import nearest_existing
from fairlead.local.layout import LocalSite
from fairlead.local.state import SiteState

JAR_SETS = ("kafka", "delta")
_TIME_ERROR = 5  # of adjtimex(2): the clock is not synchronised
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:==([0-9][0-9A-Za-z.]*))?(?=$|[^0-9A-Za-z.*])")


def packages() -> tuple[dict[str, str | None], dict[str, str]]:
    """Which version of each package that Fairlead needs is installed, and the exact ones that some must have."""
    found: dict[str, str | None] = {}
    pinned: dict[str, str] = {}
    for line in metadata.requires("fairlead") or ():
        wanted = _REQUIREMENT.match(line)
        if wanted is None or "extra ==" in line:
            continue
        try:
            found[wanted[1]] = metadata.version(wanted[1])
        except metadata.PackageNotFoundError:
            found[wanted[1]] = None
        if wanted[2]:
            pinned[wanted[1]] = wanted[2]
    return found, pinned


def java() -> programs.Java:
    java_home = os.environ.get("JAVA_HOME", "")
    try:
        path = find_java()
    except UnavailableError as error:
        return programs.Java(error=error.what, java_home=java_home)
    return programs.Java(str(path), java_version(path) or 0, java_home=java_home)


def mosquitto_version() -> tuple[str, str]:
    """Its version, or why there is none."""
    try:
        return mosquitto.find_mosquitto().version, ""
    except UnavailableError as error:
        return "", error.what


def jars() -> tuple[dict[str, list[str]], int, str, bool]:
    """Those that are missing, how many there should be, where, and whether more could be put there."""
    store = home.cache() / "jars"
    missing = {name: [jar.coordinates for jar in missing_jars(name)] for name in JAR_SETS}
    total = sum(len(jar_set(name).jars) for name in JAR_SETS)
    return missing, total, str(store), os.access(nearest_existing(store), os.W_OK)


def docker() -> tuple[str, str]:
    """Version of the Docker that answers, or why there is none."""
    program = shutil.which("docker")
    if program is None:
        return "", "not installed"
    command = [program, "version", "--format", "{{.Server.Version}}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return "", f"{program} does not answer"
    said = (done.stderr.strip().splitlines() or ["it says nothing"])[0]
    return (done.stdout.strip(), "") if done.returncode == 0 else ("", f"{program} does not reach its daemon: {said}")


def open_files() -> tuple[int, int]:
    """Soft and hard limit of this process, which is what its children get."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    endless = (resource.RLIM_INFINITY, -1)
    return (limits.UNLIMITED if soft in endless else soft, limits.UNLIMITED if hard in endless else hard)


def memory_maps() -> int | None:
    return _number(Path("/proc/sys/vm/max_map_count"))


def memory() -> tuple[int, int]:
    """Available and total, of the machine or of the control group (container) that this process is in."""
    machine = psutil.virtual_memory()
    most, used = _number(Path("/sys/fs/cgroup/memory.max")), _number(Path("/sys/fs/cgroup/memory.current"))
    if most is None or used is None or most >= machine.total:
        return machine.available, machine.total
    return min(machine.available, max(0, most - used)), most


def disk(folder: Path) -> limits.Disk:
    existing = nearest_existing(folder)
    free, kind = shutil.disk_usage(existing).free, _kind(existing)
    try:
        return limits.Disk(str(folder), free, kind, _sync_milliseconds(existing))
    except OSError as error:
        return limits.Disk(str(folder), free, kind, None, f"cannot be written: {error.strerror}")


def port_facts(folder: Path, states: Mapping[str, SiteState], wanted: int) -> tuple[dict[str, str], int]:
    """Remembered ports that somebody else has, by whom; and how many of ``wanted`` free ones there are."""
    taken = {
        f"{name}'s {what}, {port}": ports.holder(port)
        for name, state in states.items()
        for what, port in LocalSite(folder, name).taken_ports(state).items()
    }
    known = [port for state in states.values() for port in state.ports]
    try:
        return taken, len(ports.choose_ports(max(1, wanted), taken=known))
    except UnavailableError:
        return taken, 0


def ephemeral_ports() -> tuple[int, int] | None:
    try:
        first, last = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return None
    return int(first), int(last)


def clock(folder: Path, foreign: Iterable[str]) -> surroundings.Clock:
    newest = max((_modified(file) for file in (folder, *folder.glob("*"), *folder.glob("run/*"))), default=0.0)
    return surroundings.Clock(_synchronised(), max(0.0, newest - time.time()), tuple(foreign))


def letters() -> surroundings.Letters:
    wanted = os.environ.get("LC_ALL") or os.environ.get("LC_CTYPE") or os.environ.get("LANG") or ""
    # Of a pipe Python says what the locale says, which is what a terminal would get.
    output = sys.stdout.encoding or locale.getpreferredencoding(False)
    return surroundings.Letters(sys.getfilesystemencoding(), output, wanted)


def place(folder: Path) -> surroundings.Place:
    existing = nearest_existing(folder)
    limit: dict[str, int | None] = {}
    for name in ("PC_NAME_MAX", "PC_PATH_MAX"):
        try:
            limit[name] = os.pathconf(existing, name)
        except (OSError, ValueError):
            limit[name] = None
    return surroundings.Place(str(folder), limit["PC_NAME_MAX"], limit["PC_PATH_MAX"])


def certificates(folder: Path, states: Mapping[str, SiteState]) -> list[surroundings.Certificate]:
    """Those of the state folder's own authority, and those that operators gave to sites."""
    files = set((folder / "certs").rglob("*.pem"))
    for state in states.values():
        if state.tls is not None:
            files |= {folder / name for name in (state.tls.ca, state.tls.certificate) if name}
    return [_certificate(file) for file in sorted(files)]


def logs_on_disk(folder: Path, states: Mapping[str, SiteState]) -> int:
    """The most logs that any broker of the state folder holds already."""
    most = 0
    for name, state in states.items():
        for broker in state.brokers:
            data = LocalSite(folder, name).kafka_folder(broker.number) / "data"
            with contextlib.suppress(OSError):
                most = max(most, sum(entry.name.endswith("-0") for entry in os.scandir(data)))
    return most


def python_version() -> tuple[int, int, int]:
    major, minor, patch = platform.python_version_tuple()
    return int(major), int(minor), int(re.match(r"\d+", patch)[0])  # type: ignore[index]  # it begins with a digit


def _sync_milliseconds(folder: Path, times: int = 15) -> float:
    took = []
    with tempfile.TemporaryDirectory(dir=folder, prefix=".doctor-") as trial:
        for number in range(times):
            began = time.perf_counter()
            with (Path(trial) / str(number)).open("wb") as file:
                file.write(b"x" * 4096)
                file.flush()
                os.fsync(file.fileno())
            took.append(time.perf_counter() - began)
    return statistics.median(took) * 1000


def _certificate(file: Path) -> surroundings.Certificate:
    from fairlead.certs.facts import all_facts  # cryptography: half of this command's start, and few sites speak TLS

    try:
        return surroundings.Certificate(str(file), min(each.expires for each in all_facts(file.read_bytes())))
    except (OSError, ValueError) as error:
        return surroundings.Certificate(str(file), None, str(error))


def _kind(folder: Path) -> str:
    """The kind of file system that a folder is on."""
    real = str(folder.resolve())
    mounts = [
        each for each in psutil.disk_partitions(all=True) if real == each.mountpoint or _below(real, each.mountpoint)
    ]
    return max(mounts, key=lambda each: len(each.mountpoint)).fstype if mounts else ""


def _below(path: str, mountpoint: str) -> bool:
    return path.startswith(mountpoint.rstrip("/") + "/")


def _synchronised() -> bool | None:
    """What Linux' kernel says of its clock; asking with no modes changes nothing."""
    if sys.platform != "linux":
        return None
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else bool(state != _TIME_ERROR)


def _modified(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
