"""Detours of links: where a replicator reaches its sources' brokers instead of where they are advertised.

For links through tunnels and proxies. The file is JSON, by target, source and advertised address::

    {"los-angeles": {"duck-star": {"10.0.0.7:9092": "127.0.0.1:40001"}}}
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from fairlead.endpoint import Address
from fairlead.errors import ConfigurationError
from topologies.values import parse_bootstrap

LINES: Final = "links.sock"
"""In the folder ``run`` of a topology's state: where a process that holds all these ways takes orders about them."""

Detours = Mapping[str, Mapping[str, tuple[tuple[Address, Address], ...]]]
"""By target and source: pairs for ``KafkaEndpoint.detours``."""

_FILE = TypeAdapter(dict[str, dict[str, dict[str, str]]])


def read_detours(file: Path) -> Detours:
    """Read such a file.

    Raises:
        ConfigurationError: it cannot be read, or is not of this form.
    """
    try:
        content = _FILE.validate_json(file.read_bytes())
        return {
            target: {
                source: tuple((_address(there), _address(instead)) for there, instead in ways.items())
                for source, ways in sources.items()
            }
            for target, sources in content.items()
        }
    except (OSError, ValueError) as error:
        why = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise ConfigurationError(
            f"the detours in {file} cannot be used: {why}",
            hint='JSON by target, source and address: {"tokyo": {"sydney": {"10.0.0.7:9092": "127.0.0.1:40001"}}}',
            file=str(file),
        ) from error


def write_detours(file: Path, detours: Detours) -> None:
    """Write such a file, for ``fairlead replicate --detours``."""
    content = {
        target: {source: {_text(there): _text(instead) for there, instead in ways} for source, ways in sources.items()}
        for target, sources in detours.items()
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(_FILE.dump_json(content, indent=2) + b"\n")


def _address(text: str) -> Address:
    addresses = parse_bootstrap(text)
    if len(addresses) != 1:
        raise ValueError(f"{text}: expected one address, host:port")
    return addresses[0]


def _text(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
