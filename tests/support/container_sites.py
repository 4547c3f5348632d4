"""Local sites whose brokers and Mosquittos run in containers built as ``compose`` builds them. For tests that run on
processes and on containers.

State, passwords and the layout of the folder are those of ``LocalSites``, so any code that reads the folder finds the
sites. The brokers' data are in the folder too, where tests can damage them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, TypeVar

import psutil
import yaml
from pydantic import SecretStr
from testcontainers.core.container import DockerContainer

from compose import project as services
from compose.certificates import write_certificates
from compose.fleet import CERTIFICATES, MQTT_PORT, SECRETS
from compose.settings import DATA, SETTINGS
from fairlead.errors import ConfigurationError, UnavailableError
from fairlead.kafka.endpoint import KafkaEndpoint, MqttEndpoint
from fairlead.local import kafka, mosquitto, ports
from fairlead.local.files import write_file
from fairlead.local.mosquitto import Programs
from fairlead.local.passwords import mqtt_secret
from fairlead.local.registry import LocalSite, SiteProcess, process_name
from fairlead.local.sites import LocalSites, Progress, SiteSpec, SiteStart, Toolbox, What
from fairlead.local.state import Broker, SiteState
from tests.support import container_parts
from tests.support.engine import site_image
from tests.support.machines import Machines

_MOSQUITTO_DATA: Final = "/var/lib/mosquitto-data"
_IMAGES_USER: Final = 10001
T = TypeVar("T")


class ContainerSites(LocalSites):
    """``LocalSites`` with containers instead of processes.

    The creator calls ``close`` at the end. There is no TLS, and only the usual users of Mosquitto exist. Another
    process that opens the same folder gets addresses and passwords; it cannot start, stop or signal anything.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._machines = Machines(site_image())
        self._given = Given(Path(tempfile.mkdtemp(prefix="given-")))

    def close(self) -> None:
        """Remove every container. The folder stays."""
        self._machines.remove(self._machines.names)
        shutil.rmtree(self._given.folder, ignore_errors=True)

    def restart(self, site: str, what: What = "kafka", *, broker: int = 1) -> None:
        self._known(site)
        self._machines.stop(machine(site, what, broker))
        super().restart(site, what, broker=broker)

    def kill(self, site: str, what: What = "kafka", *, broker: int = 1) -> None:
        self._known(site)
        self._machines.kill(machine(site, what, broker))

    def down(self, names: Collection[str] | None = None, *, purge: bool = False) -> None:
        chosen = self._machines.names
        if names is not None:
            chosen = [each for each in chosen if each.partition(".")[0] in names]
        if purge:
            self._machines.remove(chosen)
        else:
            for each in chosen:
                self._machines.stop(each)
        super().down(names, purge=purge)

    # --- overrides of LocalSites --------------------------------------------------------------------------------

    def toolbox(self, tell: Progress) -> Toolbox:
        """Do nothing: the image contains the tools."""
        return Toolbox(Path(), (), (), "", Programs(Path(), Path(), ""))

    def _site(self, name: str) -> LocalSite:
        return _ContainerSite(self.folder, name)

    def _start(
        self, spec: SiteSpec, state: SiteState, tools: Toolbox, tell: Progress, cancel: threading.Event
    ) -> SiteStart:
        if state.tls is not None or set(spec.mqtt_users) != {mosquitto.BRIDGE, mosquitto.DEVICE}:
            raise ConfigurationError(
                f"{spec.name} has TLS or users of its own for MQTT", hint="such sites are processes in tests"
            )
        made = super()._start(spec, state, tools, tell, cancel)
        same = {each.name: getattr(made, each.name) for each in fields(SiteStart)}
        return _ContainerStart(**same, machines=self._machines, given=self._given)

    def _status(self, name: str, state: SiteState) -> SiteProcess:
        named = {
            process_name("kafka", broker.number): machine(name, "kafka", broker.number) for broker in state.brokers
        }
        running = {
            what: self._process(each)
            for what, each in (named | {"mqtt": machine(name, "mqtt")}).items()
            if self._machines.runs(each)
        }
        brokers = {
            broker.number: process_name("kafka", broker.number) in running and ports.accepts(broker.port)
            for broker in state.brokers
        }
        return SiteProcess(
            name=name,
            kafka_up=all(brokers.values()),
            mqtt_up="mqtt" in running and ports.accepts(state.mqtt_port),
            kafka_port=state.kafka_port,
            mqtt_port=state.mqtt_port,
            kafka_version="",
            mosquitto_version="",
            pids={what: process.pid for what, process in running.items()},
            logs={what: self._log(name, what, each) for what, each in named.items() if each in self._machines.names},
            brokers=brokers,
        )

    def _process(self, name: str) -> psutil.Process:
        """Return the server process: the container's first process waits for it."""
        (server,) = self._machines.process(name).children()
        return server

    def _log(self, site: str, what: str, name: str) -> Path:
        """Write the server's output so far to a file beside its data."""
        file = self.folder / "sites" / site / what / "server.log"
        write_file(file, self._machines.output(name, None))
        return file

    def _change_in_mosquitto(self, site: str, state: SiteState, user: str, new: SecretStr) -> None:
        users = {mqtt_secret(name): self._passwords.wanted(site, mqtt_secret(name)) for name in state.mqtt_users}
        self._given.secrets(site, users)
        name = machine(site, "mqtt")
        if self._machines.runs(name):
            self._machines.stop(name)  # Mosquitto reads them when it starts
            self._machines.again(name)
            mosquitto.wait_taken(MqttEndpoint(site, ports.HOST, state.mqtt_port, user, new))


def machine(site: str, what: str, broker: int = 1) -> str:
    """Return a container's name: ``alpha.kafka``, ``alpha.kafka-2``, ``alpha.mqtt``."""
    return f"{site}.{process_name(what, broker)}"


class _ContainerSite(LocalSite):
    def taken_ports(self, state: SiteState) -> dict[str, int]:
        """Return no ports: docker itself keeps those of running containers, and reports the others when they are in
        use.
        """
        return {}


@dataclass(frozen=True, slots=True)
class Given:
    """The files that are mounted into the containers besides the sites' folder: passwords in clear text, settings."""

    folder: Path

    def secrets(self, site: str, passwords: dict[str, SecretStr]) -> bool:
        """Write the secrets of a site; return whether any of them changed."""
        written = [self._write(self.of(site) / f"{site}.{user}", p.get_secret_value()) for user, p in passwords.items()]
        return any(written)

    def topology(self, site: str, data: dict[str, Any]) -> bool:
        """Write the topology of a site; return whether it changed."""
        return self._write(self.topologies(site) / f"{container_parts.TOPOLOGY}.yaml", yaml.safe_dump(data))

    def of(self, site: str) -> Path:
        return self.folder / site / "secrets"

    def topologies(self, site: str) -> Path:
        return self.folder / site / "topology"

    def _write(self, file: Path, text: str) -> bool:
        """Write a file that the containers' users can read; only the owner can enter the folder above it."""
        if file.exists() and file.read_text(encoding="utf-8") == text:
            return False
        for folder in (file.parent.parent, file.parent):
            folder.mkdir(exist_ok=True)
            folder.chmod(0o755)
        write_file(file, text, mode=0o444)
        return True


@dataclass(slots=True, kw_only=True)
class _ContainerStart(SiteStart):
    machines: Machines
    given: Given

    def run(self) -> None:
        self._run_mosquitto()
        self._run_kafka()
        self.tell("ready")

    def _run_mosquitto(self) -> None:
        name, data = machine(self.site.name, "mqtt"), self.site.mosquitto_folder
        users = {mqtt_secret(user): password for user, password in self.mqtt_users.items()}
        changed = self.given.secrets(self.site.name, users)
        changed |= self.given.topology(self.site.name, container_parts.topology(self.site.name, self.state))
        if changed:
            self.machines.stop(name)
        user = os.geteuid() or _IMAGES_USER  # Mosquitto insists on not running as root
        data.mkdir(parents=True, exist_ok=True)
        os.chown(data, user, -1)
        fleet, site = container_parts.fleet_of(self.site.name, self.state)
        service = services.mqtt(fleet, site)

        def make(container: DockerContainer) -> DockerContainer:
            prepared = self._prepared(container, service, user, {self.state.mqtt_port: MQTT_PORT})
            prepared.with_volume_mapping(self.given.topologies(self.site.name), services.TOPOLOGY_FOLDER)
            return prepared.with_volume_mapping(data, _MOSQUITTO_DATA, "rw")

        self.machines.run(name, make)
        first = next(iter(self.mqtt_users))
        endpoint = MqttEndpoint(self.site.name, ports.HOST, self.state.mqtt_port, first, self.mqtt_users[first])
        self._wait(name, lambda process: mosquitto.wait_ready(process, endpoint, data, cancel=self.cancel))

    def _run_kafka(self) -> None:
        known = self.known
        chosen = [broker for broker in self.state.brokers if broker.number in self.brokers]
        for broker in chosen:
            known = {kafka.ADMIN: self.kafka_users[kafka.ADMIN]} if self._start_in_container(broker) else known
        for broker in chosen:
            address, folder = (ports.HOST, broker.port), self.site.kafka_folder(broker.number)
            endpoint = KafkaEndpoint(
                self.site.name, (address,), kafka.ADMIN, known[kafka.ADMIN], other_passwords=self.other_admin
            )
            client = self._wait(
                machine(self.site.name, "kafka", broker.number),
                lambda process, endpoint=endpoint, folder=folder, node=broker.number: kafka.wait_ready(  # type: ignore[misc]
                    process, endpoint, folder, cancel=self.cancel, node_id=node
                ),
            )
        new = {user: secret for user, secret in self.kafka_users.items() if known.get(user) != secret}
        kafka.ensure_users(client, new)

    def _start_in_container(self, broker: Broker) -> bool:
        """Start a broker; return whether its log directory is new, so that it knows only the users its container begins
        with.
        """
        folder, name = self.site.kafka_folder(broker.number), self.site.name
        new = not (folder / "data" / "meta.properties").exists()
        folder.mkdir(parents=True, exist_ok=True)
        text = container_parts.server_properties(name, self.state, broker.number)
        write_file(folder / "server.properties", text)
        if new:
            begin = {kafka.ADMIN: self.kafka_users[kafka.ADMIN], kafka.CONTROLLER: self.controller}
            self.given.secrets(name, begin)
        fleet, site = container_parts.fleet_of(name, self.state)
        write_certificates(fleet, self.given.folder / name)  # its controllers use TLS
        service = services.broker(fleet, site, broker.number)

        def make(container: DockerContainer) -> DockerContainer:
            # Run as the user of the test, who changes the broker's files.
            prepared = self._prepared(container, service, os.geteuid(), {broker.port: broker.port})
            prepared.with_env("KAFKA_OPTS", "-XX:TieredStopAtLevel=1").with_network_aliases(service["hostname"])
            prepared.with_volume_mapping(folder / "server.properties", SETTINGS)
            prepared.with_volume_mapping(self.given.folder / name / "certificates", CERTIFICATES)
            return prepared.with_volume_mapping(folder, DATA, "rw")

        self.machines.run(machine(name, "kafka", broker.number), make)
        return new

    def _prepared(
        self, container: DockerContainer, service: dict[str, Any], user: int, published: dict[int, int]
    ) -> DockerContainer:
        for outside, inside in published.items():
            container.ports[str(inside)] = (ports.HOST, outside)  # type: ignore[assignment]
        for place, options in container_parts.scratch(service).items():
            container.with_tmpfs_mount(place, options)
        container.with_envs(**service["environment"])
        container.with_volume_mapping(self.given.of(self.site.name), SECRETS)
        return container.with_kwargs(
            **container_parts.confined(service),
            user=str(user),
            working_dir="/tmp",  # noqa: S108 - the container's own; the image's is of the image's user only
        )

    def _wait(self, name: str, wait: Callable[[psutil.Process], T]) -> T:
        try:
            return wait(self.machines.process(name))
        except UnavailableError as error:
            error.add_note(self.machines.output(name))
            raise
