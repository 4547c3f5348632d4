"""What a certificate says, as far as anybody has to act on it. Pure."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any, NamedTuple

from cryptography import x509

from fairlead.certs.model import SOON


class Facts(NamedTuple):
    """One certificate. ``names`` are the host names and addresses that it is for; an authority has none."""

    subject: str
    issuer: str
    names: tuple[str, ...]
    serial: str
    begins: dt.datetime
    expires: dt.datetime

    def days(self, now: dt.datetime | None = None) -> int:
        """Whole days until it expires; negative when it has."""
        return math.floor((self.expires - (now or dt.datetime.now(dt.UTC))) / dt.timedelta(days=1))

    def as_json(self, now: dt.datetime | None = None) -> dict[str, Any]:
        """The same for programs; ``warning`` is null, ``soon`` or ``expired``."""
        left = self.days(now)
        return {
            "subject": self.subject,
            "names": list(self.names),
            "issuer": self.issuer,
            "serial": self.serial,
            "begins": self.begins.isoformat(timespec="seconds"),
            "expires": self.expires.isoformat(timespec="seconds"),
            "days": left,
            "warning": "expired" if left < 0 else "soon" if left < SOON else None,
        }


def facts(certificate: bytes) -> Facts:
    """Of one certificate, PEM (the first of several) or DER.

    Raises:
        ValueError: it is none.
    """
    pem = certificate.lstrip().startswith(b"-----")
    read = x509.load_pem_x509_certificate(certificate) if pem else x509.load_der_x509_certificate(certificate)
    return _facts(read)


def all_facts(pem: bytes) -> list[Facts]:
    """Of each certificate of a PEM file, in its order.

    Raises:
        ValueError: there is none, or one is damaged.
    """
    return [_facts(each) for each in x509.load_pem_x509_certificates(pem)]


def _facts(read: x509.Certificate) -> Facts:
    return Facts(
        subject=read.subject.rfc4514_string(),
        issuer=read.issuer.rfc4514_string(),
        names=_names(read),
        serial=f"{read.serial_number:x}",
        begins=read.not_valid_before_utc,
        expires=read.not_valid_after_utc,
    )


def _names(read: x509.Certificate) -> tuple[str, ...]:
    try:
        found = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    hosts = found.get_values_for_type(x509.DNSName)
    return (*hosts, *(str(address) for address in found.get_values_for_type(x509.IPAddress)))
