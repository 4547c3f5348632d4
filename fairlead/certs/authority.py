"""Create a certificate authority and the certificates that it signs: ECDSA P-256, PEM, keys as PKCS#8.

Nothing here touches the disk or the network.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import re
from collections.abc import Sequence
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fairlead.certs.trust import KeyPair
from fairlead.errors import ConfigurationError, OptionError

AUTHORITY_DAYS: Final = 3650
DAYS: Final = 365
_CLOCKS_DIFFER: Final = dt.timedelta(hours=1)
_LABEL: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)", re.IGNORECASE)


def new_authority(name: str) -> KeyPair:
    """Create an authority that can sign servers' certificates but no other authorities."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = (
        _begun(subject, subject, key.public_key(), AUTHORITY_DAYS, None)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(authority=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return KeyPair(made.public_bytes(serialization.Encoding.PEM), _pem(key))


def issue(
    authority: KeyPair, subject: str, names: Sequence[str], *, days: int = DAYS, now: dt.datetime | None = None
) -> KeyPair:
    """Issue a server's certificate for these host names and IP addresses, followed by the authority's certificate.

    Raises:
        ConfigurationError: ``names`` is empty, or has something that is neither a host name nor an IP address.
    """
    signer = x509.load_pem_x509_certificate(authority.certificate)
    signing = serialization.load_pem_private_key(authority.key, None)
    if not isinstance(signing, ec.EllipticCurvePrivateKey):
        raise ConfigurationError(
            "the authority's key is not an ECDSA key", hint="create an authority with 'fairlead certs init'"
        )
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject[:64])])
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]  # brokers are each other's clients
    made = (
        _begun(name, signer.subject, key.public_key(), days, now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternative_names(names)), critical=False)
        .add_extension(_issuer_id(signer), critical=False)
        .sign(signing, hashes.SHA256())
    )
    return KeyPair(made.public_bytes(serialization.Encoding.PEM) + authority.certificate, _pem(key))


def alternative_names(names: Sequence[str]) -> list[x509.GeneralName]:
    """Return the subject alternative names of a certificate, without repeats.

    Raises:
        ConfigurationError: ``names`` is empty, or has something that is neither a host name nor an IP address.
    """
    if not names:
        raise OptionError(
            "a certificate needs a name: clients compare it with the address that they connect to",
            hint="host names or IP addresses, as clients write them: --name kafka.tokyo.example --name 10.0.0.7",
        )
    return [_alternative(name) for name in dict.fromkeys(names)]


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    labels = name.removeprefix("*.").split(".")
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels) or labels[-1].isdigit():
        raise OptionError(
            f"{name!r} is neither a host name nor an IP address",
            hint="valid: kafka.tokyo.example, *.tokyo.example, 127.0.0.1, ::1; without a port and without https://",
            name=name,
        )
    return x509.DNSName(name)


def _issuer_id(signer: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    identity = signer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identity)


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int, now: dt.datetime | None
) -> x509.CertificateBuilder:
    since = now or dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(since - _CLOCKS_DIFFER)
        .not_valid_after(since + dt.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, authority: bool) -> x509.KeyUsage:
    """Return the key usage: signing certificates, or signing in TLS handshakes."""
    return x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
