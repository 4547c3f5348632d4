"""Every link operation: what it writes and where, when it is refused, and that its plan describes its actions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import ConfigurationError, ExitCode, RefusedError, UnavailableError, UnknownNameError
from fairlead.kafka.protocol.errors import ConnectionLost
from replication.operations.links.access import open_access
from replication.operations.links.facts import LinkOperation, LinkScope, find_link, gather_facts, may_have
from replication.operations.links.plan import LinkPlan, build_plan, merge_plans
from replication.operations.links.report import list_links
from replication.operations.links.steps import LinkRun, WriteLinkOrders, carry_out, describe
from replication.overrides import ORDERS_TOPIC, Override, OverrideKind
from tests.support.kafka.fake_broker import running as fake_brokers
from tests.support.kafka.fake_log import batch
from tests.support.replication.sites_in_memory import TP, FakeSites
from topologies.model import Topology

FREE = "orders.europe"
TROUBLE = {"state": "diverged", "cause": "two batches", "since": "x", "link": None, "what_to_do": "compare"}


def world(**changes: Any) -> Topology:
    """Return a topology: west and east linked both ways, far linked from west only; logs of people, of sites, of
    boxes."""
    return Topology.model_validate(
        {
            "name": "w",
            "sites": {name: {"kind": "port", "unlocode": f"DEX{name[:2].upper()}"} for name in ("west", "east", "far")},
            "streams": {"orders": {}, "metrics": {}, "boxes": {"insert_point": "moves", "owners": ["BIGU"]}},
            "links": [
                {"from": "west", "to": "east", "both": True, "streams": {"orders": "all", "boxes": "all"}},
                {"from": "west", "to": "far", "streams": {"orders": "all", "metrics": ["a*"]}},
            ],
            **changes,
        }
    )


def ground(topology: Topology | None = None, end: int = 20, **changes: Any) -> FakeSites:
    """Return cluster access with three partitions of one log, the same at all sites."""
    logs = {TP(FREE, n): end + n for n in range(3)} | {TP("boxes.BIGU1234560"): 5, TP("orders.east"): 5}
    topology = topology or world()
    return FakeSites(topology, {site: dict(logs) for site in topology.sites}, **changes)


async def plan_of(
    verb: LinkOperation,
    on: FakeSites,
    scope: LinkScope,
    link: str = "west->east",
    every: bool = False,
    reason: str = "",
) -> LinkPlan:
    chosen = find_link(on.topology, link)
    facts = await gather_facts(
        verb, on.topology, chosen, scope, on, by="ann", reason=reason, every=every, patience=0.05
    )
    return build_plan(verb, facts, settle=0.01)


async def do(verb: LinkOperation, on: FakeSites, scope: LinkScope, link: str = "west->east", **more: Any) -> LinkRun:
    return await carry_out(await plan_of(verb, on, scope, link, **more), LinkRun(on, wait=0.3))


async def refused(verb: LinkOperation, on: FakeSites, scope: LinkScope, link: str = "west->east") -> RefusedError:
    """Return the error of a plan that must be refused, and check that nothing was written."""
    with pytest.raises(RefusedError) as caught:
        await plan_of(verb, on, scope, link)
    assert caught.value.exit_code == ExitCode.REFUSED
    assert caught.value.hint
    return caught.value


def kinds(on: FakeSites, site: str) -> list[tuple[OverrideKind, str | None, int | None]]:
    return [(each.kind, each.log, each.stop) for each in on.history.get(site, ())]


# --- names


@pytest.mark.parametrize(
    ("name", "source", "target", "found"),
    [
        ("west->east", None, None, "west->east"),
        (" west→far ", None, None, "west->far"),
        (None, "east", "west", "east->west"),
    ],
)
def test_a_link_is_found_by_its_name_or_its_sites(
    name: str | None, source: str | None, target: str | None, found: str
) -> None:
    """A link is found by its name or by its two sites."""
    assert find_link(world(), name, source, target).name == found


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("west->esat",), "'west->east'"),
        ((None, "wset", "east"), "'west'"),
        ((None, "far", "west"), "west->far"),
        ((None,), "--from and --to"),
        (("west->east", "west", "east"), "give LINK"),
    ],
)
def test_an_unknown_link_comes_with_the_nearest(arguments: tuple[str | None, ...], hint: str) -> None:
    """The error about an unknown link suggests the most similar one."""
    with pytest.raises(ConfigurationError) as caught:
        find_link(world(), *arguments)
    assert hint in caught.value.hint


def test_two_links_between_two_sites_are_told_apart() -> None:
    """Two links between the same sites have different names."""
    links = [{"from": "west", "to": "east", "streams": {"orders": "all"}, "when": w} for w in ("always", "berthed")]
    sites = {
        "west": {"kind": "ship", "imo": "9074729"},
        "east": {"kind": "port", "unlocode": "DEHAM"},
        "far": {"kind": "hq"},
    }
    topology = world(links=links, sites=sites)
    with pytest.raises(ConfigurationError, match="2 links") as caught:
        find_link(topology, None, "west", "east")
    assert "west->east, west->east:berthed" in caught.value.hint
    assert find_link(topology, "west->east:berthed").when == "berthed"


@pytest.mark.parametrize(
    ("scope", "error", "said"),
    [
        (LinkScope("order"), UnknownNameError, "orders"),
        (LinkScope("metrics"), UnknownNameError, "on link west->east"),
        (LinkScope(log="oders.x"), UnknownNameError, "orders"),
        (LinkScope(log="nodots"), UnknownNameError, "nodots"),
        (LinkScope(log=f"{FREE}/1"), ConfigurationError, FREE),
        (LinkScope("orders", FREE), ConfigurationError, "--stream or --topic"),
    ],
)
async def test_what_a_link_cannot_have_is_said(scope: LinkScope, error: type[Exception], said: str) -> None:
    """A scope that the link cannot have is an error that says so."""
    for verb in LinkOperation:
        with pytest.raises(error) as caught:
            await plan_of(verb, ground(), scope)
        assert said in str(caught.value)


def test_which_links_a_scope_concerns() -> None:
    """A scope selects the links that may carry it."""
    links = {link.name: link for link in world().directed_links()}
    assert {name for name, link in links.items() if may_have(link, LinkScope("metrics"))} == {"west->far"}
    assert {name for name, link in links.items() if may_have(link, LinkScope(log="metrics.b"))} == set()
    assert {name for name, link in links.items() if may_have(link, LinkScope(log="metrics.ab"))} == {"west->far"}
    assert {name for name, link in links.items() if may_have(link, LinkScope())} == set(links)


# --- pause and resume

SCOPES = [LinkScope(), LinkScope("orders"), LinkScope(log=FREE)]


@pytest.mark.parametrize("scope", SCOPES, ids=str)
async def test_pause_and_resume_are_orders_at_the_target(scope: LinkScope) -> None:
    """Pause and resume are orders written at the target."""
    on = ground()
    await do(LinkOperation.PAUSE, on, scope, reason="storm")
    (order,) = on.history["east"]
    assert (order.kind, order.link, order.stream, order.log) == (
        OverrideKind.PAUSE,
        "west->east",
        scope.stream,
        scope.log,
    )
    assert (order.by, order.reason) == ("ann", "storm")
    again = await plan_of(LinkOperation.PAUSE, on, scope)
    assert again.is_empty and "paused already, by ann" in again.notes[0] and "storm" in again.notes[0]
    await do(LinkOperation.RESUME, on, scope)
    assert list((await on.orders("east")).pauses()) == []
    assert (await plan_of(LinkOperation.RESUME, on, scope)).is_empty
    assert "west" not in on.history


@pytest.mark.parametrize("wider", [LinkScope(), LinkScope("orders")], ids=str)
async def test_a_part_is_not_resumed_while_the_whole_is_paused(wider: LinkScope) -> None:
    """A part cannot be resumed while the whole is paused."""
    on = ground()
    await do(LinkOperation.PAUSE, on, wider)
    error = await refused(LinkOperation.RESUME, on, LinkScope(log=FREE))
    assert "paused only as part of" in error.what
    assert error.hint.startswith("fairlead link resume 'west->east'" + (" --stream orders" if wider.stream else ""))
    await do(LinkOperation.PAUSE, on, LinkScope(log=FREE))
    note = (await plan_of(LinkOperation.RESUME, on, LinkScope(log=FREE))).notes[0]
    assert "stays paused as part of" in note


async def test_resuming_the_whole_tells_what_stays_paused_and_all_ends_everything() -> None:
    """Resuming the whole lists the parts that stay paused; ``--all`` resumes everything."""
    on = ground()
    for scope in SCOPES:
        await do(LinkOperation.PAUSE, on, scope)
    notes = (await plan_of(LinkOperation.RESUME, on, LinkScope())).notes
    assert [note.split(" stays")[0] for note in notes] == [
        "stream orders on link west->east",
        f"log {FREE} on link west->east",
    ]
    on.history["east"].append(Override(OverrideKind.PAUSE, on.history["east"][0].at, "bob"))
    await do(LinkOperation.RESUME, on, LinkScope(), every=True)
    assert list((await on.orders("east")).pauses()) == []


async def test_a_pause_for_every_link_is_ended_by_a_resume_of_all() -> None:
    """A pause of every link ends with a resume of all."""
    on = ground()
    on.history["east"] = [Override(OverrideKind.PAUSE, (await a_time(on)), "bob")]
    error = await refused(LinkOperation.RESUME, on, LinkScope())
    assert error.hint == "fairlead link resume --all"


async def a_time(on: FakeSites) -> Any:
    plan = await plan_of(LinkOperation.PAUSE, on, LinkScope())
    return next(step for step in plan.steps if isinstance(step, WriteLinkOrders)).orders[0].at


async def test_plans_of_several_links_write_once_per_site() -> None:
    """A plan for several links writes one order per site."""
    on = ground()
    plans = [await plan_of(LinkOperation.PAUSE, on, LinkScope(), link.name) for link in on.topology.directed_links()]
    whole = merge_plans(plans)
    written = [step for step in whole.steps if isinstance(step, WriteLinkOrders)]
    assert sorted(step.site for step in written) == ["east", "far", "west"]
    await carry_out(whole, LinkRun(on, wait=0.3))
    state = {each["link"]: each["state"] for each in await list_links(on.topology, on)}
    assert set(state.values()) == {"paused"}


@pytest.mark.parametrize("verb", [LinkOperation.PAUSE, LinkOperation.RESUME])
async def test_a_log_that_the_link_does_not_carry_is_refused(verb: LinkOperation) -> None:
    error = await refused(verb, ground(), LinkScope(log="metrics.b"), "west->far")
    assert "does not carry it" in error.what


async def test_without_a_replicator_the_order_waits_for_it() -> None:
    """Without a running replicator, the order is written and waits for it."""
    on = ground(stopped={"east"})
    outcome = await do(LinkOperation.PAUSE, on, LinkScope())
    assert outcome.pending == ["east"]
    assert "acted on when it starts" in outcome.done[-1]


async def test_a_replicator_that_does_not_act_is_told() -> None:
    """A replicator that does not act on the order is reported."""
    on = ground(deaf={"east"})
    with pytest.raises(UnavailableError, match="has not acted on it") as caught:
        await do(LinkOperation.PAUSE, on, LinkScope())
    assert caught.value.fields["written"] == 1


async def test_a_site_that_is_away_gets_no_order() -> None:
    """A site that does not answer gets no order."""
    for verb in LinkOperation:
        with pytest.raises(ConnectionLost, match="east does not answer"):
            await plan_of(verb, ground(away={"east"}), LinkScope(log=FREE))


# --- promote


@pytest.mark.parametrize("scope", [LinkScope(log=FREE)], ids=str)
async def test_promote_releases_every_partition_with_its_end(scope: LinkScope) -> None:
    """A promotion releases every partition with its end offset."""
    on = ground()
    outcome = await do(LinkOperation.PROMOTE, on, scope)
    assert kinds(on, "east") == [(OverrideKind.PROMOTE, str(TP(FREE, n)), 20 + n) for n in range(3)]
    assert "west" not in on.history
    assert outcome.pending == []
    assert (await on.orders("east")).released(f"{FREE}/2") is not None
    again = await plan_of(LinkOperation.PROMOTE, on, scope)
    assert again.is_empty and "written at east already: promote by ann" in again.notes[0]


async def test_a_stream_is_promoted_as_a_whole_or_not_at_all() -> None:
    """A stream is promoted as a whole or not at all."""
    on = ground()
    error = await refused(LinkOperation.PROMOTE, on, LinkScope("orders"))
    assert "orders.east: because of its name only east may ever write to it" in error.what
    for logs in on.logs.values():
        del logs[TP("orders.east")]
        logs[TP("orders.asia")] = 7
    await do(LinkOperation.PROMOTE, on, LinkScope("orders"))
    assert [log for _, log, _ in kinds(on, "east")] == ["orders.asia", FREE, f"{FREE}/1", f"{FREE}/2"]


@pytest.mark.parametrize(
    "verb", [LinkOperation.PROMOTE, LinkOperation.FAILOVER, LinkOperation.REVERSE, LinkOperation.RESTORE]
)
@pytest.mark.parametrize(
    ("log", "link", "why", "hint"),
    [
        ("boxes.BIGU1234560", "west->east", "moves with the container", "custody grant"),
        ("orders.east", "west->far", "only east may ever write", "log of your own site"),
        ("orders.far.cpu", "west->far", "only far may ever write", "log of your own site"),
        ("metrics.b", "west->far", "does not carry it", "links that carry it: none"),
    ],
)
async def test_logs_that_nobody_may_move_are_refused(
    verb: LinkOperation, log: str, link: str, why: str, hint: str
) -> None:
    """Logs that no operator may promote are refused, with the reason."""
    on = ground()
    for logs in on.logs.values():
        logs[TP(log)] = 5
    error = await refused(verb, on, LinkScope(log=log), link)
    assert why in error.what and hint in error.hint
    assert error.fields["refused"][0]["log"] == log


@pytest.mark.parametrize(
    "verb", [LinkOperation.PROMOTE, LinkOperation.FAILOVER, LinkOperation.REVERSE, LinkOperation.RESTORE]
)
async def test_a_log_that_is_nowhere_is_refused(verb: LinkOperation) -> None:
    """A log that exists nowhere is refused."""
    error = await refused(verb, ground(), LinkScope(log="orders.nowhere"))
    assert "no such log" in error.what


@pytest.mark.parametrize("verb", [LinkOperation.PROMOTE, LinkOperation.REVERSE])
async def test_nothing_is_promoted_while_something_is_missing(verb: LinkOperation) -> None:
    """Nothing is promoted while records are missing."""
    on = ground()
    on.logs["east"][TP(FREE, 1)] -= 4
    error = await refused(verb, on, LinkScope(log=FREE))
    assert f"{FREE}/1 by 4" in error.what and "stop its writers" in error.hint
    on.logs["east"][TP(FREE, 1)] += 9
    assert "5 more records" in (await refused(verb, on, LinkScope(log=FREE))).what
    on = ground()
    del on.logs["west"][TP(FREE, 2)]
    assert "fewer partitions" in (await refused(verb, on, LinkScope(log=FREE))).what
    on.logs["west"].clear()
    assert "does not have it" in (await refused(verb, on, LinkScope(log=FREE))).what


@pytest.mark.parametrize("verb", [LinkOperation.PROMOTE, LinkOperation.REVERSE])
async def test_a_record_on_its_way_is_waited_for(verb: LinkOperation) -> None:
    """A record that is still being copied is waited for."""
    on = ground()
    on.logs["east"][TP(FREE)] -= 1
    asked = 0

    def arrives(site: str) -> None:
        nonlocal asked
        asked += 1
        if asked == 3:
            on.logs["east"][TP(FREE)] += 1

    on.before = arrives
    chosen = find_link(on.topology, "west->east")
    facts = await gather_facts(verb, on.topology, chosen, LinkScope(log=FREE), on, by="ann", patience=5)
    assert not build_plan(verb, facts).is_empty


@pytest.mark.parametrize("verb", [LinkOperation.PROMOTE, LinkOperation.REVERSE, LinkOperation.RESTORE])
async def test_the_source_must_be_there(verb: LinkOperation) -> None:
    """A promotion needs the source to answer."""
    on = ground()
    await do(LinkOperation.FAILOVER, on, LinkScope(log=FREE))
    if verb is not LinkOperation.RESTORE:
        on.history.clear()
    on.away.add("west")
    error = await refused(verb, on, LinkScope(log=FREE))
    assert "west cannot be reached" in error.what
    assert ("failover" in error.hint) == (verb is LinkOperation.PROMOTE)


@pytest.mark.parametrize(
    ("verb", "site"),
    [(LinkOperation.PROMOTE, "east"), (LinkOperation.REVERSE, "east"), (LinkOperation.REVERSE, "west")],
)
async def test_the_replicators_must_run(verb: LinkOperation, site: str) -> None:
    """A promotion needs running replicators."""
    error = await refused(verb, ground(stopped={site}), LinkScope(log=FREE))
    assert f"no replicator of {site} runs" in error.what
    assert f"fairlead replicate --site {site}" in error.hint


@pytest.mark.parametrize("verb", [LinkOperation.PROMOTE, LinkOperation.REVERSE])
async def test_a_log_in_trouble_is_not_promoted(verb: LinkOperation) -> None:
    on = ground(troubles={"east": {f"{FREE}/2": TROUBLE}})
    error = await refused(verb, on, LinkScope(log=FREE))
    assert "diverged at east: two batches" in error.what
    assert error.hint == f"fairlead link resolve {FREE}/2 --site east"
    on.troubles = {"east": {"orders.other": TROUBLE, FREE: {**TROUBLE, "state": "paused"}}}
    assert not (await plan_of(verb, on, LinkScope(log=FREE))).is_empty


async def test_a_writer_that_goes_on_is_noticed_before_anything_is_written() -> None:
    """A writer that still writes at the source is noticed before anything is written."""
    on = ground()
    plan = await plan_of(LinkOperation.PROMOTE, on, LinkScope(log=FREE))
    on.logs["west"][TP(FREE)] += 1
    with pytest.raises(RefusedError, match=r"still written: its end at west went from 20 to 21"):
        await carry_out(plan, LinkRun(on, wait=0.3))
    assert on.history == {}


@pytest.mark.parametrize("trouble", ["written", "away"])
async def test_what_comes_while_the_order_is_acted_on_takes_it_back(trouble: str) -> None:
    """A record that arrives while the order takes effect makes the operation take the order back."""
    on = ground()
    plan = await plan_of(LinkOperation.PROMOTE, on, LinkScope(log=FREE))

    def meanwhile(site: str) -> None:
        if trouble == "written":
            on.logs["west"][TP(FREE)] += 1
        else:
            on.away.add("west")

    on.on_append = meanwhile
    with pytest.raises(RefusedError, match="it was undone"):
        await carry_out(plan, LinkRun(on, wait=0.3))
    assert kinds(on, "east")[-1] == (OverrideKind.RESTORE, FREE, None)
    assert (await on.orders("east")).released(FREE) is None


async def test_what_the_source_itself_may_lack_is_noted() -> None:
    """The plan notes records that the source itself may lack."""
    notes = (await plan_of(LinkOperation.PROMOTE, ground(), LinkScope(log=FREE), "west->far")).notes
    assert notes == ("west may itself copy it from another site, over east->west; that site is not checked",)
    notes = (await plan_of(LinkOperation.PROMOTE, ground(), LinkScope(log=FREE))).notes
    assert notes == ("east->west then copies new records from east to west",)


# --- failover


async def test_failover_needs_no_source_and_tells_what_may_be_missing() -> None:
    """A failover needs no source, and reports what may be missing."""
    on = ground(away={"west"})
    outcome = await do(LinkOperation.FAILOVER, on, LinkScope(log=FREE))
    assert kinds(on, "east") == [(OverrideKind.FAILOVER, str(TP(FREE, n)), 20 + n) for n in range(3)]
    assert f"{FREE}/1 ends at 21: west may have records from offset 21 on that east lacks" in outcome.done


async def test_failover_with_the_source_there_tells_exactly_what_is_missing() -> None:
    """A failover with a source that answers reports exactly what is missing."""
    on = ground(troubles={"east": {FREE: TROUBLE}})
    on.logs["west"][TP(FREE)] += 3
    plan = await plan_of(LinkOperation.FAILOVER, on, LinkScope(log=FREE))
    assert any("diverged" in note for note in plan.notes)
    outcome = await carry_out(plan, LinkRun(on, wait=0.3))
    assert f"{FREE} ends at 20: west has offsets 20 to 22, which east lacks" in outcome.done
    assert f"{FREE}/1 ends at 21: east has every record of west" in outcome.done


async def test_what_landed_before_the_fence_is_there_and_nothing_lands_after_it() -> None:
    """The fence ends replication: records stored before it stay, and none is stored after it."""
    on = ground()
    plan = await plan_of(LinkOperation.FAILOVER, on, LinkScope(log=FREE))
    on.logs["east"][TP(FREE)] += 3
    outcome = await carry_out(plan, LinkRun(on, wait=0.3))
    assert f"{FREE} ends at 23: east has every record of west" in outcome.done
    [(_, fenced)] = on.fences.pop("east")
    assert fenced == {TP(FREE): 23, TP(FREE, 1): 21, TP(FREE, 2): 22}
    assert on.fences == {}, "the source may be written still"


async def test_a_replicator_that_sleeps_is_shut_out_though_it_shows_nothing() -> None:
    """A suspended replicator is fenced off, although it reports nothing."""
    on = ground(deaf={"east"})
    for verb in (LinkOperation.FAILOVER, LinkOperation.PROMOTE):
        with pytest.raises(UnavailableError, match="has not acted on it"):
            await carry_out(await plan_of(verb, on, LinkScope(log=FREE)), LinkRun(on, wait=0.3))
        assert len(on.fences.pop("east")) == 1
        assert on.fences == {}
        on.history.clear()
        on.logs["west"] = dict(on.logs["east"])


async def test_a_promotion_puts_the_same_filler_at_both_ends() -> None:
    """A promotion writes the same filler at both ends.

    So it can be taken back while nothing else is written here, whatever is written at the source.
    """
    on = ground()
    await do(LinkOperation.PROMOTE, on, LinkScope(log=FREE))
    assert on.fences["west"] == on.fences["east"]
    on.logs["west"][TP(FREE)] += 5
    assert not (await plan_of(LinkOperation.RESTORE, on, LinkScope(log=FREE))).is_empty


async def test_a_source_that_is_a_copy_itself_gets_no_filler() -> None:
    """A source that is a copy itself gets no filler."""
    on = ground()
    await do(LinkOperation.PROMOTE, on, LinkScope(log=FREE), "west->far")
    assert on.fences.keys() == {"far"}


async def test_a_record_that_comes_just_before_the_sources_filler_takes_the_promotion_back() -> None:
    """A record stored just before the source's filler makes the promotion take itself back."""
    on = ground()
    plan = await plan_of(LinkOperation.PROMOTE, on, LinkScope(log=FREE))
    fence = on.fence

    async def late(site: str, logs: Sequence[TP], time_ms: int) -> dict[TP, int]:
        if site == "west":
            on.logs["west"][TP(FREE, 1)] += 1
        return await fence(site, logs, time_ms)

    on.fence = late  # type: ignore[method-assign]
    with pytest.raises(RefusedError, match=r"records came to orders.europe/1 at west \(21 to 22\).*it was undone"):
        await carry_out(plan, LinkRun(on, wait=0.3))
    assert on.fences.keys() == {"west"}, "what is followed again must take appends"
    assert (await on.orders("east")).released(FREE) is None


async def test_failover_works_without_a_replicator() -> None:
    outcome = await do(LinkOperation.FAILOVER, ground(stopped={"east"}), LinkScope(log=FREE))
    assert outcome.pending == ["east"]


async def test_nothing_cannot_be_failed_over() -> None:
    """A log without a copy here cannot be failed over."""
    on = ground()
    on.logs["east"].clear()
    assert "east has no copy of it" in (await refused(LinkOperation.FAILOVER, on, LinkScope(log=FREE))).what


# --- reverse and restore


async def test_reverse_promotes_at_the_target_and_restores_at_the_source() -> None:
    """A reversal promotes the log at the target and restores replication at the source."""
    on = ground()
    outcome = await do(LinkOperation.REVERSE, on, LinkScope(log=FREE))
    assert [kind for kind, _, _ in kinds(on, "east")] == [OverrideKind.PROMOTE] * 3
    assert kinds(on, "west") == [(OverrideKind.RESTORE, FREE, None)]
    assert outcome.done[-1] == "west follows over east->west"
    for logs in on.logs.values():
        logs[TP(FREE)] = 99
    await do(LinkOperation.REVERSE, on, LinkScope(log=FREE), "east->west")
    assert (await on.orders("east")).released(FREE) is None
    assert (await on.orders("west")).released(FREE) is not None


async def test_what_was_promoted_before_is_only_followed_from_the_other_side() -> None:
    """A log that was promoted before is only followed from the other side."""
    on = ground()
    await do(LinkOperation.PROMOTE, on, LinkScope(log=FREE))
    on.logs["east"][TP(FREE)] += 5
    await do(LinkOperation.REVERSE, on, LinkScope(log=FREE))
    assert len(kinds(on, "east")) == 3
    assert kinds(on, "west") == [(OverrideKind.RESTORE, FREE, None)]
    on.logs["west"][TP(FREE)] += 9
    assert "west has 4 more records" in (await refused(LinkOperation.REVERSE, on, LinkScope(log=FREE))).what


async def test_reverse_needs_a_way_back() -> None:
    """A reversal needs a link in the other direction."""
    error = await refused(LinkOperation.REVERSE, ground(), LinkScope(log=FREE), "west->far")
    assert "no link from far to west carries it" in error.what and "both: true" in error.hint


async def test_reverse_needs_the_way_back_to_be_open() -> None:
    """A reversal needs the link in the other direction to be open."""
    on = ground()
    await do(LinkOperation.PAUSE, on, LinkScope("orders"), "east->west")
    error = await refused(LinkOperation.REVERSE, on, LinkScope(log=FREE))
    assert "stream orders on link east->west is paused" in error.what


async def test_reverse_tells_when_the_old_source_cannot_follow() -> None:
    """The plan of a reversal says if the old source cannot follow."""
    on = ground(troubles={"west": {FREE: TROUBLE}})
    with pytest.raises(UnavailableError, match=r"west does not follow over east->west: orders\.europe is diverged"):
        await do(LinkOperation.REVERSE, on, LinkScope(log=FREE))


async def test_restore_takes_a_release_back_unless_something_was_written_here() -> None:
    """Restoring takes a release back, unless something was written here since."""
    on = ground()
    assert (await plan_of(LinkOperation.RESTORE, on, LinkScope(log=FREE))).is_empty
    await do(LinkOperation.PROMOTE, on, LinkScope(log=FREE))
    on.logs["east"][TP(FREE, 1)] += 1
    error = await refused(LinkOperation.RESTORE, on, LinkScope(log=FREE))
    assert "ends at 23, there at 22" in error.what and "reverse" in error.hint
    on.logs["west"][TP(FREE, 1)] += 7
    await do(LinkOperation.RESTORE, on, LinkScope(log=FREE))
    assert (await on.orders("east")).released(f"{FREE}/1") is None


# --- plans


@pytest.mark.parametrize("verb", list(LinkOperation))
async def test_a_plan_says_what_it_does(verb: LinkOperation) -> None:
    """A plan describes its steps."""
    on = ground()
    if verb is LinkOperation.RESUME:
        await do(LinkOperation.PAUSE, on, LinkScope(log=FREE))
    if verb is LinkOperation.RESTORE:
        await do(LinkOperation.PROMOTE, on, LinkScope(log=FREE))
    before = {site: len(orders) for site, orders in on.history.items()}
    plan = await plan_of(verb, on, LinkScope(log=FREE))
    text = "\n".join(line for line, _ in plan.lines())
    assert {site: len(orders) for site, orders in on.history.items()} == before  # making a plan writes nothing
    await carry_out(plan, LinkRun(on, wait=0.3))
    for site, orders in on.history.items():
        for order in orders[before.get(site, 0) :]:
            assert describe(order) in text and f"fairlead.orders at {site}" in text
    body = plan.to_builtins()
    assert body["plan"] == plan.identity and body["verb"] == verb
    names = [type(step).__name__ for step in plan.steps]
    assert [step["step"] for step in body["steps"]] == [
        name.replace("WriteLinkOrders", "WriteOrders") for name in names
    ]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=30))
def test_many_logs_are_counted_not_listed(ends: list[int]) -> None:
    """Many logs are counted, not listed."""
    topology = world()
    logs = {TP(f"orders.log-{n}"): end for n, end in enumerate(ends)}
    on = FakeSites(topology, {site: dict(logs) for site in topology.sites})
    plan = asyncio.run(plan_of(LinkOperation.FAILOVER, on, LinkScope("orders")))
    lines = [line for line, _ in plan.lines()]
    assert sum("failover log" in line for line in lines) == min(len(ends), 10)
    assert any(f"and {len(ends) - 10} more" in line for line in lines) == (len(ends) > 10)


# --- list


async def test_the_list_tells_state_pauses_and_trouble() -> None:
    """The list of links shows state, pauses and trouble."""
    on = ground(
        stopped={"far"}, away={"far"}, troubles={"east": {FREE: TROUBLE, "orders.x": {**TROUBLE, "link": "other"}}}
    )
    await do(LinkOperation.PAUSE, on, LinkScope("orders"))
    await do(LinkOperation.FAILOVER, on, LinkScope(log=FREE))
    found = {each["link"]: each for each in await list_links(on.topology, on)}
    east, far = found["west->east"], found["west->far"]
    assert (east["state"], east["lag"], east["in_trouble"], east["released"]) == ("mirroring", 0, {"diverged": 1}, 3)
    assert east["paused"] is None and east["parts_paused"][0]["stream"] == "orders"
    assert (far["state"], far["lag"], far["orders_error"]) == ("stopped", None, "far does not answer")
    assert far["policy"]["streams"] == {"orders": "all", "metrics": ["a*"]}


@pytest.mark.parametrize("damaged_at", [16, -1], ids=["header", "records"])
async def test_damaged_orders_refuse_every_command_that_needs_them(damaged_at: int, tmp_path: Path) -> None:
    """Nobody knows which orders are in force, so the command says what is damaged, where, and what to do."""
    async with fake_brokers() as fake:
        stored = fake.log(ORDERS_TOPIC)
        stored.append(batch(0))
        header, data = stored.batches[0]
        damaged = bytearray(data)
        damaged[damaged_at] ^= 0x7F
        stored.batches[0] = header, bytes(damaged)
        async with open_access(lambda _site: fake.endpoint(), tmp_path) as access:
            with pytest.raises(RefusedError) as error:
                await access.orders("east")
    assert error.value.exit_code == ExitCode.REFUSED
    assert "east" in error.value.what and ORDERS_TOPIC in error.value.what
    assert "leader" in error.value.hint and ORDERS_TOPIC in error.value.hint
