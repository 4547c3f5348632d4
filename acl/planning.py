"""What one site would change: from topology and cluster to a plan, or to what is left of a saved one."""

from __future__ import annotations

from dataclasses import replace

from acl.binding import Binding
from acl.compile import compile_site
from acl.kafka import NotAuthorised, RuleStore
from acl.plan import SitePlan, diff, managed_by
from acl.quotas import SetQuota, compile_quotas, diff_quotas, managed_users
from acl.stale import Remaining, StalePlan, State, remaining
from topologies.model import Topology


def plan_site(topology: Topology, site: str, store: RuleStore, held: frozenset[Binding]) -> SitePlan:
    """What the site would change now. ``held`` are the rules that the cluster holds."""
    rules = diff(site, held, compile_site(topology, site), managed_by(topology, site))
    return replace(rules, quotas=_quotas(topology, site, store))


def left_to_do(
    topology: Topology, site: str, store: RuleStore, held: frozenset[Binding], planned: SitePlan | None
) -> Remaining:
    """What is left to do: of a saved plan, as long as it is still true, or of what would be planned now.

    Args:
        held: The rules that the cluster holds.

    Raises:
        StalePlan: the saved plan is no longer true at this site.
    """
    if planned is None:
        plan = plan_site(topology, site, store, held)
        return Remaining(plan, State.NEW, before=plan.keep + len(plan.remove))
    rules = remaining(planned, held, compile_site(topology, site), managed_by(topology, site))
    return _with_quotas(rules, _quotas(topology, site, store), planned)


def _quotas(topology: Topology, site: str, store: RuleStore) -> tuple[SetQuota, ...]:
    """What the site's quotas would change. Who may not read them, and wants none, is not told so."""
    desired = compile_quotas(topology, site)
    try:
        actual = store.read_quotas()
    except NotAuthorised:
        if desired:
            raise
        actual = {}
    return diff_quotas(actual, desired, managed_users(topology, site))


def _with_quotas(rules: Remaining, fresh: tuple[SetQuota, ...], planned: SitePlan) -> Remaining:
    """The rest of a saved plan with those of its quotas that are not set yet.

    Raises:
        StalePlan: something else would have to be set by now.
    """
    both = replace(rules, plan=replace(rules.plan, quotas=fresh))
    if not set(fresh) <= set(planned.quotas):
        raise StalePlan(
            f"client quotas at site {planned.site} are other ones by now than when the plan was made",
            hint="make another plan and look at it: fairlead acl plan --out",
            site=planned.site,
        )
    if fresh and rules.state is State.DONE:
        begun = planned.add or planned.remove or fresh != planned.quotas
        return replace(both, state=State.BEGUN if begun else State.NEW)
    return both
