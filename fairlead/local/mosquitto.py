"""One site's Mosquitto as a child process: its files, its command line, and when it really serves."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import ssl
import subprocess
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import paho.mqtt.client as paho
import psutil
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.reasoncodes import ReasonCode
from pydantic import SecretStr

from fairlead.certs.trust import KeyPair, trouble
from fairlead.errors import UnavailableError
from fairlead.home import private_folder
from fairlead.kafka.endpoint import MqttEndpoint
from fairlead.local import mosquitto, ports, processes
from fairlead.local.devices import MqttDevice, device_kind, device_rules
from fairlead.local.files import explained, tail, write_file
from fairlead.local.processes import ProcessWait
from fairlead.local.registry import LocalSite
from fairlead.local.state import Profile, read_state, write_state
from fairlead.mqtt import identify, poll_once

BRIDGE = "bridge"  # reads everything; every other user publishes only
DEVICE = "device"  # a gateway, or a player of devices: publishes for all of them
REPLAY = "replay"  # publishes dead letters again where there is no gateway
TOPICS = "fairlead/v1/#"
REPLAYS = "fairlead/v1/replays/#"
READY_TIMEOUT = 120.0  # seconds; 0.01 on a quiet machine, above 30 seen on one that was held up
INSTALL = "Debian/Ubuntu: apt install mosquitto; Fedora: dnf install mosquitto; macOS: brew install mosquitto"
_DEVICES = "devices"  # lines of the password file: hashes of devices
_SESSION = "session"
_SBIN = ("/usr/sbin", "/usr/local/sbin", "/opt/homebrew/sbin", "/opt/homebrew/bin", "/usr/local/bin")

# Nothing queued is ever dropped (0 = no limit). The packet limit is above Kafka's record limit so that the bridge, not
# a disconnect that the device cannot understand, says what was wrong with a message that is too large.
_CONFIGURATION = """per_listener_settings false
listener {port} {host}
socket_domain ipv4
{tls}allow_anonymous false
password_file {folder}/passwd
acl_file {folder}/acl
persistence true
persistence_location {data}/
persistence_file mosquitto.db
autosave_interval {autosave}
autosave_on_changes false
max_queued_messages 0
max_queued_bytes 0
max_inflight_messages 1000
max_inflight_bytes 0
persistent_client_expiration 30d
max_packet_size 4194304
queue_qos0_messages false
sys_interval 5
set_tcp_nodelay true
connection_messages false
log_dest stdout
log_type error
log_type warning
log_type notice
log_timestamp_format %Y-%m-%dT%H:%M:%S
"""


# Read again at SIGHUP. The listener speaks nothing else.
_TLS = """certfile {folder}/server.pem
keyfile {folder}/server.key
tls_version tlsv1.2
"""


@dataclass(frozen=True, slots=True)
class Programs:
    """Mosquitto's two programs and its version."""

    broker: Path
    passwd: Path
    version: str


def find_mosquitto() -> Programs:
    """Mosquitto 2, from the search path or the folders for system programs.

    Raises:
        UnavailableError: not installed, or too old; names the packages.
    """
    return _find(os.environ.get("PATH", os.defpath))


@cache
def _find(search_path: str) -> Programs:
    path = os.pathsep.join((search_path, *_SBIN))
    broker, passwd = shutil.which("mosquitto", path=path), shutil.which("mosquitto_passwd", path=path)
    version = _version(broker) if broker else ""
    if broker is None or passwd is None or not version or int(version.partition(".")[0]) < 2:
        found = f"found {broker} {version or 'which does not run'}" if broker and passwd else "it was not found"
        raise UnavailableError(
            f"each site needs Mosquitto 2 (the programs mosquitto and mosquitto_passwd); {found}",
            hint=f"install it. {INSTALL}",
        )
    return Programs(Path(broker), Path(passwd), version)


def _version(broker: str) -> str:
    try:
        text = subprocess.run([broker, "-h"], capture_output=True, text=True, timeout=30, check=False).stdout  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return ""
    match = re.search(r"mosquitto version (\d+\.[\d.]+)", text)
    return match[1] if match else ""


def write_configuration(folder: Path, port: int, profile: Profile, pair: KeyPair | None = None) -> None:
    """Write the configuration; at SIGHUP a running Mosquitto reads a new profile and certificate from it.

    Args:
        pair: The certificate for clients, which then must use TLS.

    Raises:
        UnavailableError: the disk is full.
    """
    private_folder(folder)
    if not (folder / "mosquitto.conf").exists():
        write_file(folder / _SESSION, f"fairlead-bridge-{folder.parent.name}-{secrets.token_hex(16)}")
    if pair is not None:
        write_file(folder / "server.key", pair.key)
        write_file(folder / "server.pem", pair.certificate)
    text = configuration(folder.resolve(), ports.HOST, port, profile, tls=pair is not None)
    if os.geteuid() == 0:
        text += "user root\n"  # it would become user `mosquitto`, who may not enter this folder
    write_file(folder / "mosquitto.conf", text)


def configuration(
    folder: Path, host: str, port: int, profile: Profile, *, data: Path | None = None, tls: bool = False
) -> str:
    """The text of ``mosquitto.conf``: users and rules are read from ``folder``, sessions are kept in ``data`` (the same
    folder unless given). With ``tls`` it shows ``server.pem`` of ``folder``, whose key is in ``server.key``."""
    secure = _TLS.format(folder=folder) if tls else ""
    return _CONFIGURATION.format(
        port=port, host=host, folder=folder, data=data or folder, autosave=profile.autosave, tls=secure
    )


def bridge_session(folder: Path) -> str | None:
    """The name of the bridge's session at this broker. None: the usual name, at brokers that an older Fairlead started;
    newer ones have a secret name, because whoever knows it can end the session."""
    file = folder / _SESSION
    return file.read_text(encoding="utf-8") if file.exists() else None


def write_users(folder: Path, users: Mapping[str, SecretStr], programs: Programs) -> None:
    """Write password file (hashed) and access rules.

    Raises:
        UnavailableError: the disk is full, or Mosquitto's own tool failed.
    """
    devices = _devices(folder)
    write_file(folder / "acl", access_rules(users) + device_rules(_names(devices)))
    _write_passwords(folder / "passwd", users, programs, devices)


def write_devices(folder: Path, lines: str) -> None:
    """Make these lines (``name:hash``) those of all devices; other users stay. Before the first start, too.

    Raises:
        UnavailableError: the disk is full.
    """
    private_folder(folder)
    write_file(folder / _DEVICES, lines)
    if (folder / "passwd").exists():
        _write_hashed(folder, _others(folder))


def remove_user(folder: Path, user: str) -> None:
    """Remove a user that is no device from both files.

    Raises:
        UnavailableError: the disk is full.
    """
    if (folder / "passwd").exists():
        _write_hashed(folder, [line for line in _others(folder) if not line.startswith(f"{user}:")])


def _write_hashed(folder: Path, others: list[str]) -> None:
    devices = _devices(folder)
    rules = access_rules(tuple(_names("".join(others)))) + device_rules(_names(devices))
    write_file(folder / "acl", rules)
    write_file(folder / "passwd", "".join(others) + devices)


def _others(folder: Path) -> list[str]:
    """The lines of the password file that are no device's."""
    lines = (folder / "passwd").read_text(encoding="utf-8").splitlines(keepends=True)
    return [line for line in lines if device_kind(line.partition(":")[0]) is None]


def _devices(folder: Path) -> str:
    file = folder / _DEVICES
    return file.read_text(encoding="utf-8") if file.exists() else ""


def _names(lines: str) -> list[str]:
    return [line.partition(":")[0] for line in lines.splitlines()]


def access_rules(users: Mapping[str, SecretStr] | tuple[str, ...]) -> str:
    """The text of the ``acl_file``: the bridge reads, everybody else publishes, both below Fairlead's topics only."""
    rules: list[str] = []
    for user in users:
        reads = [f"topic read {TOPICS}", "topic read $SYS/#"]
        own = reads if user == BRIDGE else [f"topic write {REPLAYS if user == REPLAY else TOPICS}"]
        rules += [f"user {user}", *own, ""]
    return "\n".join(rules)


def _write_passwords(file: Path, users: Mapping[str, SecretStr], programs: Programs, devices: str) -> None:
    """Write passwords to a file and hash them there with Mosquitto's tool: ``ps`` would show them on a command line."""
    new = file.with_name("passwd.new")
    with explained(file):
        write_file(new, "".join(f"{user}:{password.get_secret_value()}\n" for user, password in users.items()))
        try:
            subprocess.run([programs.passwd, "-U", new], capture_output=True, timeout=60, check=True)  # noqa: S603
        except subprocess.SubprocessError as error:
            new.unlink(missing_ok=True)
            raise UnavailableError("mosquitto_passwd could not hash the passwords", hint="is the disk full?") from error
        write_file(new, new.read_text(encoding="utf-8") + devices)
        new.replace(file)


def command(programs: Programs, folder: Path) -> list[str]:
    """The command line. ``marker(folder)`` is one of its arguments."""
    return [str(programs.broker), "-c", marker(folder)]


def marker(folder: Path) -> str:
    """The argument that tells this site's Mosquitto from every other process."""
    return str(folder.resolve() / "mosquitto.conf")


def wait_ready(
    process: psutil.Process,
    endpoint: MqttEndpoint,
    folder: Path,
    *,
    cancel: threading.Event,
) -> None:
    """Wait until ``endpoint``'s user can log in.

    Raises:
        UnavailableError: it ended, refused the login, or took too long.
        Cancelled: ``cancel`` was set.
    """
    end = time.monotonic() + READY_TIMEOUT
    wait = ProcessWait(
        process, "Mosquitto", endpoint.site, folder, end, lambda: tail(folder / "mosquitto.log", 3), cancel
    )
    while (answer := log_in(endpoint)) != "Success":
        if answer is not None:
            raise wait.refused(endpoint.user, answer)
        wait.pause()


def wait_taken(endpoint: MqttEndpoint) -> None:
    """Wait until a running broker has read its files again and accepts a new password.

    Raises:
        UnavailableError: it took too long.
    """
    end = time.monotonic() + READY_TIMEOUT
    while (answer := log_in(endpoint)) != "Success":
        if time.monotonic() > end:
            raise UnavailableError(
                f"{endpoint.site}'s Mosquitto does not accept the new password of {endpoint.user}: "
                f"{answer or 'no answer'}",
                hint="see its mosquitto.log; the same command goes on where this one ended",
            )
        time.sleep(0.05)  # there is no event for it


def log_in(endpoint: MqttEndpoint, timeout: float = 2.0) -> str | None:
    """Log in once: ``Success``, the broker's refusal, or why it is not trusted; None when no broker answers."""
    answers: list[str] = []

    def on_connect(_c: paho.Client, _u: object, _f: paho.ConnectFlags, reason: ReasonCode, _p: object) -> None:
        answers.append(str(reason))

    client = paho.Client(CallbackAPIVersion.VERSION2)
    client.on_connect = on_connect
    identify(client, endpoint)
    try:
        client.connect(endpoint.host, endpoint.port)
        end = time.monotonic() + READY_TIMEOUT
        while not answers and time.monotonic() < end:
            if poll_once(client, 0.1) != paho.MQTT_ERR_SUCCESS:
                break
        client.disconnect()
    except ssl.SSLCertVerificationError as error:
        return trouble(error, endpoint.host, endpoint.tls_ca).why
    except OSError:
        return None
    return answers[0] if answers else None


def give_devices(folder: Path, site: str, devices: Collection[MqttDevice]) -> bool:
    """Set all devices of a local site; True where its Mosquitto runs and has read them.

    A site that was never started has them when it is. Call it inside ``locked``.
    """
    local = LocalSite(folder, site)
    mosquitto.write_devices(local.mosquitto_folder, "".join(device.line for device in devices))
    return _reload(local)


def without_user(folder: Path, site: str, user: str) -> None:
    """Remove a user from a local site's Mosquitto and end its connections. Call it inside ``locked``."""
    file = folder / "state.json"
    state = read_state(file)
    known = state.sites.get(site)
    if known is None or user not in known.mqtt_users:
        return
    users = tuple(name for name in known.mqtt_users if name != user)
    local = LocalSite(folder, site)
    mosquitto.remove_user(local.mosquitto_folder, user)
    state.sites[site] = known.model_copy(update={"mqtt_users": users})
    write_state(file, state)
    _reload(local)


def _reload(local: LocalSite) -> bool:
    pid_file = local.pid_file("mqtt")
    if processes.find(pid_file) is None:
        return False
    processes.send(pid_file, signal.SIGHUP)
    return True
