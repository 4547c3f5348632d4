"""What the modules about certificates share. Light: whoever only passes these on does not load cryptography."""

from __future__ import annotations

from typing import Final, NamedTuple

SOON: Final = 30  # days before its end from which on a certificate is warned of


class KeyPair(NamedTuple):
    """A certificate and its private key, PEM. ``certificate`` may go on with those of the authorities above it.

    The key never shows in ``repr``.
    """

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return f"Pair({len(self.certificate)} bytes, key not shown)"
