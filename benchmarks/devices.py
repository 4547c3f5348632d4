"""What many devices with MQTT passwords of their own cost at one Mosquitto.

    python -m benchmarks.devices [--devices 50000] [--connected 800]

Prints a table and writes ``build/bench/devices.json``: ``enrol_seconds`` (passwords and their hashes, the book),
``write_seconds`` (a site's files), ``reload_seconds`` (SIGHUP until the broker lets a new device in, with
``connected`` sessions open, whose passwords it checks again), ``log_in_seconds`` of one session, and
``few_log_in_seconds`` with ten devices, for comparison.
"""

from __future__ import annotations

import argparse
import socket
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from pydantic import SecretStr

from benchmarks.harbour import boxes
from benchmarks.harness import Figures, Say, main
from fairlead.local import mosquitto, ports, processes
from fairlead.local.devices import DeviceBook, MqttDevice
from fairlead.local.mosquitto import give_devices
from fairlead.local.registry import LocalSite
from fairlead.local.state import Profile


def measure(options: argparse.Namespace, say: Say) -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        return measure_in(Path(folder), options.devices, options.connected)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--devices", type=int, default=50_000)
    parser.add_argument("--connected", type=int, default=800)


def measure_in(folder: Path, count: int, connected: int) -> dict[str, float]:
    """Every figure, with a Mosquitto of its own."""
    site, programs, port = LocalSite(folder, "site"), mosquitto.find_mosquitto(), ports.choose_ports(1, taken=[])[0]
    book = DeviceBook(folder / "devices.json")
    names = boxes(count)
    book.enrol(names[:10], "")
    mosquitto.write_configuration(site.mosquitto_folder, port, Profile.DURABLE)
    mosquitto.write_users(site.mosquitto_folder, {"bridge": SecretStr("bridge")}, programs)
    give_devices(folder, "site", list(book.read().values()))
    pid_file, marker = site.pid_file("mqtt"), mosquitto.marker(site.mosquitto_folder)
    command, log = mosquitto.command(programs, site.mosquitto_folder), folder / "log"
    processes.start(pid_file, command, cwd=folder, log=log, marker=marker, version=programs.version)
    try:
        while not ports.accepts(port):
            time.sleep(0.01)
        few = _log_ins(port, list(book.read().values())[:10] * 10)
        began = time.perf_counter()
        book.enrol(names, "")
        enrolled = time.perf_counter()
        devices = book.read()
        last = devices[names[-1]]
        read = time.perf_counter()
        give_devices(folder, "site", list(devices.values()))
        written = time.perf_counter()
        _until_known(port, last)
        reloaded_without = time.perf_counter() - written
        many = _log_ins(port, [devices[name] for name in names[-100:]])
        with ExitStack() as open_sessions:
            for name in names[-connected:]:
                open_sessions.enter_context(_session(port, devices[name]))
            renewed = book.enrol([names[0]], "", renew=True)[names[0]]
            give_devices(folder, "site", list(book.read().values()))
            told = time.perf_counter()
            _until_known(port, renewed)
            reloaded = time.perf_counter() - told
    finally:
        processes.stop([pid_file])
    return {
        "devices": count,
        "connected": connected,
        "enrol_seconds": enrolled - began,
        "write_seconds": written - read,
        "reload_seconds": reloaded,
        "reload_none_connected_seconds": reloaded_without,
        "log_in_seconds": many,
        "few_log_in_seconds": few,
    }


def _until_known(port: int, device: MqttDevice) -> None:
    while True:
        try:
            _session(port, device).close()
        except ConnectionRefusedError:
            time.sleep(0.01)
        else:
            return


def _log_ins(port: int, devices: list[MqttDevice]) -> float:
    """Seconds for one of them."""
    began = time.perf_counter()
    for device in devices:
        _session(port, device).close()
    return (time.perf_counter() - began) / len(devices)


def _session(port: int, device: MqttDevice) -> socket.socket:
    """An open session (MQTT 3.1.1); raises ConnectionRefusedError when the broker does not let it in."""
    texts = (device.name, device.name, device.password.get_secret_value())
    body = b"\x00\x04MQTT\x04\xc2\x02\x58" + b"".join(len(t).to_bytes(2, "big") + t.encode() for t in texts)
    sock = socket.create_connection(("127.0.0.1", port))
    sock.sendall(b"\x10" + bytes([len(body)]) + body)
    if sock.recv(4) != b"\x20\x02\x00\x00":
        sock.close()
        raise ConnectionRefusedError
    return sock


if __name__ == "__main__":
    main("devices", {"devices": measure}, __doc__, add_options)
