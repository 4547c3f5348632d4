"""Errors carry what, hint and fields; the command line turns them into exit codes; secrets do not show."""

from __future__ import annotations

import importlib
import json
import pkgutil
from enum import StrEnum
from pathlib import Path

import pytest
from pydantic import SecretStr

import acl
import board
import edge
import fairlead
import notify
import replication
import shore
import simulators
import topologies
from fairlead.cli.console import emit, show_error
from fairlead.errors import (
    ConfigurationError,
    ExitCode,
    FairleadError,
    RefusedError,
    UnavailableError,
    UnconfirmedError,
    UnknownNameError,
    first_line,
)
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.errors import broker_error


def test_unknown_name_suggests_the_nearest() -> None:
    error = UnknownNameError("site", "tokio", ["tokyo", "sydney"])
    assert error.fields["nearest"] == "tokyo"
    assert "did you mean 'tokyo'" in str(error)
    assert "sydney" in str(error)
    assert error.exit_code == ExitCode.CONFIG


def test_a_name_of_an_enumeration_is_suggested_as_it_is_written() -> None:
    class Colour(StrEnum):
        RED = "RED"

    error = UnknownNameError("colour", "REED", Colour)
    assert error.hint == "did you mean 'RED'? valid: RED"


def test_unknown_name_without_anything_near() -> None:
    assert UnknownNameError("site", "qqq", ["tokyo"]).fields["nearest"] is None
    assert "(none)" in UnknownNameError("site", "qqq", []).hint


def test_the_first_line_of_an_error_is_never_empty() -> None:
    assert first_line(ValueError("one\ntwo")) == "one"
    assert first_line(TimeoutError()) == first_line(TimeoutError("\n")) == "TimeoutError"


@pytest.mark.parametrize(
    ("kind", "retriable", "code"),
    [
        (FairleadError, False, ExitCode.FAILED),
        (ConfigurationError, False, ExitCode.CONFIG),
        (UnavailableError, True, ExitCode.UNAVAILABLE),
        (RefusedError, False, ExitCode.REFUSED),
    ],
)
def test_policy_stands_on_the_class(kind: type[FairleadError], retriable: bool, code: int) -> None:
    assert (kind("x").retriable, kind("x").exit_code) == (retriable, code)


def every_error() -> list[type[FairleadError]]:
    """Every class of error of the packages that commands use."""
    for package in (acl, board, edge, fairlead, notify, replication, shore, simulators, topologies):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name.endswith("errors") or module.name.startswith("fairlead.cli.commands"):
                importlib.import_module(module.name)
    found = [FairleadError]
    for kind in found:
        found += kind.__subclasses__()
    return sorted(set(found), key=lambda kind: (kind.__module__, kind.__name__))


@pytest.mark.parametrize("kind", every_error(), ids=lambda kind: kind.__name__)
def test_an_exit_code_says_what_its_table_promises(kind: type[FairleadError]) -> None:
    """Codes of docs/cli.md: 4 may be retried, 5 must not be, 2 and 3 mean that nothing was started or changed."""
    if kind.retriable:
        assert kind.exit_code == ExitCode.UNAVAILABLE
    if issubclass(kind, RefusedError):
        assert kind.exit_code == ExitCode.REFUSED
    assert issubclass(kind, ConfigurationError | UnconfirmedError) == (
        kind.exit_code in (ExitCode.USAGE, ExitCode.CONFIG)
    )


@pytest.mark.parametrize("code", [29, 30, 31, 53, 65])
def test_what_a_broker_does_not_authorise_is_refused(code: int) -> None:
    error = broker_error(code)
    assert (error.exit_code, error.retriable) == (ExitCode.REFUSED, False), error


def test_errors_print_what_and_hint_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    error = UnavailableError("the broker [tokyo] is away", hint="start it", site="tokyo")
    show_error(error)
    text = capsys.readouterr().err
    assert "the broker [tokyo] is away" in text
    assert "start it" in text
    show_error(error, as_json=True)
    body = json.loads(capsys.readouterr().err)
    assert body["fields"] == {"site": "tokyo"}
    assert body["retriable"] is True


def test_answers_go_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    emit({"path": Path("x")}, as_json=True, render=lambda: None)
    assert json.loads(capsys.readouterr().out) == {"path": "x"}
    rendered: list[int] = []
    emit({}, as_json=False, render=lambda: rendered.append(1))
    assert rendered == [1]


def test_a_password_shows_nowhere_but_in_the_client_settings() -> None:
    endpoint = KafkaEndpoint("tokyo", (("127.0.0.1", 9092),), user="bridge", password=SecretStr("hush"))
    assert "hush" not in repr(endpoint)
    assert "hush" not in str(endpoint)
    assert endpoint.librdkafka()["sasl.password"] == "hush"
    assert endpoint.security_protocol == "SASL_PLAINTEXT"
