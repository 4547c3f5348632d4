"""The machine that the tests run on is looked at, and the command says what was found."""

from __future__ import annotations

import datetime as dt
import json
import os
import socket
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fairlead import cli
from fairlead.doctor import examine, limits, probe, surroundings
from fairlead.doctor.model import Finding, Needs, Verdict, as_data, worst
from fairlead.errors import ExitCode, UnavailableError
from fairlead.local import ports
from fairlead.local.state import SiteState, State, TlsFiles, write_state

NAMES = "python java mosquitto jars docker,open files,memory maps,memory,disk,ports,clock,letters,paths,certificates"
ALL = [*NAMES.partition(",")[0].split(), *NAMES.split(",")[1:]]


def certificate(days: int) -> bytes:
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    now = dt.datetime.now(dt.UTC)
    built = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    built = built.not_valid_before(now).not_valid_after(now + dt.timedelta(days=days))
    return built.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def site(*brokers: int, mqtt: int = 23_003) -> SiteState:
    first, *more = brokers or (23_001,)
    return SiteState(
        kafka_port=first,
        controller_port=first + 1,
        mqtt_port=mqtt,
        cluster_id="x",
        more_brokers=tuple((port, port + 1) for port in more),
    )


def test_every_check_is_made_in_a_folder_that_is_not_there(tmp_path: Path) -> None:
    needed = examine.needs("minimal", tmp_path / "not/there", ("a", "b"))
    assert (needed.brokers, needed.stopped, needed.logs) == (2, 2, examine.USUAL_LOGS)
    findings = list(examine.examine(needed, tmp_path / "not/there", foreign=("hull",)))
    assert [each.name for each in findings] == ALL
    assert not list(tmp_path.iterdir()), "nothing is left behind"
    assert all(each.found and each.needed and each.why for each in findings)
    assert not [each.name for each in findings if each.verdict is Verdict.FAILED and not each.todo]


def test_a_topology_needs_what_its_sites_have(tmp_path: Path) -> None:
    write_state(tmp_path / "state.json", State(sites={"tokyo": site(23_001, 23_011, 23_021), "old": site()}))
    data = tmp_path / "sites/tokyo/kafka-2/data"
    for number in range(1_200):
        (data / f"containers.BIGU{number:07}-0").mkdir(parents=True)
    needed = examine.needs("t", tmp_path, ("tokyo", "sydney"))
    assert needed == Needs("t", ("tokyo", "sydney"), brokers=4, stopped=4, logs=1_200)
    assert examine.needs("t", tmp_path, ("tokyo",), logs=7).logs == 7


def test_who_holds_a_port_that_a_site_had_is_told(tmp_path: Path) -> None:
    with socket.create_server((ports.HOST, 0)) as server:
        port = server.getsockname()[1]
        taken, free = probe.port_facts(tmp_path, {"tokyo": site(mqtt=port)}, 3)
    assert free == 3
    assert f"(pid {os.getpid()})" in taken[f"tokyo's Mosquitto, {port}"]


def test_a_file_of_tomorrow_says_that_the_clock_was_set_back(tmp_path: Path) -> None:
    assert probe.clock(tmp_path, ()).ahead == 0
    (tmp_path / "state.json").touch()
    tomorrow = dt.datetime.now(dt.UTC).timestamp() + 86_400
    os.utime(tmp_path / "state.json", (tomorrow, tomorrow))
    assert surroundings.clock(probe.clock(tmp_path, ())).verdict is Verdict.FAILED


def test_the_disk_is_tried_and_left_as_it_was(tmp_path: Path) -> None:
    found = probe.disk(tmp_path / "a/b")
    assert found.sync_ms is not None and found.sync_ms > 0 and found.free > 0 and found.kind
    assert not list(tmp_path.iterdir())


def test_a_disk_that_takes_no_files_is_a_failure() -> None:
    found = probe.disk(Path("/proc/self"))
    assert found.sync_ms is None
    assert limits.disk(found, Needs("t", (), 1, 1, 1)).verdict is Verdict.FAILED


def test_certificates_are_found_and_read(tmp_path: Path) -> None:
    (tmp_path / "certs/tokyo").mkdir(parents=True)
    (tmp_path / "certs/ca.pem").write_bytes(certificate(900) + certificate(90))
    (tmp_path / "certs/tokyo/kafka.pem").write_bytes(b"nothing of the kind")
    first, second = probe.certificates(tmp_path, {})
    assert first.file.endswith("ca.pem") and first.expires is not None
    assert 88 < (first.expires - dt.datetime.now(dt.UTC)).days < 91  # the one that ends first counts
    assert second.file.endswith("kafka.pem") and second.expires is None and second.error


def test_packages_are_those_of_the_metadata() -> None:
    found, pinned = probe.packages()
    assert pinned["confluent-kafka"] == found["confluent-kafka"]
    assert "altair" in found and "altair" not in pinned  # its "6.2.*" is no version
    assert "pytest" not in found


def test_in_a_container_its_limit_of_memory_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"memory.max": 512 << 20, "memory.current": 112 << 20}
    monkeypatch.setattr(probe, "_number", lambda file: given.get(file.name))
    assert probe.memory() == (400 << 20, 512 << 20)
    given.clear()  # "max", or no such file
    assert probe.memory()[1] > 512 << 20


def test_jars_that_are_missing_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLEAD_CACHE", str(tmp_path / "cache"))
    missing, total, store, writable = probe.jars()
    assert sum(map(len, missing.values())) == total > 40 and writable
    assert store == str(tmp_path / "cache/jars") and not (tmp_path / "cache").exists()


def findings(*verdicts: Verdict) -> list[Finding]:
    return [Finding(f"check {verdict}", verdict, "[found]", "needed", "why", "what to do") for verdict in verdicts]


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ((), ExitCode.OK),
        ((Verdict.OK, Verdict.NOTE), ExitCode.OK),
        ((Verdict.WARNING, Verdict.OK), ExitCode.OK),
        ((Verdict.FAILED, Verdict.WARNING), ExitCode.FAILED),
    ],
)
def test_only_failures_end_the_command_with_1(
    verdicts: tuple[Verdict, ...],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    monkeypatch.setattr("fairlead.commands.doctor.examine", lambda *_, **__: iter(findings(*verdicts)))
    assert cli.run(["doctor", "-t", "minimal"]) == code
    shown = capsys.readouterr().out
    assert "2 sites, 2 brokers of 1,000 logs" in shown
    assert shown.count("what to do:") == sum(each in (Verdict.WARNING, Verdict.FAILED) for each in verdicts)
    assert shown.count("[found]") == len(verdicts)  # not taken for markup
    assert cli.run(["doctor", "-t", "minimal", "--json"]) == code
    data = json.loads(capsys.readouterr().out)
    assert data["verdict"] == str(worst(findings(*verdicts)))
    assert [each["verdict"] for each in data["checks"]] == [str(each) for each in verdicts]


def test_json_has_what_is_needed() -> None:
    data = as_data(Needs("t", ("a",), 3, 3, 20), findings(Verdict.NOTE))
    assert data["needs"] == {"sites": ["a"], "brokers": 3, "logs_per_broker": 20}
    assert data["checks"][0]["todo"] == "what to do" and data["verdict"] == "note"


def test_download_fetches_what_is_missing_or_says_why_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLEAD_CACHE", str(tmp_path / "cache"))
    needed, asked = Needs("t", (), 1, 1, 1), list[str]()

    def jars(*, download: bool) -> Finding:
        found = examine.examine(needed, tmp_path, download=download)
        return next(each for each in found if each.name == "jars")

    def refuse(name: str) -> None:
        asked.append(name)
        raise UnavailableError("the host was not found", hint="check the network")

    monkeypatch.setattr(examine, "ensure_jars", refuse)
    assert jars(download=False).verdict is Verdict.WARNING and not asked
    failed = jars(download=True)
    assert failed.verdict is Verdict.FAILED and asked == ["kafka"]
    assert failed.found.endswith("the host was not found") and failed.todo == "check the network"
    monkeypatch.setattr(examine, "ensure_jars", asked.append)
    jars(download=True)
    assert asked == ["kafka", *probe.JAR_SETS]


def test_certificates_that_operators_gave_are_looked_at_too(tmp_path: Path) -> None:
    (tmp_path / "own.pem").write_bytes(certificate(10))
    tls = TlsFiles(ca="own.pem", certificate=str(tmp_path / "absent.pem"), issued=False)
    found = probe.certificates(tmp_path, {"tokyo": site().model_copy(update={"tls": tls})})
    assert [Path(each.file).name for each in found] == ["absent.pem", "own.pem"]
    assert found[0].expires is None and found[1].expires is not None
