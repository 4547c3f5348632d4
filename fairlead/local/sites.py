"""Start and stop local sites: each site's Kafka brokers and Mosquitto, side by side.

``SiteStart`` starts one site and is not safe against a second caller; ``LocalSites`` holds the lock of the state
folder.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import psutil
from pydantic import SecretStr

from fairlead.certs.trust import KeyPair
from fairlead.errors import ConfigurationError, FairleadError, UnavailableError, UnknownNameError
from fairlead.home import private_folder, purge_command, topology_option, up_command
from fairlead.jars import ensure_jars, find_java, jar_set
from fairlead.kafka.endpoint import KafkaEndpoint, MqttEndpoint
from fairlead.local import cds, kafka, mosquitto, ports, processes, tls
from fairlead.local.files import explained, require_room
from fairlead.local.formatting import FEATURES, kafka_uuid
from fairlead.local.mosquitto import Programs
from fairlead.local.passwords import mqtt_secret, secret_variable
from fairlead.local.processes import Cancelled, interruptible
from fairlead.local.registry import LocalSite, LocalSiteRegistry, trusted
from fairlead.local.state import (
    Broker,
    LocalState,
    Profile,
    SiteState,
    TlsFiles,
    all_states,
    locked,
    read_state,
    write_state,
)
from fairlead.local.tls import Wanted, decide


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The Java, Mosquitto and jars that all sites use. ``features``: the levels that this release of Kafka has."""

    java: Path
    jars: tuple[Path, ...]
    jvm: tuple[str, ...]
    kafka_version: str
    mosquitto: Programs
    features: Mapping[str, int] = field(default_factory=lambda: FEATURES)


@dataclass(slots=True)
class SiteStart:
    """Starts one site. Call ``run`` once; ``started`` has the pid files of the processes that it started.

    Args:
        kafka_users, mqtt_users: Every user with its wanted password.
        known: Passwords that the site's servers have already, by their names in ``secrets.json``.
        controller: The password with which brokers log in to each other.
        other_admin: During a change of the super user's password: other passwords that the brokers may have.
        brokers: Node ids of the brokers to start; others are ignored.
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
        """Start the processes that do not run, wait until all serve, and create missing users.

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
                # An older Fairlead did not create the user with which brokers log in to each other.
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
        kafka.ensure_users(client, new | own)

    def _start_broker(self, broker: Broker) -> tuple[psutil.Process, bool]:
        """Start a broker unless it runs. Return its process, and whether its log directory is new (with all users)."""
        tools, folder = self.tools, self.site.kafka_folder(broker.number)
        self.tell("starting Kafka" if len(self.state.brokers) == 1 else f"starting Kafka's broker {broker.number}")
        kafka.write_files(folder, self.state, self.controller, broker=broker)
        if (shown := self._shown("kafka")) is not None:
            kafka.write_stores(folder, *shown)
        users = {**self.kafka_users, kafka.CONTROLLER: self.controller}
        formatted = kafka.format_if_new(
            folder, self.state.cluster_id, users, node_id=broker.number, features=tools.features
        )
        line = kafka.command(tools.java, tools.jars, folder, jvm=tools.jvm, tls=self.state.tls is not None)
        pid_file, log = self.site.pid_file("kafka", broker.number), folder / "console.log"
        mark, version = kafka.marker(folder), tools.kafka_version
        process = processes.start(pid_file, line, cwd=folder, log=log, marker=mark, version=version)
        self.started.append(pid_file)
        return process, formatted

    def _run_mosquitto(self) -> None:
        site, folder, tools = self.site, self.site.mosquitto_folder, self.tools
        pid_file = site.pid_file("mqtt")
        if self.known.get(mqtt_secret(mosquitto.BRIDGE)) != self.mqtt_users.get(mosquitto.BRIDGE):
            processes.stop([pid_file])  # why: see LocalSites._change_in_mosquitto
        process = processes.find(pid_file)
        shown = self._shown("mqtt")
        pair = None if shown is None else shown[0]
        mosquitto.write_configuration(folder, self.state.mqtt_port, self.state.mqtt_profile, pair)
        new = {user: secret for user, secret in self.mqtt_users.items() if self.known.get(mqtt_secret(user)) != secret}
        if process is None or new or set(self.mqtt_users) != set(self.state.mqtt_users):
            mosquitto.write_users(folder, self.mqtt_users, tools.mosquitto)
        if process is None:
            line, mark = mosquitto.command(tools.mosquitto, folder), mosquitto.marker(folder)
            log, version = folder / "mosquitto.log", tools.mosquitto.version
            process = processes.start(pid_file, line, cwd=folder, log=log, marker=mark, version=version)
            self.started.append(pid_file)
        else:
            processes.send(pid_file, signal.SIGHUP)  # Mosquitto reads profile, passwords and rules again
        user = next(iter(self.mqtt_users))
        ca = trusted(site.folder, self.state)
        endpoint = MqttEndpoint(site.name, ports.HOST, self.state.mqtt_port, user, self.mqtt_users[user], ca)
        mosquitto.wait_ready(process, endpoint, folder, cancel=self.cancel)

    def _shown(self, service: str) -> tuple[KeyPair, bytes] | None:
        """Return a service's certificate and key, and the authorities that clients trust; None without TLS."""
        files = self.state.tls
        return None if files is None else tls.read(self.site.folder, self.site.name, files, service)

    def _port_in_use(self) -> FairleadError | None:
        """Return the error for a start that failed because another process has taken a port; None if none has."""
        taken = self.site.taken_ports(self.state)
        return port_taken(self.site, taken) if taken else None


def port_taken(site: LocalSite, taken: Mapping[str, int]) -> UnavailableError:
    """Return the error for a site's ports that another process uses."""
    who = "; ".join(f"port {port} ({what}) by {ports.holder(port)}" for what, port in taken.items())
    return UnavailableError(
        f"{site.name} cannot start: its ports are in use: {who}",
        hint="stop that process; or delete the site's data, so that it gets new ports: "
        f"{purge_command(site.folder, site.name)}",
        site=site.name,
        ports=list(taken.values()),
    )


Progress = Callable[[str, str], None]
GivePassword = Callable[[KafkaEndpoint, str, SecretStr], None]
What = Literal["kafka", "mqtt"]
_PURGED = ".purged"  # what an interrupted purge left is here
_ROOM_PER_BROKER = 100 << 20  # bytes: a few segments, the broker's own logs, Mosquitto's queue


@dataclass(frozen=True, slots=True)
class SiteSpec:
    """A site to start. ``properties`` override the brokers' default ones. Kafka's super user ``admin`` always exists.

    With three or more ``brokers`` (odd numbers only) topics have three replicas, of which two must be in sync. None as
    ``mqtt_profile`` or ``tls`` keeps the site's setting; a new site is durable and has no TLS.
    """

    name: str
    kafka_users: tuple[str, ...] = ()
    mqtt_users: tuple[str, ...] = ("bridge", "device")
    properties: Mapping[str, str] = field(default_factory=dict)
    brokers: int = 1
    mqtt_profile: Profile | None = None
    tls: Wanted = None


class LocalSites(LocalSiteRegistry):
    """The local sites of one state folder. Creating the object touches nothing."""

    # --- starting -----------------------------------------------------------------------------------------------

    def up(self, specs: Sequence[SiteSpec], *, on_progress: Progress | None = None) -> None:
        """Start sites in parallel and wait until each serves.

        At a site that runs already, create missing users and check that it answers. Without ``specs`` do nothing: the
        machine then needs no Java and no Mosquitto. After an error or Ctrl-C, stop every process that this call
        started; processes that ran before continue.

        Args:
            on_progress: Called from several threads with a site's name (empty for all sites) and a step in words.

        Raises:
            UnavailableError: Java, Mosquitto or disk space is missing, a port is in use, or a broker does not start.
        """
        if not specs:
            return
        tell = on_progress or (lambda _site, _text: None)
        tools = self.toolbox(tell)
        with self._locked(tell):
            self._run(self._prepare(specs, tools, tell))

    def restart(self, site: str, what: What = "kafka", *, broker: int = 1) -> None:
        """Stop one process of a site, if it runs, and start it and the other service; return when both serve.

        Args:
            broker: The node id, for ``kafka``. The site's other brokers are neither stopped nor started.
        """
        state = self._known(site)
        tools = self.toolbox(lambda _site, _text: None)
        with self._locked():
            processes.stop([self._site(site).pid_file(what, broker)])
            spec = SiteSpec(
                site, state.kafka_users, state.mqtt_users, state.properties, len(state.brokers), state.mqtt_profile
            )
            starts = self._prepare([spec], tools, lambda _site, _text: None)
            for start in starts:
                start.brokers = (broker,) if what == "kafka" else start.brokers
            self._run(starts)

    def toolbox(self, tell: Progress) -> Toolbox:
        """Return what the sites run with; download what is missing. Overridden where brokers are of another release."""
        java, broker = find_java(), mosquitto.find_mosquitto()
        jars = ensure_jars("kafka", on_progress=lambda text: tell("", text))
        jvm = cds.archive_options(java, jars, on_progress=lambda text: tell("", text))
        return Toolbox(java, jars, jvm, jar_set("kafka").revision_of("kafka-clients"), broker)

    def _prepare(self, specs: Sequence[SiteSpec], tools: Toolbox, tell: Progress) -> list[SiteStart]:
        """Choose ports and passwords, and store them before anything starts."""
        with explained(self.folder):
            self._delete_purged()
        new = sum(spec.brokers for spec in specs if not self._site(spec.name).has_data)
        require_room(self.folder, _ROOM_PER_BROKER * max(1, new))
        state = read_state(self._state_file)
        cancel = threading.Event()
        starts: list[SiteStart] = []
        for spec in specs:
            before = self._site_state(state, spec)
            start = self._start(spec, before, tools, tell, cancel)
            users = {"kafka_users": tuple(start.kafka_users), "mqtt_users": tuple(start.mqtt_users)}
            state.sites[spec.name] = before.model_copy(update=users)
            starts.append(start)
        for start in starts:
            if not start.site.has_data:  # its brokers will be formatted with these passwords
                self._keep(start)
        write_state(self._state_file, state)
        return starts

    def _site_state(self, state: LocalState, spec: SiteSpec) -> SiteState:
        """Return the stored state of a site with the spec's properties, or a new one with free ports."""
        if spec.brokers < 1 or spec.brokers % 2 == 0:
            raise ConfigurationError(
                f"{spec.name} cannot have {spec.brokers} brokers",
                hint="valid: 1, 3 or 5. Each broker is a controller too, and more than half of them must run",
            )
        site, known = self._site(spec.name), state.sites.get(spec.name)
        properties: dict[str, Any] = {
            "properties": dict(spec.properties),
            **({"mqtt_profile": spec.mqtt_profile} if spec.mqtt_profile else {}),
            "tls": self._tls(spec, site, known),
        }
        if known is not None:
            taken = site.taken_ports(known)
            if len(known.brokers) == spec.brokers:
                if not taken:
                    return known.model_copy(update=properties)
                if site.has_data:  # clients may know its address
                    raise port_taken(site, taken)
            elif site.has_data:
                raise ConfigurationError(
                    f"{spec.name} has data on {len(known.brokers)} brokers, so it cannot start with {spec.brokers}",
                    hint=f"keep the number, or delete the data: {purge_command(site.folder, site.name)}",
                )
            processes.stop(site.pid_files())  # its ports change
        others = [other for name, other in state.sites.items() if name != spec.name]
        elsewhere = [other for _, stored in all_states() for other in stored.sites.values()]  # may be stopped
        taken_ports = {port for other in (*others, *elsewhere) for port in other.ports}
        mqtt, *kafka_ports = ports.choose_ports(1 + 2 * spec.brokers, taken=taken_ports)
        (client, controller), *more = zip(kafka_ports[::2], kafka_ports[1::2], strict=True)
        addresses = {"kafka_port": client, "controller_port": controller, "mqtt_port": mqtt, "more_brokers": more}
        return SiteState.model_validate({**addresses, **properties, "cluster_id": kafka_uuid()})

    def _tls(self, spec: SiteSpec, site: LocalSite, known: SiteState | None) -> TlsFiles | None:
        before = known.tls if known is not None else None
        running = any(processes.find(file) is not None for file in site.pid_files())
        files = decide(self.folder, spec.name, spec.tls, before, running=running)
        if running and _authority(files) != _authority(before):
            how = (
                "without TLS" if before is None else "with TLS" if files is None else f"with the authority {before.ca}"
            )
            raise ConfigurationError(
                f"{spec.name} runs {how}, and that cannot change while it runs",
                hint=f"fairlead down {spec.name}{topology_option(self.folder)}; then repeat the command",
                site=spec.name,
            )
        return files

    def _start(
        self, spec: SiteSpec, state: SiteState, tools: Toolbox, tell: Progress, cancel: threading.Event
    ) -> SiteStart:
        name, site = spec.name, self._site(spec.name)
        kafka_users = dict.fromkeys((kafka.ADMIN, *state.kafka_users, *spec.kafka_users))
        mqtt_users = dict.fromkeys((*state.mqtt_users, *spec.mqtt_users))
        secrets = dict.fromkeys((kafka.CONTROLLER, *kafka_users, *map(mqtt_secret, mqtt_users)))
        wanted = {secret: self._passwords.wanted(name, secret) for secret in secrets}
        known = {user: secret for user in wanted if (secret := self._passwords.known(name, user)) is not None}
        other_admin: tuple[SecretStr, ...] = ()
        if site.has_data and (pending := self._passwords.next(name, kafka.ADMIN)) is not None:
            # An interrupted change of admin's password; change_password finishes it.
            wanted[kafka.ADMIN], other_admin = known.get(kafka.ADMIN, pending), (pending,)
        if site.has_data and known.get(kafka.ADMIN) != wanted[kafka.ADMIN]:
            raise ConfigurationError(
                f"the password of {name}'s admin cannot change while the site has data",
                hint=f"unset {secret_variable(name, kafka.ADMIN)}; fairlead acl rotate {kafka.ADMIN} --site {name} "
                f"changes it; or delete the data: {purge_command(site.folder, site.name)}",
            )
        return SiteStart(
            site=site,
            state=state,
            tools=tools,
            kafka_users={user: wanted[user] for user in kafka_users},
            mqtt_users={user: wanted[mqtt_secret(user)] for user in mqtt_users},
            known=known,
            controller=wanted[kafka.CONTROLLER],
            tell=lambda text: tell(name, text),
            cancel=cancel,
            brokers=tuple(broker.number for broker in state.brokers),
            other_admin=other_admin,
        )

    def _keep(self, start: SiteStart) -> None:
        mqtt = {mqtt_secret(user): password for user, password in start.mqtt_users.items()}
        self._passwords.keep(start.site.name, {**start.kafka_users, **mqtt, kafka.CONTROLLER: start.controller})

    def _run(self, starts: Sequence[SiteStart]) -> None:
        """Run starts in parallel; if one fails, undo all."""
        if not starts:
            return
        cancel = starts[0].cancel  # all starts share one event
        with interruptible(cancel):
            with ThreadPoolExecutor(len(starts), thread_name_prefix="site") as pool:
                running = [pool.submit(start.run) for start in starts]
                wait(running, return_when=FIRST_EXCEPTION)
                failed = [error for future in running if future.done() and (error := future.exception())]
                if failed:
                    cancel.set()
            if cancel.is_set():
                processes.stop([pid_file for start in starts for pid_file in start.started])
                raise failed[0] if failed else Cancelled
            for start in starts:
                self._keep(start)

    # --- stopping -----------------------------------------------------------------------------------------------

    def down(self, names: Collection[str] | None = None, *, purge: bool = False) -> None:
        """Stop sites: SIGTERM, and after 15 s SIGKILL. Ignores sites that do not run.

        Args:
            names: The sites; None for all.
            purge: Also delete their data, ports and passwords, without a clean shutdown. For all sites: delete
                everything in the state folder, including Delta tables and checkpoints.
        """
        if not self.folder.exists():
            return
        with self._locked():
            state = read_state(self._state_file) if not (purge and names is None) else None
            chosen = self._all_site_names() if names is None else list(names)
            sites = [self._site(name) for name in chosen]
            grace = 0.0 if purge else processes.GRACE
            processes.stop([pid_file for site in sites for pid_file in site.pid_files()], grace=grace)
            if not purge:
                return
            with explained(self.folder):
                self._delete_purged()
                entries = self.folder.iterdir() if state is None else (self.folder / "sites" / name for name in chosen)
                self._set_aside(sorted(entries, key=lambda entry: entry.name != "sites"))  # passwords may outlive data
                if state is not None:
                    for name in chosen:
                        state.sites.pop(name, None)
                        self._passwords.forget(name)
                    write_state(self._state_file, state)
                self._delete_purged()

    def _set_aside(self, entries: Sequence[Path]) -> None:
        """Move what a purge deletes to one folder: an interruption then leaves no site with half of its data."""
        for entry in entries:
            if entry.name != ".lock" and os.path.lexists(entry):
                entry.rename(private_folder(self.folder / _PURGED) / entry.name)

    def _delete_purged(self) -> None:
        if (self.folder / _PURGED).exists():
            shutil.rmtree(self.folder / _PURGED)

    # --- passwords ----------------------------------------------------------------------------------------------

    def change_password(self, site: str, user: str, give: GivePassword) -> None:
        """Change a user's password in Kafka and Mosquitto of a running site, and check that the user can log in.

        The new password is the environment's, else a random one; the bridge gets two, one for Kafka and one for
        Mosquitto. Afterwards ``secrets.json`` has only the new one. Call again after an interruption to finish the
        change; until then clients try both passwords. Connections to Kafka last until the broker asks for the password
        again. Mosquitto ends the user's connections. For the bridge's user, Mosquitto restarts.

        Args:
            give: Sets a user's password in a cluster (``fairlead.kafka.credentials.give_password``).

        Raises:
            UnavailableError: the site does not answer, or did not accept the new password in time.
            UnknownNameError: it has no such user.
            ConfigurationError: see ``Passwords.begin``.
        """
        with self._locked():
            state = self._known(site)
            if user not in {*state.kafka_users, *state.mqtt_users}:
                raise UnknownNameError(f"user of {site} named", user, {*state.kafka_users, *state.mqtt_users})
            if user in state.kafka_users and not any(ports.accepts(broker.port) for broker in state.brokers):
                raise UnavailableError(f"{site} is not running", hint=up_command(self.folder, site), site=site)
            in_mqtt = [mqtt_secret(user)] if user in state.mqtt_users else []
            in_kafka = [user] if user in state.kafka_users else []
            new = {secret: self._passwords.begin(site, secret) for secret in dict.fromkeys((*in_mqtt, *in_kafka))}
            for secret in in_mqtt:
                self._change_in_mosquitto(site, state, user, new[secret])
            for secret in in_kafka:
                give(self.kafka(site, kafka.ADMIN), user, new[secret])
            self._passwords.keep(site, new)

    def forget_user(self, site: str, user: str) -> None:
        """Forget a Kafka user that the site's brokers no longer have. Ignores a user that is not known here.

        Raises:
            UnavailableError: the site was never started here.
        """
        with self._locked():
            state, known = read_state(self._state_file), self._known(site)
            left = known.model_copy(update={"kafka_users": tuple(name for name in known.kafka_users if name != user)})
            write_state(self._state_file, state.model_copy(update={"sites": {**state.sites, site: left}}))
            self._passwords.forget_user(site, user)

    def _change_in_mosquitto(self, site: str, state: SiteState, user: str, new: SecretStr) -> None:
        folder, programs = self._site(site).mosquitto_folder, mosquitto.find_mosquitto()
        users = {name: self._passwords.wanted(site, mqtt_secret(name)) for name in state.mqtt_users}
        mosquitto.write_users(folder, users, programs)
        pid_file = self._site(site).pid_file("mqtt")
        process = processes.find(pid_file)
        if process is None:
            return  # Mosquitto reads the file at its next start
        if user == mosquitto.BRIDGE:
            # At SIGHUP, Mosquitto 2.0 ends the bridge's connection and forgets its session's access rights: until the
            # bridge is back it acknowledges messages of devices and drops them.
            processes.stop([pid_file])
            line, mark, log = mosquitto.command(programs, folder), mosquitto.marker(folder), folder / "mosquitto.log"
            processes.start(pid_file, line, cwd=folder, log=log, marker=mark, version=programs.version)
        else:
            processes.send(pid_file, signal.SIGHUP)
        ca = trusted(self.folder, state)
        mosquitto.wait_taken(MqttEndpoint(site, ports.HOST, state.mqtt_port, user, new, ca))

    def kill(self, site: str, what: What = "kafka", *, broker: int = 1) -> None:
        """Send SIGKILL to one process of a site (``kafka``: the broker with this node id), for fault tests."""
        self._known(site)
        processes.kill(self._site(site).pid_file(what, broker))

    def kill_site(self, site: str) -> None:
        """Send SIGKILL to every process of a site: nobody has the time to end anything on a ship that sinks."""
        self.kill(site, "mqtt")
        for broker in self._known(site).brokers:
            self.kill(site, broker=broker.number)

    def _all_site_names(self) -> list[str]:
        """Return the names of all sites with files, including those that a damaged ``state.json`` does not have."""
        with_pid = {file.name.split(".")[1] for file in (self.folder / "run").glob("[km]*.pid")}
        with_files = {folder.name for folder in (self.folder / "sites").glob("*") if folder.is_dir()}
        return sorted(with_pid | with_files)

    def _locked(self, tell: Progress | None = None) -> AbstractContextManager[None]:
        return locked(self.folder, lambda: tell("", "waiting for another fairlead up or down") if tell else None)


def _authority(files: TlsFiles | None) -> tuple[bool, str] | None:
    return None if files is None else (files.issued, files.ca)
