"""The certificates of one state folder: its own authority, and what that has issued to sites and by hand.

Below ``certs/``: ``ca.pem`` is what clients trust (the authority, and while it is being replaced the one before it),
``authority.pem`` and ``authority.key`` sign, ``<site>/<service>.pem`` and ``.key`` are what a site's servers show. Keys
have mode 0600. Not safe against a second caller; callers hold ``fairlead.local.lock``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from fairlead.certs.authority import DAYS, issue, new_authority
from fairlead.certs.facts import Facts, all_facts, facts
from fairlead.certs.model import SOON, Pair
from fairlead.certs.rehearsal import CertificateError, load
from fairlead.errors import ConfigurationError, RefusedError
from fairlead.local.files import write_file

SERVICES: Final = ("kafka", "mqtt")
ISSUED: Final = "issued"  # by hand; no site's name may be this, as sites are asked for by name only


class Issued(NamedTuple):
    """A certificate that is kept here. ``site`` is None for an authority."""

    site: str | None
    service: str
    facts: Facts
    file: Path


class Certificates:
    """The certificates of one state folder. Making one touches nothing."""

    def __init__(self, folder: Path) -> None:
        """``folder``: the state folder."""
        self.folder = folder / "certs"
        self.trusted = self.folder / "ca.pem"
        self._certificate = self.folder / "authority.pem"
        self._key = self.folder / "authority.key"

    @property
    def exists(self) -> bool:
        """Whether there is an authority."""
        return self._key.exists()

    def found(self, name: str) -> None:
        """Make an authority.

        Raises:
            RefusedError: there is one, whose certificates are in use.
        """
        if self.exists:
            raise RefusedError(
                f"there is an authority in {self.folder} already",
                hint="fairlead certs init --replace puts another one beside it, until 'fairlead certs retire'",
            )
        pair = new_authority(f"Fairlead {name}")
        write_file(self.trusted, pair.certificate)
        self._write_authority(pair)

    def replace(self, name: str) -> None:
        """Make another authority. Clients trust both from now on; the next certificates are signed by the new one.

        Raises:
            ConfigurationError: there is none to replace. RefusedError: one is being replaced already.
        """
        old = self._authority()
        if self.replacing:
            raise RefusedError(
                "the authority is being replaced already",
                hint="fairlead certs renew, then fairlead certs retire; after that it may be replaced again",
            )
        pair = new_authority(f"Fairlead {name} {dt.datetime.now(dt.UTC):%Y-%m-%d}")
        write_file(self.trusted, pair.certificate + old.certificate)  # before anything is signed by it
        self._write_authority(pair)

    @property
    def replacing(self) -> bool:
        """Whether clients trust an authority before this one as well."""
        return self.exists and len(all_facts(self.trusted.read_bytes())) > 1

    def retire(self) -> None:
        """Trust the authority of now only.

        Raises:
            ConfigurationError: there is none. RefusedError: certificates of the one before it are still there.
        """
        mine = {each.serial for each in all_facts(self._authority().certificate)}
        left = sorted(
            f"{each.site}/{each.service}"
            for each in self.all()
            if each.site is not None and {one.serial for one in all_facts(each.file.read_bytes())[1:]} != mine
        )
        if left:
            raise RefusedError(
                f"certificates of the authority before this one are still in use: {', '.join(left)}",
                hint="fairlead certs renew; those that were issued by hand are to be issued again",
                certificates=left,
            )
        write_file(self.trusted, self._authority().certificate)

    def site_files(self, site: str, service: str) -> tuple[Path, Path]:
        """Where the certificate and the key of a site's service are, or would be."""
        return self.folder / site / f"{service}.pem", self.folder / site / f"{service}.key"

    def due(self, site: str) -> bool:
        """Whether a site lacks a certificate, or has one that is soon to end."""
        return any(
            not file.exists() or facts(file.read_bytes()).days() < SOON
            for file, _ in (self.site_files(site, service) for service in SERVICES)
        )

    def issue_site(self, site: str, names: Sequence[str] = (), *, days: int = DAYS) -> None:
        """New certificates for a site's servers on this machine, for ``site_names`` and further names."""
        for service in SERVICES:
            certificate, key = self.site_files(site, service)
            further = [name for name in self._names(certificate) if name not in site_names(site, service)]
            every = [*site_names(site, service), *further, *names]
            self._write(issue(self._authority(), f"{service}.{site}", every, days=days), certificate, key)

    def issue(self, name: str, names: Sequence[str], *, days: int, out: Path) -> tuple[Path, Path]:
        """A certificate for a server elsewhere: where it and its key were written, with ``ca.pem`` beside them.

        Raises:
            ConfigurationError: there is no authority, or a name is neither a host name nor an address.
        """
        pair = issue(self._authority(), name, names, days=days)
        certificate, key = out / f"{name}.pem", out / f"{name}.key"
        self._write(pair, certificate, key)
        write_file(out / "ca.pem", self.trusted.read_bytes(), mode=0o644)
        return certificate, key

    def all(self) -> list[Issued]:
        """Authorities first, then what they have issued and is kept here."""
        if not self.exists:
            return []
        signed = sorted(file for file in self.folder.glob("*/*.pem") if file.name != "ca.pem")
        authorities = [Issued(None, "authority", each, self.trusted) for each in all_facts(self.trusted.read_bytes())]
        return authorities + [Issued(file.parent.name, file.stem, facts(file.read_bytes()), file) for file in signed]

    def _authority(self) -> Pair:
        if not self.exists:
            raise ConfigurationError(
                f"there is no authority in {self.folder}", hint="fairlead certs init, or fairlead up --tls"
            )
        try:
            return load(self._certificate, self._key)
        except CertificateError as error:
            hint = f"restore the folder from a copy, or forget it and all certificates: rm -r {self.folder}"
            raise CertificateError(f"the authority is damaged: {error.what}", hint=hint) from None

    def _names(self, certificate: Path) -> tuple[str, ...]:
        return facts(certificate.read_bytes()).names if certificate.exists() else ()

    def _write_authority(self, pair: Pair) -> None:
        write_file(self._certificate, pair.certificate)
        write_file(self._key, pair.key)  # last: without it there is no authority

    @staticmethod
    def _write(pair: Pair, certificate: Path, key: Path) -> None:
        write_file(key, pair.key)
        write_file(certificate, pair.certificate, mode=0o644)


def site_names(site: str, service: str) -> list[str]:
    """The names by which a site's server on this machine, or in a container network, may be called."""
    return ["127.0.0.1", "::1", "localhost", site, f"{service}.{site}", f"{site}-{service}"]
