"""The certificates of one state folder: its authority, and the ones issued to sites and by hand.

Below ``certs/``: ``ca.pem`` is what clients trust, ``authority.pem`` and ``authority.key`` sign,
``<site>/<service>.pem`` and ``.key`` are what a site's servers present. Keys have mode 0600. Callers hold the lock of
the state folder (``fairlead.local.state.locked``).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from fairlead.certs.authority import DAYS, issue, new_authority
from fairlead.certs.facts import CertificateError, CertificateFacts, all_facts, facts, fits, load
from fairlead.certs.trust import SOON, KeyPair
from fairlead.errors import ConfigurationError, RefusedError
from fairlead.local.files import write_file

SERVICES: Final = ("kafka", "mqtt")
ISSUED: Final = "issued"  # the folder of certificates issued by hand, beside the sites' folders


class IssuedCertificate(NamedTuple):
    """A certificate of the state folder. ``site`` is None for an authority."""

    site: str | None
    service: str
    facts: CertificateFacts
    file: Path


class Certificates:
    """The certificates of one state folder. Creating the object touches nothing."""

    def __init__(self, folder: Path) -> None:
        """``folder``: the state folder."""
        self.folder = folder / "certs"
        self.trusted = self.folder / "ca.pem"
        self._certificate = self.folder / "authority.pem"
        self._key = self.folder / "authority.key"

    @property
    def exists(self) -> bool:
        """Whether the folder has an authority."""
        return self._key.exists()

    def found(self, name: str) -> None:
        """Create the authority.

        Raises:
            RefusedError: the folder has an authority already.
        """
        self.require_none()
        pair = new_authority(f"Fairlead {name}")
        write_file(self.trusted, pair.certificate)
        write_file(self._certificate, pair.certificate)
        write_file(self._key, pair.key)  # last: without it there is no authority

    def require_none(self) -> None:
        """Check that the folder has no authority yet.

        Raises:
            RefusedError: it has one.
        """
        if self.exists:
            raise RefusedError(
                f"{self.folder} has an authority already",
                hint=f"to start over with new certificates for all: fairlead down; rm -r {self.folder}; fairlead up",
            )

    def site_files(self, site: str, service: str) -> tuple[Path, Path]:
        """Return the paths of the certificate and the key of a site's service; the files need not exist."""
        return self.folder / site / f"{service}.pem", self.folder / site / f"{service}.key"

    def due(self, site: str) -> bool:
        """Return whether a certificate of a site is missing, expires soon, or is not for its key: an interruption
        between the two files leaves the old certificate."""
        return any(
            not certificate.exists()
            or facts(certificate.read_bytes()).days() < SOON
            or (key.exists() and not fits(certificate, key))
            for certificate, key in (self.site_files(site, service) for service in SERVICES)
        )

    def issue_site(self, site: str, names: Sequence[str] = (), *, days: int = DAYS) -> None:
        """Issue new certificates for a site's servers here, for ``site_names``, ``names`` and the old ones' names."""
        for service in SERVICES:
            certificate, key = self.site_files(site, service)
            further = [name for name in self._names(certificate) if name not in site_names(site, service)]
            every = [*site_names(site, service), *further, *names]
            self._write(issue(self._authority(), f"{service}.{site}", every, days=days), certificate, key)

    def issue(self, name: str, names: Sequence[str], *, days: int, out: Path) -> tuple[Path, Path]:
        """Issue a certificate for a server elsewhere; return the paths of certificate, key and ``ca.pem``.

        Raises:
            ConfigurationError: the folder has no authority, or a name is neither a host name nor an IP address.
        """
        pair = issue(self._authority(), name, names, days=days)
        certificate, key = out / f"{name}.pem", out / f"{name}.key"
        self._write(pair, certificate, key)
        write_file(out / "ca.pem", self.trusted.read_bytes(), mode=0o644)
        return certificate, key

    def all(self) -> list[IssuedCertificate]:
        """Return all certificates of the folder, authorities first."""
        if not self.exists:
            return []
        signed = sorted(file for file in self.folder.glob("*/*.pem") if file.name != "ca.pem")
        authorities = [
            IssuedCertificate(None, "authority", each, self.trusted) for each in all_facts(self.trusted.read_bytes())
        ]
        return authorities + [
            IssuedCertificate(file.parent.name, file.stem, facts(file.read_bytes()), file) for file in signed
        ]

    def _authority(self) -> KeyPair:
        if not self.exists:
            raise ConfigurationError(
                f"{self.folder} has no authority", hint="create one: fairlead certs init, or fairlead up --tls"
            )
        try:
            return load(self._certificate, self._key)
        except CertificateError as error:
            hint = f"restore the folder from a copy, or delete it with all certificates: rm -r {self.folder}"
            raise CertificateError(f"the authority is damaged: {error.what}", hint=hint) from None

    def _names(self, certificate: Path) -> tuple[str, ...]:
        return facts(certificate.read_bytes()).names if certificate.exists() else ()

    @staticmethod
    def _write(pair: KeyPair, certificate: Path, key: Path) -> None:
        write_file(key, pair.key)
        write_file(certificate, pair.certificate, mode=0o644)


def site_names(site: str, service: str) -> list[str]:
    """Return the host names and addresses of a site's server on this machine and in a container network."""
    return ["127.0.0.1", "::1", "localhost", site, f"{service}.{site}", f"{site}-{service}"]
