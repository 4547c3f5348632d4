"""One site's Mosquitto as a child process: its files, its command line, and the wait until it serves."""

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

from fairlead.certs.trust import KeyPair
from fairlead.errors import UnavailableError
from fairlead.home import private_folder
from fairlead.kafka.endpoint import MqttEndpoint
from fairlead.local import mosquitto, ports, processes
from fairlead.local.devices import MqttDevice, device_kind, device_rules
from fairlead.local.files import explained, tail, write_file
from fairlead.local.processes import ProcessWait
from fairlead.local.registry import LocalSite
from fairlead.local.state import Profile, read_state, write_state
from fairlead.mqtt import identify, poll_once, untrusted

BRIDGE = "bridge"  # reads everything; all other users only publish
DEVICE = "device"  # a gateway, or a player of devices: publishes for all devices
REPLAY = "replay"  # publishes dead letters again at sites without a gateway
TOPICS = "fairlead/v1/#"
REPLAYS = "fairlead/v1/replays/#"
READY_TIMEOUT = 120.0  # seconds; 0.01 on a quiet machine, more than 30 on a busy one
INSTALL = "Debian/Ubuntu: apt install mosquitto; Fedora: dnf install mosquitto; macOS: brew install mosquitto"
_DEVICES = "devices"  # the file with devices' password hashes; its lines are copied to the password file
_SESSION = "session"
_SBIN = ("/usr/sbin", "/usr/local/sbin", "/opt/homebrew/sbin", "/opt/homebrew/bin", "/usr/local/bin")

# Mosquitto never drops a queued message (0 = no limit). The packet limit is above Kafka's record limit, so that the
# bridge can reject a message that is too large and say why; Mosquitto would just disconnect the device.
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


# Mosquitto reads the files again at SIGHUP. The listener accepts only TLS.
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
    """Find Mosquitto 2 in the search path or in the folders for system programs.

    Raises:
        UnavailableError: it is not installed, or too old; the hint names the packages.
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
    """Write the configuration. A running Mosquitto reads a new profile and certificate from it at SIGHUP.

    Args:
        pair: The server's certificate; with it, clients must use TLS.

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
        text += "user root\n"  # Mosquitto would switch to the user `mosquitto`, which has no access to this folder
    write_file(folder / "mosquitto.conf", text)


def configuration(
    folder: Path, host: str, port: int, profile: Profile, *, data: Path | None = None, tls: bool = False
) -> str:
    """Return ``mosquitto.conf``. ``folder`` has users, rules and, with ``tls``, ``server.pem`` and ``server.key``;
    ``data`` (by default ``folder``) has the sessions."""
    secure = _TLS.format(folder=folder) if tls else ""
    return _CONFIGURATION.format(
        port=port, host=host, folder=folder, data=data or folder, autosave=profile.autosave, tls=secure
    )


def bridge_session(folder: Path) -> str | None:
    """Return the MQTT client id of the bridge at this broker; None, for the default, if an older Fairlead set it up.
    The id is secret, because any user that knows it can end the session."""
    file = folder / _SESSION
    return file.read_text(encoding="utf-8") if file.exists() else None


def write_users(folder: Path, users: Mapping[str, SecretStr], programs: Programs) -> None:
    """Write the password file (hashed) and the access rules.

    Raises:
        UnavailableError: the disk is full, or Mosquitto's own tool failed.
    """
    devices = _devices(folder)
    write_file(folder / "acl", access_rules(users) + device_rules(_names(devices)))
    _write_passwords(folder / "passwd", users, programs, devices)


def write_devices(folder: Path, lines: str) -> None:
    """Replace the lines (``name:hash``) of all devices; other users stay. Also works before the first start.

    Raises:
        UnavailableError: the disk is full.
    """
    private_folder(folder)
    write_file(folder / _DEVICES, lines)
    if (folder / "passwd").exists():
        _write_hashed(folder, _others(folder))


def remove_user(folder: Path, user: str) -> None:
    """Remove a user that is not a device from both files.

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
    """Return the lines of the password file without those of devices."""
    lines = (folder / "passwd").read_text(encoding="utf-8").splitlines(keepends=True)
    return [line for line in lines if device_kind(line.partition(":")[0]) is None]


def _devices(folder: Path) -> str:
    file = folder / _DEVICES
    return file.read_text(encoding="utf-8") if file.exists() else ""


def _names(lines: str) -> list[str]:
    return [line.partition(":")[0] for line in lines.splitlines()]


def access_rules(users: Mapping[str, SecretStr] | tuple[str, ...]) -> str:
    """Return the ``acl_file``: the bridge reads and all other users publish, only below Fairlead's topics."""
    rules: list[str] = []
    for user in users:
        reads = [f"topic read {TOPICS}", "topic read $SYS/#"]
        own = reads if user == BRIDGE else [f"topic write {REPLAYS if user == REPLAY else TOPICS}"]
        rules += [f"user {user}", *own, ""]
    return "\n".join(rules)


def _write_passwords(file: Path, users: Mapping[str, SecretStr], programs: Programs, devices: str) -> None:
    """Write passwords to a file, in which Mosquitto's tool hashes them. On its command line ``ps`` would show them."""
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
    """Return the command line. ``marker(folder)`` is one of its arguments."""
    return [str(programs.broker), "-c", marker(folder)]


def marker(folder: Path) -> str:
    """Return the argument that distinguishes this site's Mosquitto from every other process."""
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
        UnavailableError: Mosquitto ended, refused the login, or took too long.
        UntrustedError: it runs, but its clients do not trust its certificate.
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
        UntrustedError: the client does not trust the broker's certificate.
    """
    end = time.monotonic() + READY_TIMEOUT
    while (answer := log_in(endpoint)) != "Success":
        if time.monotonic() > end:
            raise UnavailableError(
                f"{endpoint.site}'s Mosquitto does not accept the new password of {endpoint.user}: "
                f"{answer or 'no answer'}",
                hint="see its mosquitto.log; run the same command again to continue",
            )
        time.sleep(0.05)  # Mosquitto does not say when it has read its files


def log_in(endpoint: MqttEndpoint) -> str | None:
    """Log in once. Return ``Success`` or the broker's reason for refusing; None if no broker answers.

    Raises:
        UntrustedError: the client does not trust the broker's certificate.
    """
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
        raise untrusted(endpoint, error) from error
    except OSError:
        return None
    return answers[0] if answers else None


def give_devices(folder: Path, site: str, devices: Collection[MqttDevice]) -> bool:
    """Replace the devices of a local site; return True if its Mosquitto runs and has read them.

    A site that was never started gets them at its first start. Call this inside ``locked``.
    """
    local = LocalSite(folder, site)
    mosquitto.write_devices(local.mosquitto_folder, "".join(device.line for device in devices))
    return _reload(local)


def without_user(folder: Path, site: str, user: str) -> None:
    """Remove a user from a local site's Mosquitto and end its connections. Call this inside ``locked``."""
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
