"""Board and notifications of a fleet in containers: people sign in over TLS, and both outlive their site's Kafka."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

import httpx
import pytest

from tests.containers.conftest import Project, until

pytestmark = [pytest.mark.containers, pytest.mark.timeout(1800)]


@pytest.fixture
def browser(project: Project) -> Iterator[httpx.Client]:
    trusted = ssl.create_default_context(cafile=str(project.folder / "certificates" / "ca.pem"))
    address = project.compose("port", "board", "8470").replace("127.0.0.1", "localhost")
    with httpx.Client(base_url=f"https://{address}", verify=trusted, timeout=60) as client:
        yield client


def signs_in(project: Project, browser: httpx.Client, name: str) -> bool:
    password = (project.folder / "secrets" / f"tokyo.{name}").read_text()
    form = {"name": name, "password": password, "next": "/"}
    answer = browser.post("/sign-in", data=form, headers={"Origin": str(browser.base_url).rstrip("/")})
    return answer.status_code == 303


def metric(project: Project, service: str, name: str) -> float:
    """The sum of a metric's values, as Prometheus reads them over the site's network."""
    ask = f"import urllib.request as u; print(u.urlopen('http://{service}:9404/metrics').read().decode())"
    page = project.compose("exec", "-T", "tokyo-bridge", "python", "-c", ask)
    return sum(
        float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith((f"{name}{{", f"{name} "))
    )


def test_people_sign_in_to_the_board(project: Project, browser: httpx.Client) -> None:
    assert browser.get("/healthz").status_code == 200
    assert browser.get("/healthz", headers={"Host": "other.example"}).status_code == 421
    assert signs_in(project, browser, "operator")
    page = browser.get("/")
    assert page.status_code == 200 and "MV Duck Star" in page.text
    assert metric(project, "board", "fairlead_board_sessions") == 1
    assert metric(project, "board", "fairlead_board_reads_logs") == 1
    assert "/local/" not in project.compose("logs", "board")  # no link that signs in stays in a log


def test_the_board_sees_that_services_in_other_containers_run(project: Project, browser: httpx.Client) -> None:
    assert signs_in(project, browser, "operator")
    until(lambda: browser.get("/").text.count(">runs<") >= 3, "bridges and replicators run")


def test_nobody_writes_outside_its_volumes(project: Project) -> None:
    for service in ("board", "notify"):
        tried = "import pathlib; pathlib.Path('/opt/fairlead/x').touch()"
        project.compose("exec", "-T", service, "python", "-c", tried, check=False)
        assert project.compose("exec", "-T", service, "sh", "-c", "test -e /opt/fairlead/x || echo none") == "none"


def test_both_outlive_the_kafka_of_their_site(project: Project) -> None:
    brokers = [host for site in project.fleet.sites if site.name == "tokyo" for host in site.brokers]
    assert metric(project, "notify", "fairlead_notify_failing") == 0
    for broker in brokers:
        project.kill(broker)
    until(lambda: metric(project, "board", "fairlead_board_reads_logs") == 0, "the board says that it reads no logs")
    project.healthy("notify")
    project.compose("start", *brokers)  # one alone has no quorum
    for broker in brokers:
        project.healthy(broker)
    until(lambda: metric(project, "board", "fairlead_board_reads_logs") == 1, "the board reads logs again")
    until(lambda: metric(project, "notify", "fairlead_notify_failing") == 0, "the route follows its logs")
    project.healthy("board")
    project.healthy("notify")
