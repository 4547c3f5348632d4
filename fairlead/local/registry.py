"""Local sites of a state folder: their files, their status, and their endpoints for a user.

Starts nothing. Separate from ``sites``, so that a process that only needs an address (a replicator, a bridge, an audit)
does not import jars, formatting and admin clients.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import SecretStr

from fairlead.errors import UnavailableError, UnknownNameError
from fairlead.home import up_command
from fairlead.kafka.endpoint import KafkaEndpoint, MqttEndpoint
from fairlead.local import ports, processes
from fairlead.local.passwords import Passwords, mqtt_secret
from fairlead.local.state import SiteState, read_state


def process_name(what: str, broker: int = 1) -> str:
    """Return ``kafka``, ``kafka-2`` and so on by node id, or ``mqtt``: the names in pid files, folders and status."""
    return what if broker == 1 else f"{what}-{broker}"


def trusted(folder: Path, state: SiteState) -> Path | None:
    """Return the file of the authorities that a site's clients trust; None without TLS."""
    return folder / state.tls.ca if state.tls is not None else None


@dataclass(frozen=True, slots=True)
class LocalSite:
    """A site's folders and processes below a state folder."""

    folder: Path
    name: str

    def kafka_folder(self, broker: int = 1) -> Path:
        """Return the folder of one broker, by its node id."""
        return self.folder / "sites" / self.name / process_name("kafka", broker)

    @property
    def mosquitto_folder(self) -> Path:
        return self.folder / "sites" / self.name / "mosquitto"

    def pid_file(self, what: str, broker: int = 1) -> Path:
        """Return the pid file of ``kafka`` (the broker with this node id) or ``mqtt``."""
        return self.folder / "run" / f"{process_name(what, broker)}.{self.name}.pid"

    def pid_files(self) -> list[Path]:
        """Return the pid files of all its processes, including brokers that are not in the state file."""
        further = (self.folder / "run").glob(f"kafka-*.{self.name}.pid")
        return [self.pid_file("kafka"), *further, self.pid_file("mqtt")]

    @property
    def has_data(self) -> bool:
        """Whether the log directory of the first broker is formatted."""
        return (self.kafka_folder() / "data" / "meta.properties").exists()

    def taken_ports(self, state: SiteState) -> dict[str, int]:
        """Return the stored ports of processes that do not run, if another process listens on them now."""
        wanted: dict[str, int] = {}
        for broker in state.brokers:
            if processes.find(self.pid_file("kafka", broker.number)) is None:
                name = "Kafka" if len(state.brokers) == 1 else f"Kafka's broker {broker.number}"
                wanted |= {name: broker.port, f"{name}'s controller": broker.controller_port}
        if processes.find(self.pid_file("mqtt")) is None:
            wanted |= {"Mosquitto": state.mqtt_port}
        return {what: port for what, port in wanted.items() if not ports.is_free(port)}


@dataclass(frozen=True, slots=True)
class SiteProcess:
    """The status of a local site. A process is up if it is ours and its port accepts connections.

    ``kafka_up`` is true if every broker is up; ``brokers`` has the status by node id. The processes are ``mqtt``,
    ``kafka`` and, at a site with several brokers, ``kafka-2`` and so on.
    """

    name: str
    kafka_up: bool
    mqtt_up: bool
    kafka_port: int
    mqtt_port: int
    kafka_version: str
    mosquitto_version: str
    pids: Mapping[str, int]
    logs: Mapping[str, Path]
    brokers: Mapping[int, bool] = field(default_factory=dict)


class LocalSiteRegistry:
    """The sites that were ever started in one state folder. Creating the object touches nothing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._state_file = folder / "state.json"
        self._passwords = Passwords(folder / "secrets.json")

    def status(self) -> dict[str, SiteProcess]:
        """Return the status of every site that was ever started here, by name."""
        return {name: self._status(name, state) for name, state in read_state(self._state_file).sites.items()}

    def kafka(self, site: str, user: str) -> KafkaEndpoint:
        """Return the endpoint of a site's Kafka for a user.

        Raises:
            UnavailableError: the site was never started here, or has no password for the user yet.
            UnknownNameError: it has no such user.
        """
        state = self._known(site)
        password = self._password(site, user, user, "Kafka", state.kafka_users)
        addresses = tuple((ports.HOST, broker.port) for broker in state.brokers)
        others = self._passwords.others(site, user)
        ca = trusted(self.folder, state)
        return KafkaEndpoint(site, addresses, user, password, tls=ca is not None, tls_ca=ca, other_passwords=others)

    def mqtt(self, site: str, user: str) -> MqttEndpoint:
        """Return the endpoint of a site's Mosquitto for a user; raise the same errors as ``kafka``."""
        state = self._known(site)
        secret = mqtt_secret(user)
        password = self._password(site, user, secret, "MQTT", state.mqtt_users)
        keep = state.mqtt_profile.keep_seconds
        others = self._passwords.others(site, secret)
        ca = trusted(self.folder, state)
        return MqttEndpoint(
            site, ports.HOST, state.mqtt_port, user, password, ca, keep_seconds=keep, other_passwords=others
        )

    def _status(self, name: str, state: SiteState) -> SiteProcess:
        site = self._site(name)
        numbers = {process_name("kafka", broker.number): broker.number for broker in state.brokers}
        files = {what: site.pid_file("kafka", number) for what, number in numbers.items()}
        files["mqtt"] = site.pid_file("mqtt")
        found = {what: processes.find(file) for what, file in files.items()}
        version = {what: facts.version for what in files if (facts := processes.read(files[what])) is not None}
        brokers = {
            broker.number: found[process_name("kafka", broker.number)] is not None and ports.accepts(broker.port)
            for broker in state.brokers
        }
        logs = {what: site.kafka_folder(number) / "server.log" for what, number in numbers.items()}
        return SiteProcess(
            name=name,
            kafka_up=all(brokers.values()),
            mqtt_up=found["mqtt"] is not None and ports.accepts(state.mqtt_port),
            kafka_port=state.kafka_port,
            mqtt_port=state.mqtt_port,
            kafka_version=next((version[what] for what in numbers if what in version), ""),
            mosquitto_version=version.get("mqtt", ""),
            pids={what: process.pid for what, process in found.items() if process is not None},
            logs=logs | {"mqtt": site.mosquitto_folder / "mosquitto.log"},
            brokers=brokers,
        )

    def _password(self, site: str, user: str, secret: str, kind: str, users: Collection[str]) -> SecretStr:
        if user not in users:
            raise UnknownNameError(f"{kind} user of {site} named", user, users)
        password = self._passwords.given(site, secret)
        if password is None:
            hint = f"{up_command(self.folder, site)} creates it"
            raise UnavailableError(f"{site} has no {kind} user {user} yet", hint=hint)
        return password

    def _known(self, site: str) -> SiteState:
        sites = read_state(self._state_file).sites
        if site not in sites:
            started = f"started so far: {', '.join(sites)}" if sites else "no site was started so far"
            raise UnavailableError(
                f"the site {site} was never started on this machine",
                hint=f"{up_command(self.folder, site)} ({started})",
                site=site,
            )
        return sites[site]

    def _site(self, name: str) -> LocalSite:
        return LocalSite(self.folder, name)
