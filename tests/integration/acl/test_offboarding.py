"""A customer that was removed from the topology is removed from real brokers: ACLs, quotas, password, share tokens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from acl.compile import SetQuota
from acl.history import QuotaChange, RulesChange, UserChange
from acl.kafka import AdminStore, Client, KafkaRules, read_history
from acl.plan import AccessRun, SitePlan, carry_out
from acl.rules import Binding, Operation, Pattern, Resource, Rule
from board.sharing.tokens import Tokens
from fairlead.errors import ConfigurationError, ExitCode, RefusedError
from fairlead.local.sites import SiteSpec
from tests.integration.acl.conftest import PORT, SHIP, Run, World, shows_quotas
from tests.support.logins import accepts
from tests.support.waits import until
from topologies.users import service_users

pytestmark = pytest.mark.integration

LEAVER = "leaver"
RULE = Binding.of(Rule(LEAVER, Resource.TOPIC, Pattern.LITERAL, f"feeds.{LEAVER}", Operation.READ))
QUOTA = SetQuota(LEAVER, "consumer_byte_rate", None, 1000.0)


@pytest.mark.long
def test_what_a_user_leaves_behind_is_taken_away(world: World, run: Run) -> None:
    """The ACLs, quotas and password of a removed user are deleted."""
    world.local.up([SiteSpec(PORT, (*service_users(world.topology, PORT), LEAVER))])
    before = world.kafka(PORT, LEAVER)
    assert accepts(before)
    with Client(world.kafka(PORT)) as client:
        store = AdminStore(client, local=True)
        carry_out(SitePlan(PORT, (RULE,), (), 0).steps, AccessRun(store))
        store.set_quotas([QUOTA])
        shows_quotas(world.kafka(PORT), lambda quotas: LEAVER in quotas)

    shares = Tokens(world.local.folder)
    token, other = shares.issue(LEAVER), shares.issue("ducks")

    shown = json.loads(run("acl", "offboard", LEAVER, "--dry-run", "--json").stdout)
    assert shown["share_tokens"] == [token.expires.isoformat()]
    assert shares.known(LEAVER) == (token.expires,)
    assert [(s["site"], len(s["rules"]), s["can_log_in"]) for s in shown["sites"]] == [
        (PORT, 1, True),
        (SHIP, 0, False),
    ]
    assert shown["sites"][0]["quotas"] == {"consumer_byte_rate": 1000.0}
    assert not shown["applied"] and accepts(before)

    done = run("acl", "offboard", LEAVER, "--yes")
    assert done.exit_code == ExitCode.OK and "Tokens of its share (Delta Sharing): 1" in done.stdout
    assert shares.recipient(token.token) is None and shares.recipient(other.token) is not None
    until(lambda: not accepts(before), "the broker's refusal of the password")
    shows_quotas(world.kafka(PORT), lambda quotas: LEAVER not in quotas)
    with Client(world.kafka(PORT)) as client:
        assert RULE not in KafkaRules(client).read()
    assert LEAVER not in Path(world.local.folder, "secrets.json").read_text(encoding="utf-8")
    noted = [
        entry for entry in read_history(world.kafka(PORT))[0] if isinstance(entry, UserChange) and entry.user == LEAVER
    ]
    assert [(entry.action, entry.phase) for entry in noted] == [("delete", "intent"), ("delete", "done")]
    entries = read_history(world.kafka(PORT))[0]
    assert [e for e in entries if isinstance(e, RulesChange) and RULE in e.remove]
    assert [e for e in entries if isinstance(e, QuotaChange) and e.quotas == {"consumer_byte_rate": None}]

    world.local.up([SiteSpec(PORT, tuple(service_users(world.topology, PORT)))])
    assert not accepts(before)  # ``fairlead up`` does not create it again
    left = json.loads(run("acl", "offboard", LEAVER, "--yes", "--json").stdout)
    assert not [site for site in left["sites"] if site["rules"] or site["can_log_in"]]


def test_who_is_still_needed_is_refused(world: World, run: Run) -> None:
    """A user that is still in the topology cannot be removed."""
    refused = run("acl", "offboard", "ducks", "--yes")
    assert isinstance(refused.exception, ConfigurationError) and "customers.ducks" in str(refused.exception)
    assert isinstance(run("acl", "offboard", "bridge", "--yes").exception, RefusedError)
    assert accepts(world.kafka(PORT, "ducks"))
