"""``fairlead certs``: create a test CA, issue certificates, show when they expire, renew those of local sites."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from fairlead.certs.authority import DAYS
from fairlead.certs.facts import CertificateFacts, facts, load
from fairlead.cli.commands.context import DryRunOption, JsonOption, SitesOption, TopologyOption, YesOption
from fairlead.cli.console import Consent, console, emit
from fairlead.errors import OptionError, UnknownNameError
from fairlead.kafka.admin import require_answer
from fairlead.local.certificates import ISSUED, Certificates
from fairlead.local.renewal import renew as renew_site
from fairlead.local.sites import LocalSites
from fairlead.local.state import locked, read_state
from topologies.context import DEFAULT_TOPOLOGY, Context, open_topology

app = typer.Typer(
    help="Create a test CA, issue certificates, show when they expire, and renew them without downtime.",
    epilog="Private keys are in files that only their owner can read (0600), and are never printed.\n\n"
    "Example: fairlead certs show",
    no_args_is_help=True,
)
NamesOption = Annotated[
    list[str] | None,
    typer.Option("--name", help="A host name or IP address that clients connect to; may be repeated."),
]
_COLOURS = {"expired": "bold red", "soon": "yellow"}


@app.command()
def init(
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """Create the topology's test CA. 'fairlead up --tls' does this by itself.

    Example: fairlead certs init --yes
    """
    consent = Consent(yes=yes, dry_run=dry_run, as_json=as_json)
    context = open_topology(topology)
    certificates = Certificates(context.folder)
    certificates.require_none()
    plan = [f"make an authority in {certificates.folder}"]
    if not consent.agreed(plan):
        return
    with locked(context.folder):
        certificates.found(context.topology.name)
        made = certificates.all()[0]
    body = {"certificate": str(certificates.trusted), **made.facts.as_json()}

    def render() -> None:
        console.print(f"{escape(made.facts.subject)}, until {made.facts.expires:%Y-%m-%d}", soft_wrap=True)
        console.print(f"clients trust it by {escape(str(certificates.trusted))}", soft_wrap=True)

    emit(body, as_json=as_json, render=render)


@app.command()
def issue(
    name: Annotated[str, typer.Argument(help="The server's name, for the file names.", metavar="SERVER")],
    names: NamesOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="The folder to write to. Default: the state folder.")
    ] = None,
    days: Annotated[int, typer.Option(help="How long the certificate is valid.", min=1, max=825)] = DAYS,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """Issue a certificate for a server elsewhere: SERVER.pem with its chain, SERVER.key (PKCS#8), and ca.pem.

    Sites on this machine get theirs from 'fairlead up --tls' and 'fairlead certs renew'.

    Example: fairlead certs issue tokyo-kafka-1 --name kafka-1.tokyo.example --name 10.0.0.7 --out tokyo
    """
    context = open_topology(topology)
    if Path(name).name != name or name.startswith("."):
        raise OptionError(f"{name!r} cannot name a file", hint="letters, digits, - and _: tokyo-kafka-1")
    certificates = Certificates(context.folder)
    folder = out if out is not None else certificates.folder / ISSUED
    with locked(context.folder):
        certificate, key = certificates.issue(name, names or [], days=days, out=folder)
    made = facts(certificate.read_bytes())
    body = {"certificate": str(certificate), "key": str(key), "ca": str(folder / "ca.pem"), **made.as_json()}

    def render() -> None:
        console.print(f"{escape(str(certificate))}: {escape(', '.join(made.names))}", soft_wrap=True)
        console.print(f"its key: {escape(str(key))}; its authority: {escape(str(folder / 'ca.pem'))}", soft_wrap=True)

    emit(body, as_json=as_json, render=render)


@app.command()
def show(topology: TopologyOption = DEFAULT_TOPOLOGY, as_json: JsonOption = False) -> None:
    """Show every certificate of the topology on this machine: site, names, issuer and expiry.

    'fairlead status' shows the certificates that servers present.

    Example: fairlead certs show --json
    """
    context = open_topology(topology)
    rows = _all(context)
    body = {"topology": context.topology.name, "certificates": rows}

    def render() -> None:
        if not rows:
            console.print("no certificates: fairlead certs init, or fairlead up --tls")
            return
        table = Table("site", "service", "names", "issuer", "expires", "days", box=None, pad_edge=False)
        for row in rows:
            style = _COLOURS.get(row["warning"] or "", "green")
            days = f"[{style}]{row['days']}[/]"
            names = escape(", ".join(row["names"]) or row["subject"])
            table.add_row(row["site"] or "-", row["service"], names, escape(row["issuer"]), row["expires"][:10], days)
        console.print(table)

    emit(body, as_json=as_json, render=render)


@app.command()
def renew(
    sites: SitesOption = None,
    names: NamesOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """Give sites on this machine new certificates; running servers use them at once, and clients stay connected.

    Certificates that Fairlead did not issue are read again from their files and checked first.

    Example: fairlead certs renew --site tokyo --yes
    """
    consent = Consent(yes=yes, dry_run=dry_run, as_json=as_json)
    context = open_topology(topology)
    secure = [name for name, state in read_state(context.folder / "state.json").sites.items() if state.tls is not None]
    for name in sites or ():
        if name not in secure:
            raise UnknownNameError("site with TLS on this machine named", name, secure)
    plan = [f"{name}: give Kafka and Mosquitto other certificates" for name in sites or secure]
    if plan and not consent.agreed(plan):
        return
    done = {}
    for name in sites or secure:
        done[name] = renew_site(LocalSites(context.folder), name, require_answer, names or [])
    body = {
        "sites": {
            name: {"shown": each.shown, **{service: found.as_json() for service, found in each.certificates.items()}}
            for name, each in done.items()
        }
    }

    def render() -> None:
        for name, each in done.items():
            ends = min(found.expires for found in each.certificates.values())
            how = "shown now" if each.shown else "shown when it is started"
            console.print(f"{name}: until {ends:%Y-%m-%d}, {how}")
        if not done:
            console.print("no site on this machine has TLS: fairlead up --tls")

    emit(body, as_json=as_json, render=render)


def _all(context: Context) -> list[dict[str, Any]]:
    """List authorities, the certificates that they issued, and sites' own certificates."""
    rows = [_row(each.site, each.service, each.facts, each.file) for each in Certificates(context.folder).all()]
    for name, state in read_state(context.folder / "state.json").sites.items():
        if state.tls is not None and not state.tls.issued:
            file = Path(state.tls.certificate)
            own = load(file, Path(state.tls.key))
            rows.append(_row(name, "kafka, mqtt", facts(own.certificate), file))
    return rows


def _row(site: str | None, service: str, found: CertificateFacts, file: Path) -> dict[str, Any]:
    return {"site": site, "service": service, **found.as_json(), "file": str(file)}
