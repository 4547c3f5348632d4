"""Entry point of Mosquitto's container: write configuration, hashed passwords and rules, then become Mosquitto."""

from __future__ import annotations

import os
from pathlib import Path

from compose.entry.files import secret, setting
from compose.fleet import CERTIFICATES, MQTT_PORT, MQTT_TLS_PORT
from fairlead.local.files import write_file
from fairlead.local.mosquitto import configuration, find_mosquitto, write_users
from fairlead.local.passwords import mqtt_secret
from fairlead.local.state import Profile
from topologies.loader.load import load
from topologies.users import mqtt_users

FOLDER = Path("/tmp/mosquitto")  # noqa: S108 - the container's own
DATA = Path("/var/lib/mosquitto-data")


def main() -> None:
    """Write Mosquitto's files, then ``exec`` it."""
    site, topology = setting("SITE"), load(setting("FAIRLEAD_TOPOLOGY"))
    tls = bool(os.environ.get("TLS"))
    profile = topology.sites[site].mqtt_profile or Profile.DURABLE
    port, every = (MQTT_TLS_PORT if tls else MQTT_PORT), "0.0.0.0"  # noqa: S104 - of the site's network
    FOLDER.mkdir(mode=0o700, exist_ok=True)
    write_file(FOLDER / "mosquitto.conf", configuration(FOLDER, every, port, profile, data=DATA, tls=tls))
    for name in ("server.pem", "server.key") if tls else ():  # one PEM file has the certificate and the key
        (FOLDER / name).unlink(missing_ok=True)
        (FOLDER / name).symlink_to(f"{CERTIFICATES}/{site}-mqtt.pem")
    programs = find_mosquitto()
    users = {user: secret(f"{site}.{mqtt_secret(user)}") for user in mqtt_users(topology, site)}
    write_users(FOLDER, users, programs)
    os.execv(programs.broker, [str(programs.broker), "-c", str(FOLDER / "mosquitto.conf")])  # noqa: S606


if __name__ == "__main__":
    main()
