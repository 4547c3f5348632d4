"""The base class of every error that Fairlead raises on purpose.

The class has the policy, as in kafka-python's ``errors.py``: ``retriable`` means that the same call may succeed later
without any change, ``exit_code`` is the exit code of a command that ends with it. ``fields`` has the facts, for
programs; the text says what happened, why, and what to do. Neither ever contains a secret.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, ClassVar


class ExitCode:
    """Exit codes of the command line, documented in ``docs/cli.md``."""

    OK = 0
    FAILED = 1  # the work was done and its result is bad: a report line is false, logs differ; or it failed half-way
    USAGE = 2  # wrong options (the code typer itself uses)
    CONFIG = 3  # a topology, scenario, setting or file is wrong, or has nothing of that name
    UNAVAILABLE = 4  # a broker, site or tool could not be reached or started
    REFUSED = 5  # not authorised, or refused because it would be unsafe
    INTERRUPTED = 130  # Ctrl-C


class FairleadError(Exception):
    """Base of all errors raised on purpose.

    Args:
        what: What happened and why, one sentence.
        hint: What to do about it; shown on its own line by the command line.
        fields: Facts for programs, shown in ``--json`` output. Never put a secret here.
    """

    retriable: ClassVar[bool] = False
    exit_code: ClassVar[int] = ExitCode.FAILED

    def __init__(self, what: str, *, hint: str = "", **fields: Any) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint
        self.fields = fields

    def __str__(self) -> str:
        return f"{self.what}\n  what to do: {self.hint}" if self.hint else self.what


class ConfigurationError(FairleadError):
    """A topology, scenario, setting or file is wrong, or lacks what was named; nothing was started or changed."""

    exit_code = ExitCode.CONFIG


class OptionError(ConfigurationError):
    """An option or argument is missing, malformed, or excludes another, whatever the topology says.

    A malformed name of something that must be there (a site, a stream, a container) is a ``ConfigurationError``, as is
    any other name that nothing has.
    """

    exit_code = ExitCode.USAGE


class UnavailableError(FairleadError):
    """Something Fairlead needs is not there right now: a broker, a site, a tool, room on the disk."""

    retriable = True
    exit_code = ExitCode.UNAVAILABLE


class RefusedError(FairleadError):
    """Not authorised, or refused because it would be unsafe."""

    exit_code = ExitCode.REFUSED


class LoginRefusedError(RefusedError):
    """A broker refused user and password.

    A broker that has just started refuses every user for a moment, until it has read its users. So retry a login that
    was accepted before.
    """


class UnconfirmedError(FairleadError):
    """A command that changes something got neither ``--yes`` nor ``--dry-run``, and there is no terminal to ask at."""

    exit_code = ExitCode.USAGE


class UntrustedError(RefusedError):
    """No TLS with a server: its certificate has expired, is for other names, or is signed by an unknown authority."""


class UnknownNameError(ConfigurationError):
    """An unknown name; carries the valid names and the nearest one."""

    def __init__(self, kind: str, name: str, valid: Iterable[str]) -> None:
        known = sorted(map(str, valid))  # members of an enumeration too
        near = nearest(name, known)
        hint = f"did you mean {near!r}? " if near else ""
        super().__init__(
            f"there is no {kind} {name!r}",
            hint=f"{hint}valid: {', '.join(known) or '(none)'}",
            kind=kind,
            name=name,
            valid=known,
            nearest=near,
        )


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text; of one without any text its type."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def nearest(name: str, valid: Iterable[str]) -> str | None:
    """Return the valid name that is most like ``name``, or None when none is near enough to suggest."""
    found = difflib.get_close_matches(name, list(valid), n=1, cutoff=0.6)
    return found[0] if found else None
