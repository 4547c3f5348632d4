"""One local site: its processes (Kafka's brokers, Mosquitto), from files to a site that serves, and back.

Not safe against a second caller; ``fairlead.local.sites`` holds the lock.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from pydantic import SecretStr

from fairlead.certs.model import Pair
from fairlead.endpoint import KafkaEndpoint, MqttEndpoint
from fairlead.errors import FairleadError, UnavailableError
from fairlead.local import kafka, kafkatls, kafkausers, mosquitto, ports, processes, tls
from fairlead.local.layout import LocalSite, trusted
from fairlead.local.mosquitto import Programs
from fairlead.local.state import Broker, SiteState


@dataclass(frozen=True, slots=True)
class Toolbox:
    """What starting a site takes, found once for all sites."""

    java: Path
    jars: tuple[Path, ...]
    jvm: tuple[str, ...]
    kafka_version: str
    mosquitto: Programs


@dataclass(slots=True)
class Start:
    """Starting one site. ``run`` may be called once; ``started`` names the pid files of what it started itself.

    Args:
        kafka_users, mqtt_users: Every user with the password it is to have.
        known: The users' passwords that the running or formatted brokers know already.
        other_admin: Passwords of Kafka's super user that the brokers may know instead, while it is being changed.
        brokers: Node ids of the brokers to start; what other ones do is not looked at.
    """

    site: LocalSite
    state: SiteState
    tools: Toolbox
    kafka_users: Mapping[str, SecretStr]
    mqtt_users: Mapping[str, SecretStr]
    known: Mapping[str, SecretStr]
    controller: SecretStr
    tell: Callable[[str], None]
    cancel: threading.Event
    brokers: tuple[int, ...] = (1,)
    other_admin: tuple[SecretStr, ...] = ()
    started: list[Path] = field(default_factory=list)

    def run(self) -> None:
        """Start what does not run, wait until both serve, and see to it that all users exist.

        Raises:
            UnavailableError: a process ended, does not answer, or the disk is full.
            Cancelled: ``cancel`` was set.
        """
        try:
            self._run_mosquitto()
            self._run_kafka()
        except UnavailableError as error:
            raise self._port_in_use() or error from error
        self.tell("ready")

    def _run_kafka(self) -> None:
        known, own = self.known, dict[str, SecretStr]()
        chosen = [broker for broker in self.state.brokers if broker.number in self.brokers]
        running: dict[Broker, psutil.Process] = {}
        for broker in chosen:
            process = processes.find(self.site.pid_file("kafka", broker.number))
            if process is None:
                process, formatted = self._start_broker(broker)
                known = self.kafka_users if formatted else known
                # Older data does not have the user as which brokers log in to each other.
                own |= {} if formatted else {kafka.CONTROLLER: self.controller}
            running[broker] = process
        for broker, process in running.items():
            address = (ports.HOST, broker.port)
            ca = trusted(self.site.folder, self.state)
            endpoint = KafkaEndpoint(
                self.site.name,
                (address,),
                kafka.ADMIN,
                known[kafka.ADMIN],
                tls=ca is not None,
                tls_ca=ca,
                other_passwords=self.other_admin,
            )
            folder = self.site.kafka_folder(broker.number)
            client = kafka.wait_ready(process, endpoint, folder, cancel=self.cancel, node_id=broker.number)
        new = {user: secret for user, secret in self.kafka_users.items() if known.get(user) != secret}
        kafkausers.ensure_users(client, new | own)

    def _start_broker(self, broker: Broker) -> tuple[psutil.Process, bool]:
        """Its process, and whether its log directory is new and so knows the users as they are to be."""
        tools, folder = self.tools, self.site.kafka_folder(broker.number)
        self.tell("starting Kafka" if len(self.state.brokers) == 1 else f"starting Kafka's broker {broker.number}")
        kafka.write_files(folder, self.state, self.controller, broker=broker)
        if (shown := self._shown("kafka")) is not None:
            kafkatls.write_stores(folder, *shown)
        users = {**self.kafka_users, kafka.CONTROLLER: self.controller}
        formatted = kafka.format_if_new(folder, self.state.cluster_id, users, node_id=broker.number)
        line = kafka.command(tools.java, tools.jars, folder, jvm=tools.jvm, tls=self.state.tls is not None)
        pid_file, log = self.site.pid_file("kafka", broker.number), folder / "console.log"
        mark, version = kafka.marker(folder), tools.kafka_version
        process = processes.start(pid_file, line, cwd=folder, log=log, marker=mark, version=version)
        self.started.append(pid_file)
        return process, formatted

    def _run_mosquitto(self) -> None:
        site, folder, tools = self.site, self.site.mosquitto_folder, self.tools
        pid_file = site.pid_file("mqtt")
        process = processes.find(pid_file)
        shown = self._shown("mqtt")
        pair = None if shown is None else shown[0]
        mosquitto.write_configuration(folder, self.state.mqtt_port, self.state.mqtt_profile, pair)
        new = {user: secret for user, secret in self.mqtt_users.items() if self.known.get(user) != secret}
        if process is None or new or set(self.mqtt_users) != set(self.state.mqtt_users):
            mosquitto.write_users(folder, self.mqtt_users, tools.mosquitto)
        if process is None:
            line, mark = mosquitto.command(tools.mosquitto, folder), mosquitto.marker(folder)
            log, version = folder / "mosquitto.log", tools.mosquitto.version
            process = processes.start(pid_file, line, cwd=folder, log=log, marker=mark, version=version)
            self.started.append(pid_file)
        else:
            processes.send(pid_file, signal.SIGHUP)  # reads profile, passwords and rules again
        user = next(iter(self.mqtt_users))
        ca = trusted(site.folder, self.state)
        endpoint = MqttEndpoint(site.name, ports.HOST, self.state.mqtt_port, user, self.mqtt_users[user], ca)
        mosquitto.wait_ready(process, endpoint, folder, cancel=self.cancel)

    def _shown(self, service: str) -> tuple[Pair, bytes] | None:
        """A service's certificate with its key, and whom the site's clients trust; None without TLS."""
        files = self.state.tls
        return None if files is None else tls.read(self.site.folder, self.site.name, files, service)

    def _port_in_use(self) -> FairleadError | None:
        """A start may fail because a port was taken after it was looked at: then that is the reason to give."""
        taken = self.site.taken_ports(self.state)
        return port_taken(self.site.name, taken) if taken else None


def port_taken(site: str, taken: Mapping[str, int]) -> UnavailableError:
    """The error for remembered ports that somebody else listens on."""
    who = "; ".join(f"port {port} ({what}) by {ports.holder(port)}" for what, port in taken.items())
    return UnavailableError(
        f"{site} cannot start: its ports are in use: {who}",
        hint=f"stop that process; or let the site forget its data and choose new ports: fairlead down {site} --purge",
        site=site,
        ports=list(taken.values()),
    )
