"""Write the folder of a Compose project. Secrets are generated once; rendering again keeps them."""

from __future__ import annotations

import base64
import secrets as random
from importlib.resources import files
from pathlib import Path

import yaml

from compose.certificates import write_certificates
from compose.fleet import Fleet, all_secrets, secrets_from_outside, secrets_of_routes, secrets_of_spark
from compose.project import text
from compose.settings import address_overrides, overlay, prometheus, properties
from fairlead.local.files import write_file
from topologies.endpoints import write_address_overrides
from topologies.users import SESSION


def render(fleet: Fleet, topology: Path, folder: Path) -> list[str]:
    """Write the project of a fleet. Return the secrets that only receivers of notifications can give, and that are not
    there yet: their files are empty, and ``notify`` does not start.

    Only the owner can open the folder ``secrets`` (0700). The containers' user can read the files in it, because
    Compose mounts them with their mode.

    Args:
        topology: The topology's own file, which is copied.
        folder: Created if it is missing; other files in it are not changed.

    Raises:
        UnavailableError: the disk is full. RefusedError: the folder may not be written.
    """
    name = fleet.topology.name
    write_file(folder / "compose.yaml", text(fleet), mode=0o644)
    for site in fleet.sites:
        for node, host in enumerate(site.brokers, 1):
            write_file(folder / "brokers" / f"{host}.properties", properties(fleet, site, node), mode=0o644)
    write_file(folder / "topology" / f"{name}.yaml", topology.read_bytes(), mode=0o644)
    beside = yaml.safe_dump(overlay(fleet), sort_keys=False, width=120)
    write_file(folder / "topology" / f"{name}.local.yaml", beside, mode=0o644)
    for shown in ("brokers", "topology"):
        (folder / shown).chmod(0o755)
    _secrets(folder / "secrets", [*all_secrets(fleet), *secrets_of_spark(fleet), "grafana.admin"])
    for secret, ours in secrets_from_outside(fleet).items():
        if not (folder / "secrets" / secret).exists():
            made = base64.b64encode(random.token_bytes(32)).decode() if ours else ""
            write_file(folder / "secrets" / secret, made, mode=0o444)
    (folder / "report").mkdir(exist_ok=True)
    (folder / "report").chmod(0o777)
    _monitoring(fleet, folder / "monitoring")
    if fleet.links:
        ways = folder / "links" / "address-overrides.json"
        write_address_overrides(ways, address_overrides(fleet))
        ways.chmod(0o644)
        ways.parent.chmod(0o755)
    write_certificates(fleet, folder)
    return [name for name in secrets_of_routes(fleet) if not (folder / "secrets" / name).stat().st_size]


def _monitoring(fleet: Fleet, folder: Path) -> None:
    own = yaml.safe_dump(prometheus(fleet), sort_keys=False)
    places = {
        "rules.yaml": "prometheus/rules.yaml",
        "datasource.yaml": "grafana/provisioning/datasources/fairlead.yaml",
        "provider.yaml": "grafana/provisioning/dashboards/fairlead.yaml",
        "dashboard.json": "grafana/dashboards/fairlead.json",
    }
    written = {place: (files("compose.monitoring") / name).read_bytes() for name, place in places.items()}
    for place, content in {**written, "prometheus/prometheus.yaml": own.encode()}.items():
        file = folder / place
        file.parent.mkdir(parents=True, exist_ok=True)
        write_file(file, content, mode=0o644)


def _secrets(folder: Path, names: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name in names:
        if not (folder / name).exists():
            prefix = "fairlead-bridge-" if name.endswith(f".{SESSION}") else ""
            write_file(folder / name, prefix + random.token_urlsafe(24), mode=0o444)
