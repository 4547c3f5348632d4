"""Under which licence each locked package and jar is, as an SPDX expression.

What says so itself in that form is believed. For the others a person has read the licence; a package that is new among
them stops the release until somebody has.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from fairlead.jars.lock import Jar
from tools.release.locks import Pin

_READ = {
    "altair": "BSD-3-Clause",
    "colorama": "BSD-3-Clause",
    "confluent-kafka": "Apache-2.0",
    "duckdb": "MIT",
    "geojson": "BSD-3-Clause",
    "jinja2": "BSD-3-Clause",
    "markdown-it-py": "MIT",
    "mdurl": "MIT",
    "pandas": "BSD-3-Clause",
    "protobuf": "BSD-3-Clause",
    "py4j": "BSD-3-Clause",
    "pyais": "MIT",
    "python-stdnum": "LGPL-2.1-or-later",
    "shellingham": "ISC",
    "uvloop": "Apache-2.0 OR MIT",
}
# By organisation, or organisation:name where the others of an organisation differ.
_READ_JARS = {
    "at.yawk.lz4": "Apache-2.0",
    "com.dynatrace.hash4j": "Apache-2.0",
    "com.fasterxml.jackson.core": "Apache-2.0",
    "com.fasterxml.jackson.dataformat": "Apache-2.0",
    "com.fasterxml.jackson.datatype": "Apache-2.0",
    "com.github.ben-manes.caffeine": "Apache-2.0",
    "com.github.luben": "BSD-2-Clause",
    "com.google.re2j": "BSD-3-Clause",
    "com.typesafe.scala-logging": "Apache-2.0",
    "com.yammer.metrics": "Apache-2.0",
    "commons-beanutils": "Apache-2.0",
    "commons-collections": "Apache-2.0",
    "commons-digester": "Apache-2.0",
    "commons-logging": "Apache-2.0",
    "commons-validator": "Apache-2.0",
    "io.delta": "Apache-2.0",
    "net.sf.jopt-simple": "MIT",
    "net.sourceforge.argparse4j": "MIT",
    "org.apache.kafka": "Apache-2.0",
    "org.apache.logging.log4j": "Apache-2.0",
    "org.bitbucket.b_c": "Apache-2.0",
    "org.hdrhistogram": "CC0-1.0 OR BSD-2-Clause",
    "org.jspecify": "Apache-2.0",
    "org.pcollections": "MIT",
    "org.scala-lang": "Apache-2.0",
    "org.slf4j": "MIT",
    "org.xerial.snappy": "Apache-2.0",
    "org.yaml": "Apache-2.0",
}
_SPDX = ("Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "LGPL-2.1-or-later", "MIT", "MPL-2.0", "PSF-2.0")
# How jars say it: in Bundle-License of the manifest, or in their POM.
_WORDS = {
    "Apache-2.0": r"apache",
    "MIT": r"\bmit\b",
    "BSD-2-Clause": r"bsd-2",
    "CC0-1.0": r"publicdomain/zero|cc0",
}
_TEXT = re.compile(r"(^|/)[^/]*(licen[cs]e|notice|copying)[^/]*$", re.IGNORECASE)


class UnknownLicenceError(Exception):
    """Nobody has read the licence of something that is locked."""


def of_package(pin: Pin) -> str:
    """The licence of a locked package, of this version or, where another is installed here, of that.

    Raises:
        UnknownLicenceError: it does not say it in SPDX, and nobody has read it.
    """
    if pin.name in _READ:
        return _READ[pin.name]
    try:
        about = metadata.metadata(pin.name)
    except metadata.PackageNotFoundError:
        raise UnknownLicenceError(f"{pin.name} is not installed: read its licence, add it to {__name__}") from None
    said = about["License-Expression"] or about["License"] or ""
    if about["License-Expression"] or said in _SPDX:
        return said
    raise UnknownLicenceError(f"{pin.name} {pin.version} says {said[:60]!r}: read its licence, add it to {__name__}")


def of_jar(jar: Jar) -> str:
    """The licence of a locked jar.

    Raises:
        UnknownLicenceError: nobody has read it.
    """
    for key in (f"{jar.organisation}:{jar.name}", jar.organisation):
        if key in _READ_JARS:
            return _READ_JARS[key]
    raise UnknownLicenceError(f"{jar.coordinates}: read its licence, add it to {__name__}")


def said_by_jar(file: Path) -> set[str]:
    """The licences that a jar itself names; empty when it names none."""
    with zipfile.ZipFile(file) as jar:
        manifest = re.sub(r"\r?\n ", "", jar.read("META-INF/MANIFEST.MF").decode())
        said = [line for line in manifest.splitlines() if line.startswith("Bundle-License:")]
        poms = [name for name in jar.namelist() if re.fullmatch(r"META-INF/maven/[^/]+/[^/]+/pom\.xml", name)]
        if len(poms) == 1:
            section = re.search(r"<licenses>.*?</licenses>", jar.read(poms[0]).decode(), re.DOTALL)
            said += [section[0]] if section else []
    return {spdx for spdx, words in _WORDS.items() if any(re.search(words, each.lower()) for each in said)}


def texts_of_package(name: str) -> Iterator[tuple[str, str]]:
    """The licences and notices that an installed package brings in its metadata: file and text."""
    try:
        files = metadata.files(name) or []
    except metadata.PackageNotFoundError:
        return
    for file in sorted(files, key=str):
        if ".dist-info/" in str(file) and (_TEXT.search(str(file)) or "/licenses/" in str(file)):
            yield str(file).partition(".dist-info/")[2], file.read_text(encoding="utf-8")


def texts_of_jar(file: Path) -> Iterator[tuple[str, str]]:
    """The licences and notices in a jar: name and text."""
    with zipfile.ZipFile(file) as jar:
        for name in sorted(jar.namelist()):
            if name.count("/") <= 1 and _TEXT.search(name) and not name.endswith(".class"):
                yield name, jar.read(name).decode("utf-8", errors="replace")
