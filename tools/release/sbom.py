"""The bill of materials: what runs Fairlead, in CycloneDX' JSON, which scanners for known faults read."""

from __future__ import annotations

import datetime as dt
import uuid

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import License
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

from fairlead.jars.lock import Jar
from tools.release import licences, locks, notices

VERSION = SchemaVersion.V1_6
_SPACE = uuid.UUID("6f1c1fb4-3a3b-5d0e-9a39-0d6a0a1f7c11")  # any; the same input gives the same serial number


def bom(version: str, pins: list[locks.Pin], commit: str, epoch: int) -> str:
    """The bill of one version as JSON; the same text for the same source.

    Args:
        commit: Of what source; part of the serial number.
        epoch: The date of the release, in seconds.
    """
    made = Bom(serial_number=uuid.uuid5(_SPACE, f"{version} {commit}"))
    made.metadata.timestamp = dt.datetime.fromtimestamp(epoch, dt.UTC)
    root = Component(
        name="fairlead",
        version=version,
        type=ComponentType.APPLICATION,
        bom_ref=f"pkg:pypi/fairlead@{version}",
        purl=PackageURL("pypi", None, "fairlead", version),
        licenses=_licences("Apache-2.0"),
    )
    made.metadata.component = root
    packages = {pin: _package(pin) for pin in pins}
    archives = [_archive(jar) for jar in notices.jars()]
    for component in (*packages.values(), *archives):
        made.components.add(component)
    askers: dict[str, list[Component]] = {"fairlead": [root]}
    for pin, component in packages.items():
        askers.setdefault(pin.name, []).append(component)
    # Every component has an entry, if an empty one: nothing is left open.
    needs: dict[Component, list[Component]] = {each: [] for each in (root, *packages.values(), *archives)}
    for pin, component in packages.items():
        for asker in pin.needed_by:
            for each in askers[asker]:
                needs[each].append(component)
    needs[root] += archives
    for component, needed in needs.items():
        made.register_dependency(component, needed)
    return make_outputter(made, OutputFormat.JSON, VERSION).output_as_string(indent=1) + "\n"


def mistakes(text: str) -> str:
    """What CycloneDX' own schema has against a bill; empty: nothing."""
    return str(JsonStrictValidator(VERSION).validate_str(text) or "")


def _package(pin: locks.Pin) -> Component:
    url = PackageURL("pypi", None, pin.name, pin.version)
    return Component(
        name=pin.name,
        version=pin.version,
        type=ComponentType.LIBRARY,
        bom_ref=url.to_string(),
        purl=url,
        licenses=_licences(licences.of_package(pin)),
        properties=[Property(name="fairlead:where", value=pin.marker)] if pin.marker else None,
    )


def _archive(jar: Jar) -> Component:
    url = PackageURL("maven", jar.organisation, jar.name, jar.revision)
    return Component(
        group=jar.organisation,
        name=jar.name,
        version=jar.revision,
        type=ComponentType.LIBRARY,
        bom_ref=url.to_string(),
        purl=url,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=jar.sha256)],
        licenses=_licences(licences.of_jar(jar)),
    )


def _licences(expression: str) -> list[License]:
    return [LicenseFactory().make_from_string(expression)]
