"""Where a local site's files and processes are below a state folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fairlead.local import ports, processes
from fairlead.local.state import SiteState


def process_name(what: str, broker: int = 1) -> str:
    """``kafka``, ``kafka-2`` and so on by node id; ``mqtt``. Names pid files, folders and what status shows."""
    return what if broker == 1 else f"{what}-{broker}"


def trusted(folder: Path, state: SiteState) -> Path | None:
    """The authorities that a site's clients trust; None where it speaks no TLS."""
    return folder / state.tls.ca if state.tls is not None else None


@dataclass(frozen=True, slots=True)
class LocalSite:
    """A site's folders and processes below a state folder."""

    folder: Path
    name: str

    def kafka_folder(self, broker: int = 1) -> Path:
        """Everything of one broker, by its node id."""
        return self.folder / "sites" / self.name / process_name("kafka", broker)

    @property
    def mosquitto_folder(self) -> Path:
        return self.folder / "sites" / self.name / "mosquitto"

    def pid_file(self, what: str, broker: int = 1) -> Path:
        """Pid file of ``kafka`` (one of its brokers) or ``mqtt``."""
        return self.folder / "run" / f"{process_name(what, broker)}.{self.name}.pid"

    def pid_files(self) -> list[Path]:
        """Those of all its processes, also of brokers that nobody remembers."""
        further = (self.folder / "run").glob(f"kafka-*.{self.name}.pid")
        return [self.pid_file("kafka"), *further, self.pid_file("mqtt")]

    @property
    def has_data(self) -> bool:
        """Whether Kafka has ever been formatted here."""
        return (self.kafka_folder() / "data" / "meta.properties").exists()

    def taken_ports(self, state: SiteState) -> dict[str, int]:
        """Remembered ports of processes that do not run, which somebody else listens on now."""
        wanted: dict[str, int] = {}
        for broker in state.brokers:
            if processes.find(self.pid_file("kafka", broker.number)) is None:
                name = "Kafka" if len(state.brokers) == 1 else f"Kafka's broker {broker.number}"
                wanted |= {name: broker.port, f"{name}'s controller": broker.controller_port}
        if processes.find(self.pid_file("mqtt")) is None:
            wanted |= {"Mosquitto": state.mqtt_port}
        return {what: port for what, port in wanted.items() if not ports.is_free(port)}
