"""Write the certificates of a Compose project, issued by its own authority, and renew them before they expire."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from compose.fleet import BOARD, Fleet
from fairlead.certs.authority import issue, new_authority
from fairlead.certs.facts import all_facts, facts
from fairlead.certs.trust import KeyPair
from fairlead.errors import RefusedError
from fairlead.local.files import write_file

RENEW_DAYS: Final = 60  # the next rendering renews a certificate with fewer days left


def write_certificates(fleet: Fleet, folder: Path) -> list[str]:
    """Write ``certificates/ca.pem`` and ``certificates/<host>.pem`` (key, certificate, authority) of each broker and
    Mosquitto and of the board; return the names of the new ones. Without TLS for clients, Mosquitto has none; brokers
    have one for their controllers.

    The authority's key is in ``authority``, which no container mounts. Certificates of the user's own authority are not
    changed.

    Raises:
        RefusedError: certificates of the user's own authority are missing or about to expire; nothing was changed.
        UnavailableError: the disk is full.
    """
    shown = folder / "certificates"
    shown.mkdir(parents=True, exist_ok=True, mode=0o700)
    hosts = [host for site in fleet.sites for host in site.brokers]
    hosts += [site.mqtt for site in fleet.sites if site.has_devices and fleet.tls]
    hosts += [BOARD] if fleet.topology.board else []
    wanted = [host for host in hosts if not _lasts(shown / f"{host}.pem")]
    if not wanted and (shown / "ca.pem").exists():
        return []
    authority = _authority(folder / "authority", f"Fairlead, {fleet.topology.name}")
    trusted = shown / "ca.pem"
    if not trusted.exists():
        write_file(trusted, authority.certificate, mode=0o444)
    elif facts(authority.certificate).serial not in {each.serial for each in all_facts(trusted.read_bytes())}:
        raise RefusedError(
            f"certificates in {shown} are missing or have fewer than {RENEW_DAYS} days left: {', '.join(wanted)}; "
            "the project's authority cannot renew them, because clients trust another one (ca.pem)",
            hint=f"put new ones of your authority there; or remove {shown}: the project's authority then issues all",
            hosts=wanted,
        )
    for host in wanted:
        pair = issue(authority, host, [host, "localhost", "127.0.0.1"])
        # Compose mounts the file with its mode, so the containers' user must be able to read it. The folder is private.
        write_file(shown / f"{host}.pem", pair.key + pair.certificate, mode=0o444)
    return wanted


def _authority(folder: Path, name: str) -> KeyPair:
    certificate, key = folder / "ca.pem", folder / "ca.key"
    if not certificate.exists() or not key.exists():
        pair = new_authority(name)
        write_file(key, pair.key)
        write_file(certificate, pair.certificate)
    return KeyPair(certificate.read_bytes(), key.read_bytes())


def _lasts(file: Path) -> bool:
    if not file.exists():
        return False
    text = file.read_bytes()
    return facts(text[text.index(b"-----BEGIN CERTIFICATE") :]).days() >= RENEW_DAYS
