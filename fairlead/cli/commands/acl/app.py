"""``fairlead acl``: plan, apply and explain the ACLs of each site, find drift, show the history of changes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from acl.apply import SiteResult, apply_sites, check_complete, nothing_to_readmit, until_done
from acl.compile import all_left_out
from acl.explain import explain as explain_access
from acl.history import Change, DamagedEntry, Entry, QuotaChange, RulesChange, UserChange, changes
from acl.kafka import admin_stores, at_once, read_history
from acl.plan import AccessPlan, TooManyRemovals, check_removals, in_words, parse_share, plan_topology
from acl.rules import Operation
from acl.saved import PlanFileError, PlanState, SavedPlan, load, save
from acl.users import create_missing
from fairlead.cli.commands.acl.audit import audit
from fairlead.cli.commands.acl.users import offboard, rotate
from fairlead.cli.commands.context import (
    DryRunOption,
    JsonOption,
    SitesOption,
    TopologyOption,
    WaitOption,
    YesOption,
    site_option,
)
from fairlead.cli.console import Consent, console, emit, errors, print_plan
from fairlead.errors import ConfigurationError, ExitCode, FairleadError, UnknownNameError
from fairlead.plan import LineStyle, PlanLine
from topologies.context import DEFAULT_TOPOLOGY, Context, open_topology
from topologies.model import check_sites
from topologies.users import ADMIN


def print_access_plan(context: Context, plan: AccessPlan, sites: list[str] | None, on: Console = console) -> None:
    """Print a plan, the changes that it leaves out, and those that ``fairlead acl apply`` would refuse."""
    print_plan(plan.lines(), on)
    left_out = (
        note for name in check_sites(context.topology, sites or None) for note in all_left_out(context.topology, name)
    )
    for note in dict.fromkeys(left_out):
        on.print(f"[yellow]no rule for[/] {note.user}, {escape(note.where)}: {escape(note.why)}")
    for one in plan.sites:
        try:
            check_removals(one, one.keep + len(one.remove))
        except TooManyRemovals:
            on.print(
                f"[yellow]{one.site}: removes {len(one.remove)} of {one.keep + len(one.remove)} rules:[/] "
                "fairlead acl apply does that only with --allow-removals",
                soft_wrap=True,
            )
    for refused in plan.lockouts:
        on.print(
            f"[red]{refused.site}: refused:[/] after this plan {refused.why}; fairlead acl apply changes nothing "
            f"there ({refused.hint})",
            soft_wrap=True,
        )
    on.print(plan.totals())


def plan(
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    site: SitesOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Also write the plan to a file, for fairlead acl apply FILE.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show which ACLs each site would add and remove.

    Example: fairlead acl plan --out rules.plan
    """
    context = open_topology(topology)
    made = plan_topology(context.topology, admin_stores(context.resolver), site or None)

    def render() -> None:
        print_access_plan(context, made, site)
        if out:
            console.print(f"to do exactly this: fairlead acl apply {escape(str(out))}", soft_wrap=True)

    if out:
        save(made, out)
    emit(made.to_builtins(), as_json=as_json, render=render)
    if made.unread:
        raise typer.Exit(ExitCode.UNAVAILABLE)


def drift(topology: TopologyOption = DEFAULT_TOPOLOGY, site: SitesOption = None, as_json: JsonOption = False) -> None:
    """Find ACLs that are missing, or that someone else made.

    Ends with 1 when there are any, and with 4 when a site does not answer.

    Example: fairlead acl drift --json
    """
    context = open_topology(topology)
    found = plan_topology(context.topology, admin_stores(context.resolver), site or None)
    emit(
        {"drift": found.drifts, **found.to_builtins()},
        as_json=as_json,
        render=lambda: print_plan(found.drift_lines(), console),
    )
    if found.drifts:
        raise typer.Exit(ExitCode.FAILED)
    if found.unread:
        raise typer.Exit(ExitCode.UNAVAILABLE)


_STATES = {PlanState.NEW: "done", PlanState.BEGUN: "done, begun before", PlanState.DONE: "done before"}


def apply(
    plan: Annotated[
        Path | None,
        typer.Argument(
            metavar="[PLAN]",
            help='A file of "acl plan --out". It is applied exactly, or not at all where it is outdated.',
        ),
    ] = None,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    site: SitesOption = None,
    max_removals: Annotated[
        str,
        typer.Option(
            "--max-removals",
            help="Refuse to remove more than this share of a site's ACLs (and more than 10).",
            metavar="SHARE",
        ),
    ] = "30%",
    allow_removals: Annotated[
        bool, typer.Option("--allow-removals", help="Remove as many ACLs as the plan says.")
    ] = False,
    wait: WaitOption = 0.0,
    create_users: Annotated[
        bool,
        typer.Option(
            "--create-users",
            help="First create missing SCRAM users at sites outside this machine, "
            "with passwords from FAIRLEAD_SECRET_<SITE>_<USER>.",
        ),
    ] = False,
    readmit: Annotated[
        list[str] | None,
        typer.Option(
            "--readmit",
            metavar="USER",
            help="Restore the ACLs of a user that acl rotate --now shut out, after all brokers were restarted, which "
            "ends its old sessions; may be repeated.",
        ),
    ] = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Make each site's ACLs what the topology says.

    ACLs of users that Fairlead does not know are left alone. A site that does not answer is reported; the others are
    done. Applying twice changes nothing the second time.

    Without PLAN the ACLs are compared again when they are changed. To apply exactly what you reviewed, save it first:
    fairlead acl plan --out FILE.

    Example: fairlead acl apply rules.plan --wait 3600 --yes
    """
    consent = Consent(yes=yes, dry_run=dry_run, as_json=as_json)
    share = 1.0 if allow_removals else parse_share(max_removals)
    context = open_topology(topology)
    sites = check_sites(context.topology, site or None)
    saved = _load_plan(plan, context, site or ()) if plan else None
    outside = _outside(context, sites) if create_users else ()
    stores = admin_stores(context.resolver)
    if note := nothing_to_readmit(stores, sites, readmit or ()):
        errors.print(f"[yellow]{escape(note)}[/]", soft_wrap=True)

    @cache
    def todo() -> AccessPlan:
        return saved.content if saved else plan_topology(context.topology, stores, sites)

    def show_plan(on: Console) -> None:
        print_access_plan(context, todo(), site, on)
        for name in outside:
            on.print(f"{name}: make the SCRAM users that are missing")

    if saved and not as_json:
        errors.print(f"plan {saved.plan}, made {saved.made:%Y-%m-%d %H:%M} UTC by {escape(saved.by)}")
    if not consent.given(show_plan):
        body = {"applied": False, **todo().to_builtins(), "create_users": outside}
        emit(body, as_json=as_json, render=lambda: consent.unchanged(show_plan))
        if todo().unread:
            raise typer.Exit(ExitCode.UNAVAILABLE)
        return
    made: dict[str, tuple[str, ...]] = {}
    shown: dict[str, str] = {}

    def progress(name: str, text: str) -> None:
        if not as_json and shown.get(name) != text:  # show a site that does not answer only once
            shown[name] = text
            errors.print(f"{name}: {escape(text)}")

    def create(name: str) -> SiteResult | None:
        try:
            made[name] = create_missing(context.topology, context.resolver, name)
        except FairleadError as error:
            progress(name, error.what)
            return SiteResult(name, 0, 0, 0, 0, error)
        return None

    def work(some: Sequence[str]) -> Sequence[SiteResult]:
        missing = [name for name in some if name in outside and name not in made]
        failed = {result.site: result for result in at_once(create, missing) if result is not None}
        applied = apply_sites(
            context.topology,
            stores,
            [name for name in some if name not in failed],
            progress,
            saved=saved.content if saved else None,
            max_removals=share,
            readmit=readmit or (),
        )
        known = {**failed, **{result.site: result for result in applied}}
        return [known[name] for name in some if name in known]

    results = tuple(work(sites))
    if wait:
        told: set[tuple[str, ...]] = set()

        def waiting(away: tuple[str, ...]) -> None:
            if not as_json and away not in told:
                told.add(away)
                errors.print(f"waiting for {', '.join(away)}; after Ctrl-C, applying again does the rest")

        results = until_done(work, results, seconds=wait, on_waiting=waiting)
    _show_results(results, made, as_json=as_json)
    check_complete(results)


def _load_plan(file: Path, context: Context, sites: Sequence[str]) -> SavedPlan:
    saved = load(file, context.topology.name)
    known = [*(one.site for one in saved.sites), *(one.site for one in saved.unread)]
    if other := [site for site in sites if site not in known]:
        raise PlanFileError(
            f"plan {file} has nothing for {', '.join(other)}: it was made for {', '.join(known)}",
            hint="leave --site out, or make another plan: fairlead acl plan --out",
        )
    return saved


def _outside(context: Context, sites: Sequence[str]) -> tuple[str, ...]:
    outside = tuple(name for name in sites if not context.topology.sites[name].is_local)
    if not outside:
        raise ConfigurationError(
            "no site of this topology is outside this machine",
            hint="leave --create-users out: fairlead up makes users",
        )
    return outside


def _show_results(results: Sequence[SiteResult], made: dict[str, tuple[str, ...]], *, as_json: bool) -> None:
    def render() -> None:
        table = Table("site", "added", "removed", "kept", "left alone", "")
        for result in results:
            numbers = (result.added, result.removed, result.kept, result.left_alone)
            end = escape(result.error.what) if result.error else _STATES[result.state]
            end += f", but for {', '.join(result.suspended)} (suspended)" if result.suspended else ""
            table.add_row(result.site, *map(str, numbers), end)
        console.print(table)
        for name, users in made.items():
            console.print(f"{name}: users made: {', '.join(users) or 'none'}")

    body = [
        {
            **{name: getattr(result, name) for name in ("site", "added", "removed", "kept", "left_alone")},
            "state": result.state.value,
            "users_created": made.get(result.site, ()),
            "held_out": result.suspended,
            "error": result.error.what if result.error else None,
        }
        for result in results
    ]
    emit(body, as_json=as_json, render=render)


def explain(
    user: Annotated[str, typer.Argument(help="A customer, a user, or a service such as bridge.")],
    topic: Annotated[str, typer.Argument(help="A topic, for example feeds.ducks.")],
    operation: Annotated[str | None, typer.Argument(help="READ, WRITE, CREATE, … Default: READ and WRITE.")] = None,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    site: Annotated[str | None, site_option("Only this site.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show at which sites a user may read or write a topic, and why or why not.

    The answer follows from the topology; fairlead acl drift shows whether the clusters agree.

    Example: fairlead acl explain ducks feeds.ducks READ
    """
    context = open_topology(topology)
    answers = explain_access(context.topology, user, topic, _operation(operation), site)

    def render() -> None:
        shown: dict[tuple[tuple[str, ...], tuple[str, ...], str, bool], list[str]] = {}
        for answer in answers:
            generic = tuple(text.replace(f"site {answer.site}", "this site") for text in answer.because)
            shown.setdefault((answer.rules, generic, answer.operation, answer.allowed), []).append(answer.site)
        for (rules, because, what, allowed), sites in shown.items():
            verdict = "[green]may[/]" if allowed else "[red]may not[/]"
            console.print(f"{user} {verdict} {what} {escape(topic)} at {', '.join(sites)}")
            for text in because:
                console.print(f"    because {escape(text)}")
            for rule in rules:
                console.print(f"    by rule {escape(rule)}")

    emit(msgspec.to_builtins(answers), as_json=as_json, render=render)


def _operation(text: str | None) -> Operation | None:
    if text is None:
        return None
    try:
        return Operation(text.upper())
    except ValueError:
        raise UnknownNameError("operation", text, Operation) from None


def history(
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    site: SitesOption = None,
    last: Annotated[int, typer.Option("--last", help="Show this many changes; 0: all.", min=0)] = 20,
    rules: Annotated[bool, typer.Option("--rules", help="Also show which ACLs were added and removed.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show who changed access, when, by which plan, with which result; oldest first.

    Example: fairlead acl history --site tokyo --rules
    """
    context = open_topology(topology)
    entries: list[Entry] = []
    damaged: list[dict[str, Any]] = []
    away: list[str] = []
    sites = check_sites(context.topology, site or None)
    for name, answer in zip(sites, at_once(partial(_read_history, context), sites), strict=True):
        if isinstance(answer, FairleadError):
            away.append(name)
            errors.print(f"[yellow]{name}: not read, {escape(answer.what)}[/]")
            continue
        found, bad = answer
        entries += found
        damaged += [{"site": name, **msgspec.to_builtins(one)} for one in bad]
    every = changes(entries)
    chosen = every[-last:] if last else every
    body = {"changes": [_change_body(change) for change in chosen], "damaged": damaged, "unread": away}
    emit(body, as_json=as_json, render=lambda: _show_history(chosen, len(every), damaged, rules=rules))
    if away:
        raise typer.Exit(ExitCode.UNAVAILABLE)


def _read_history(context: Context, site: str) -> tuple[tuple[Entry, ...], tuple[DamagedEntry, ...]] | FairleadError:
    try:
        return read_history(context.resolver.kafka(site, ADMIN))
    except FairleadError as error:
        return error


def _show_history(chosen: tuple[Change, ...], count: int, damaged: list[dict[str, Any]], *, rules: bool) -> None:
    table = Table("time (UTC)", "site", "who", "what", "outcome")
    for change in chosen:
        first = change.first
        error = change.outcome.error if change.outcome else ""
        ended = f"{change.state}: {error}" if error else change.state
        when = f"{first.at:%Y-%m-%d %H:%M:%S}"
        table.add_row(
            when, first.site, escape(f"{first.by}@{first.host}"), escape(_change_in_words(change)), escape(ended)
        )
    console.print(table)
    if rules:
        for change in chosen:
            console.print(f"{change.first.at:%Y-%m-%d %H:%M:%S} {change.first.site}:")
            for entry in change.intent:
                if isinstance(entry, RulesChange):
                    print_plan((PlanLine(f"  + {text}", LineStyle.ADD) for text in in_words(entry.add)), console)
                    print_plan((PlanLine(f"  - {text}", LineStyle.REMOVE) for text in in_words(entry.remove)), console)
    if count > len(chosen):
        console.print(f"{count - len(chosen)} older ones: --last 0")
    for one in damaged:
        console.print(f"[yellow]{one['site']}: entry at offset {one['offset']} cannot be read[/]")


def _change_in_words(change: Change) -> str:
    match change.first:
        case RulesChange(plan=plan):
            parts = [entry for entry in change.intent if isinstance(entry, RulesChange)]
            add, remove = sum(len(entry.add) for entry in parts), sum(len(entry.remove) for entry in parts)
            return f"plan {plan}: {add} to add, {remove} to remove"
        case UserChange(action=action, detail=detail):
            users = ", ".join(entry.user for entry in change.intent if isinstance(entry, UserChange))
            return " ".join([action, "user", users, *(f"{key}={value}" for key, value in detail.items())])
        case QuotaChange(user=user, quotas=quotas):
            return f"quotas of {user}: " + ", ".join(f"{key}={value}" for key, value in quotas.items())


def _change_body(change: Change) -> dict[str, Any]:
    return {
        "state": change.state,
        "intent": [msgspec.to_builtins(entry) for entry in change.intent],
        "outcome": msgspec.to_builtins(change.outcome),
    }


app = typer.Typer(
    help="Plan, apply and explain ACLs; find what someone else changed.",
    epilog="Example: fairlead acl plan",
    no_args_is_help=True,
)
app.command()(plan)
app.command()(apply)
app.command()(drift)
app.command()(explain)
app.command()(audit)
app.command()(history)
app.command()(rotate)
app.command()(offboard)
