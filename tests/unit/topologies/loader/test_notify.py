"""Mistakes in a topology's routes of notifications, and where a route's secret comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import topologies
from acl.compile import compile_site
from acl.rules import Operation, Resource
from edge.alerts.engine import default_rules
from edge.alerts.site_alerts import KIND
from edge.alerts.site_alerts import KINDS as SITE_KINDS
from fairlead.local.registry import LocalSiteRegistry
from fairlead.records.alert import KINDS, NOT_HEARD
from tests.support.topologies.examples import RIGHT, mistakes_of
from topologies.endpoints import EndpointResolver
from topologies.loader.load import read
from topologies.users import NOTIFY, Role, service_users

HOOK = "{webhook: 'https://receiver.example/hook'}"


def routed(route: str, at: str = "tokyo") -> str:
    return f"{RIGHT}notify: {{at: {at}, routes: {{office: {route}}}}}\n"


def test_a_route_with_all_its_fields_is_right() -> None:
    made = read(
        routed(
            "{to: 'mailtos://u:{secret}@mail.example:587/?to=a@b.example', ports: [tokyo, duck-star], "
            "streams: [yellow], customers: [ducks], kinds: [TEMPERATURE], severity: ALARM, changes: [opened], "
            "quiet: {from: '22:00', until: '06:00', zone: Asia/Tokyo, critical: false}}"
        ),
        "small.yaml",
        env={},
    )
    assert made.notify is not None and made.notify.routes["office"].quiet is not None


@pytest.mark.parametrize(
    ("route", "path", "near"),
    [
        (f"{{to: {HOOK}, ports: [tokio]}}", "ports[0]", "tokyo"),
        (f"{{to: {HOOK}, streams: [yelow]}}", "streams[0]", "yellow"),
        (f"{{to: {HOOK}, streams: [alerts]}}", "streams[0]", None),
        (f"{{to: {HOOK}, customers: [duck]}}", "customers[0]", "ducks"),
        (f"{{to: {HOOK}, kinds: [TEMPERATUR]}}", "kinds[0]", "TEMPERATURE"),
        (f"{{to: {HOOK}, severity: ALARMS}}", "severity", "ALARM"),
        (f"{{to: {HOOK}, changes: []}}", "changes", None),
        (f"{{to: {HOOK}, quiet: {{from: '22:00', until: '22:00', zone: Asia/Tokyo}}}}", "quiet", None),
        (f"{{to: {HOOK}, quiet: {{from: 22:00, until: '06:00', zone: Asia/Tokyo}}}}", "quiet.from", None),
        (f"{{to: {HOOK}, quiet: {{from: '22:00', until: '06:00', zone: Tokyo}}}}", "quiet.zone", None),
        ("{to: {webhook: 'http://receiver.example/'}}", "to", None),
        ("{to: {webhook: 'https://u:pass-word@receiver.example/'}}", "to", None),
        ("{to: 'mailtos://u:pass-word@mail.example/?to=a@b.example'}", "to", None),
        ("{to: office@port.example}", "to", None),
    ],
)
def test_mistakes_in_a_route(route: str, path: str, near: str | None) -> None:
    found = mistakes_of(routed(route), env={})
    assert [(each.path.removeprefix("notify.routes.office."), each.nearest) for each in found] == [(path, near)] or (
        path == "to" and {each.path.removeprefix("notify.routes.office.").partition(".")[0] for each in found} == {"to"}
    )
    assert "pass-word" not in "".join(f"{each.problem}{each.expected}{each.excerpt}" for each in found)


def test_the_example_of_the_docs_is_right_for_big_blue() -> None:
    root = Path(topologies.__file__).parents[1]
    page = (root / "docs/notify.md").read_text(encoding="utf-8")
    example = page.partition("```yaml\n")[2].partition("```")[0]
    made = read((root / "topologies/big-blue.yaml").read_text(encoding="utf-8") + "\n" + example, "b.yaml", env={})
    assert made.notify is not None and set(made.notify.routes) == {"singapore-office", "fleet", "ducks"}


def test_notifications_are_sent_where_alerts_are() -> None:
    (unknown,) = mistakes_of(routed(f"{{to: {HOOK}}}", at="tokio"), env={})
    (customers,) = mistakes_of(routed(f"{{to: {HOOK}}}", at="shop"), env={})
    assert (unknown.nearest, customers.path) == ("tokyo", "notify.at")


def test_the_kinds_that_a_topology_may_name_are_those_that_bridges_raise() -> None:
    assert set(KINDS) == {*(rule.kind for rule in default_rules()), *SITE_KINDS, KIND, NOT_HEARD}


def test_the_user_of_notifications_reads_alerts_and_bookings_and_commits_its_groups() -> None:
    small = read(routed(f"{{to: {HOOK}}}"), "small.yaml", env={})
    assert service_users(small, "tokyo")[NOTIFY].role is Role.NOTIFY
    assert all(NOTIFY not in service_users(small, site) for site in small.sites if site != "tokyo")
    rules = {(rule.resource, rule.name, rule.operation) for rule in compile_site(small, "tokyo") if rule.user == NOTIFY}
    assert rules == {
        (Resource.TOPIC, "alerts.", Operation.READ),
        (Resource.TOPIC, "bookings.", Operation.READ),
        (Resource.GROUP, "fairlead.notify.", Operation.READ),
    }


def test_a_secret_comes_from_the_environment_or_a_file_and_the_next_one_counts(tmp_path: Path) -> None:
    small = read(routed(f"{{to: {HOOK}}}"), "small.yaml", env={})
    folder = tmp_path / "secrets"
    folder.mkdir()

    def secret(**env: Any) -> str | None:
        resolver = EndpointResolver(small, LocalSiteRegistry(tmp_path), env=env)
        found = resolver.newest_secret("tokyo", "notify-office")
        return found.get_secret_value() if found else None

    assert secret() is None
    (folder / "tokyo.notify-office").write_text("of-the-file\n", encoding="utf-8")
    assert secret(FAIRLEAD_SECRETS=str(folder)) == "of-the-file"
    assert secret(FAIRLEAD_SECRETS=str(folder), FAIRLEAD_SECRET_TOKYO_NOTIFY_OFFICE="given") == "given"
    (folder / "tokyo.notify-office.next").write_text("next", encoding="utf-8")
    assert secret(FAIRLEAD_SECRETS=str(folder), FAIRLEAD_SECRET_TOKYO_NOTIFY_OFFICE="given") == "next"
