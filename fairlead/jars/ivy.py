"""Download Java artifacts with the Ivy that pyspark ships. Ivy knows the address of Maven Central."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from xml.sax.saxutils import quoteattr

from fairlead.errors import UnavailableError
from fairlead.jars.java import find_java
from fairlead.jars.lock import Jar

_SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true"{use_poms}/></resolvers>
</ivysettings>
"""
_MODULE = """<ivy-module version="2.0">
  <info organisation="fairlead" module="jars"/>
  <configurations><conf name="jars"/></configurations>
  <dependencies>
{dependencies}
  </dependencies>
</ivy-module>
"""
_TIMEOUT = 900  # seconds; 44 MB took 15 s, but some connections are slow
# Error patterns, the most specific first: Ivy says "module not found" whatever the cause is.
_TROUBLES = tuple(re.compile(words) for words in (r"Exception|rror at url", r"^Host .* not found", r"not found"))
_UNTRUSTED = "PKIX path building failed"


def retrieve(jars: Iterable[Jar], folder: Path, *, transitive: bool = False) -> dict[Path, Jar]:
    """Download jars into ``folder``, which must exist and be used by this call only.

    Args:
        jars: The jars to fetch. Their SHA-256 is not checked here: the caller verifies.
        folder: Receives the jars, and Ivy's own files beside them.
        transitive: Also fetch their dependencies, by their POMs (slow; only to make a lock file).

    Returns:
        The downloaded files and the artifact that each one is (without SHA-256).

    Raises:
        UnavailableError: no Java, no network, or an artifact does not exist.
    """
    wanted = sorted(jars)
    settings, module, out = folder / "ivysettings.xml", folder / "ivy.xml", folder / "out"
    settings.write_text(_SETTINGS.format(use_poms="" if transitive else ' usepoms="false"'), encoding="utf-8")
    lines = (
        f"    <dependency org={quoteattr(jar.organisation)} name={quoteattr(jar.name)} rev={quoteattr(jar.revision)} "
        f'transitive="{str(transitive).lower()}" conf="jars->default"/>'
        for jar in wanted
    )
    module.write_text(_MODULE.format(dependencies="\n".join(lines)), encoding="utf-8")
    command = [str(find_java()), *_proxy_options(), "-jar", str(ivy_jar())]
    command += ["-settings", str(settings), "-ivy", str(module), "-cache", str(folder / "cache")]
    command += ["-types", "jar", "bundle", "-retrieve", f"{out}/[organisation]/[artifact]/[revision].[ext]"]
    try:
        # S603: the program is the Java that was found, the arguments are ours.
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)  # noqa: S603
    except subprocess.TimeoutExpired as error:
        raise _failed(wanted, f"the download took longer than {_TIMEOUT} s") from error
    if done.returncode:
        raise _failed(wanted, _reason(done.stdout + done.stderr))
    files = sorted(out.glob("*/*/*.jar"))
    return {file: Jar(file.parent.parent.name, file.parent.name, file.stem) for file in files}


def ivy_jar() -> Path:
    """Return the Ivy jar inside the installed pyspark, without importing pyspark."""
    spec = importlib.util.find_spec("pyspark")
    found = sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar")) if spec and spec.origin else []
    if not found:
        raise UnavailableError("pyspark is not installed, and jars are fetched with the Ivy inside it", hint="run make")
    return found[-1]


def _proxy_options() -> list[str]:
    """Return Java's proxy options: Java ignores ``https_proxy``; Python reads it, and the system's setting on macOS."""
    options: list[str] = []
    for scheme, url in urllib.request.getproxies().items():
        proxy = urllib.parse.urlsplit(url if "//" in url else f"//{url}")
        if scheme in ("http", "https") and proxy.hostname:
            options += [f"-D{scheme}.proxyHost={proxy.hostname}", f"-D{scheme}.proxyPort={proxy.port or 80}"]
    return options


def _reason(output: str) -> str:
    """Return the line of Ivy's output that explains the failure best."""
    lines = [line.strip(" \t:-|") for line in output.splitlines()]
    for trouble in _TROUBLES:
        for line in lines:
            if trouble.search(line):
                return line
    return next((line for line in reversed(lines) if line), "Ivy said nothing")


def _failed(jars: list[Jar], reason: str) -> UnavailableError:
    hint = "check the network (and https_proxy, if there is one), then run the same command again"
    if _UNTRUSTED in reason:
        hint = "Java does not trust this network's certificate authority: add it to the system's (Debian: put it into "
        hint += "/usr/local/share/ca-certificates and run update-ca-certificates) or to Java's with keytool"
    return UnavailableError(
        f"could not download {len(jars)} Java artifacts (first: {jars[0].coordinates}): {reason}",
        hint=hint,
        jars=[jar.coordinates for jar in jars],
    )
