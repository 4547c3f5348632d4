"""Choose a local site's certificates before it starts, and check that its clients will accept them.

Imports ``cryptography`` late, because most sites have no TLS and every command about sites imports this module.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from fairlead.certs.trust import KeyPair
from fairlead.local import ports
from fairlead.local.state import TlsFiles


class OwnCertificate(NamedTuple):
    """PEM files of a site's certificate that Fairlead did not issue. ``ca`` has the authorities that clients trust."""

    certificate: Path
    key: Path
    ca: Path


Wanted = bool | OwnCertificate | None
"""The TLS that a site gets. True: certificates of the state folder's authority. False: no TLS. None: as before."""


def decide(folder: Path, site: str, wanted: Wanted, before: TlsFiles | None, *, running: bool) -> TlsFiles | None:
    """Return the certificate files of a site; None without TLS. Issue certificates that are missing or expire soon.

    Args:
        folder: The state folder.
        running: Whether the site's servers run. If so, nothing is issued: ``fairlead certs renew`` does that.

    Raises:
        CertificateError, TrustError: clients would not trust the certificate.
    """
    if wanted is False or (wanted is None and before is None):
        return None
    from fairlead.certs.facts import check_accepted
    from fairlead.local.certificates import SERVICES

    if isinstance(wanted, OwnCertificate):
        certificate, key, ca = (str(path.resolve()) for path in wanted)
        files = TlsFiles(certificate=certificate, key=key, ca=ca, issued=False)
    elif wanted is None and before is not None and not before.issued:
        files = before
    else:
        files = _issued(folder, site, running=running)
    if not (running and files.issued):  # an operator may have replaced the files
        for service in SERVICES:
            check_accepted(*paths(folder, site, files, service), folder / files.ca, site=site, address=ports.HOST)
    return files


def paths(folder: Path, site: str, files: TlsFiles, service: str) -> tuple[Path, Path]:
    """Return the paths of the certificate and the key of a site's service."""
    from fairlead.local.certificates import Certificates

    if files.issued:
        return Certificates(folder).site_files(site, service)
    return folder / files.certificate, folder / files.key


def read(folder: Path, site: str, files: TlsFiles, service: str) -> tuple[KeyPair, bytes]:
    """Return a server's certificate and key, and the authorities that its clients trust.

    Raises:
        CertificateError: a file is missing or damaged.
    """
    from fairlead.certs.facts import load

    return load(*paths(folder, site, files, service)), (folder / files.ca).read_bytes()


def _issued(folder: Path, site: str, *, running: bool) -> TlsFiles:
    from fairlead.local.certificates import Certificates

    certificates = Certificates(folder)
    if not certificates.exists:
        certificates.found(folder.name)
    if not running and certificates.due(site):
        certificates.issue_site(site)
    return TlsFiles(ca=str(certificates.trusted.relative_to(folder)), issued=True)
