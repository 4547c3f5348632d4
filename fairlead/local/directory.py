"""Looking at the local sites of a state folder: how each is, and where it is for whom. Nothing is started here.

Apart from ``sites``, so that what only asks for an address (a replicator, a bridge, an audit) does not import what
starting takes: jars, formatting, admin clients.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import SecretStr

from fairlead.endpoint import KafkaEndpoint, MqttEndpoint
from fairlead.errors import UnavailableError, UnknownNameError
from fairlead.local import ports, processes
from fairlead.local.layout import LocalSite, process_name, trusted
from fairlead.local.passwords import Passwords
from fairlead.local.state import SiteState, read_state


@dataclass(frozen=True, slots=True)
class SiteProcess:
    """How a local site is. ``up`` means: the process is ours and its port accepts connections.

    ``kafka_up`` is true when every broker is; ``brokers`` tells it of each by node id. The processes are ``mqtt``,
    ``kafka`` and, of a site with several brokers, ``kafka-2`` and so on.
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


class KnownSites:
    """The sites that were ever started in one state folder. Making one touches nothing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._state_file = folder / "state.json"
        self._passwords = Passwords(folder / "secrets.json")

    def status(self) -> dict[str, SiteProcess]:
        """How each site is that was ever started here, by name."""
        return {name: self._status(name, state) for name, state in read_state(self._state_file).sites.items()}

    def kafka(self, site: str, user: str) -> KafkaEndpoint:
        """Where a site's Kafka is, for a user.

        Raises:
            UnavailableError: the site was never started here. UnknownNameError: it has no such user.
        """
        state = self._known(site)
        password = self._password(site, user, "Kafka", state.kafka_users)
        addresses = tuple((ports.HOST, broker.port) for broker in state.brokers)
        others = self._passwords.others(site, user)
        ca = trusted(self.folder, state)
        return KafkaEndpoint(site, addresses, user, password, tls=ca is not None, tls_ca=ca, other_passwords=others)

    def mqtt(self, site: str, user: str) -> MqttEndpoint:
        """Where a site's Mosquitto is, for a user; raises as ``kafka`` does."""
        state = self._known(site)
        password = self._password(site, user, "MQTT", state.mqtt_users)
        keep = state.mqtt_profile.keep_seconds
        others = self._passwords.others(site, user)
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

    def _password(self, site: str, user: str, kind: str, users: Collection[str]) -> SecretStr:
        if user not in users:
            raise UnknownNameError(f"{kind} user of {site} named", user, users)
        password = self._passwords.given(site, user)
        if password is None:
            raise UnavailableError(f"{site} has not been told of the user {user} yet", hint=f"fairlead up {site}")
        return password

    def _known(self, site: str) -> SiteState:
        sites = read_state(self._state_file).sites
        if site not in sites:
            started = f"started so far: {', '.join(sites)}" if sites else "none was started so far"
            raise UnavailableError(
                f"the site {site} was never started on this machine",
                hint=f"fairlead up {site} ({started})",
                site=site,
            )
        return sites[site]

    def _site(self, name: str) -> LocalSite:
        return LocalSite(self.folder, name)
