"""The archive of Kafka's loaded classes (AppCDS), with which a broker starts in half the CPU time.

An archive fits one JDK build and one set of jars; its name has both. It is made once, by running a throw-away broker.
If that fails, brokers start without an archive.
"""

from __future__ import annotations

import contextlib
import secrets
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from filelock import FileLock
from pydantic import SecretStr

from fairlead import home
from fairlead.errors import FairleadError
from fairlead.jars.java import class_archive_key
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.local import kafka, ports, processes
from fairlead.local.formatting import kafka_uuid
from fairlead.local.processes import interruptible
from fairlead.local.state import SiteState

_DUMP_TIME = 60.0  # seconds; a broker that writes the archive exits 3.5 s after SIGTERM


def archive_options(
    java: Path, jars: Sequence[Path], *, on_progress: Callable[[str], None] | None = None
) -> tuple[str, ...]:
    """Return the JVM options that use the archive for this Java and these jars, and make the archive if it is missing.

    Safe to call from several processes at once. Returns no options if the archive cannot be made.
    """
    folder = home.cache() / "cds"
    archive = folder / f"kafka-{class_archive_key(java, jars)}.jsa"
    # Brokers start without an archive too. If the cause persists, the first site that starts reports it.
    with contextlib.suppress(FairleadError, OSError):
        if not archive.exists():
            folder.mkdir(parents=True, exist_ok=True)
            with FileLock(folder / ".lock"):
                if not archive.exists():
                    if on_progress:
                        on_progress("preparing Java for quick starts (once)")
                    _make(archive, java, jars)
    return (f"-XX:SharedArchiveFile={archive}",) if archive.exists() else ()


def _make(archive: Path, java: Path, jars: Sequence[Path]) -> None:
    """Run a broker in a temporary folder and stop it; it writes the archive when it ends."""
    cancel = threading.Event()
    with interruptible(cancel), tempfile.TemporaryDirectory(dir=archive.parent, prefix=".making-") as name:
        folder = Path(name)
        new, pid_file = folder / "kafka.jsa", folder / "pid"
        client, controller, mqtt = ports.choose_ports(3)
        site = SiteState(kafka_port=client, controller_port=controller, mqtt_port=mqtt, cluster_id=kafka_uuid())
        password = SecretStr(secrets.token_urlsafe(24))  # the password of a super user for some seconds
        endpoint = KafkaEndpoint("archive", ((ports.HOST, client),), kafka.ADMIN, password)
        try:
            kafka.write_files(folder, site, password)
            kafka.format_if_new(folder, site.cluster_id, {kafka.ADMIN: password, kafka.CONTROLLER: password})
            line = kafka.command(java, jars, folder, jvm=[f"-XX:ArchiveClassesAtExit={new}"])
            mark = kafka.marker(folder)
            process = processes.start(pid_file, line, cwd=folder, log=folder / "console.log", marker=mark)
            kafka.wait_ready(process, endpoint, folder, cancel=cancel)
        finally:
            processes.stop([pid_file], grace=_DUMP_TIME)
        if new.exists():
            new.replace(archive)
