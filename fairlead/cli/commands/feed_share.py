"""``fairlead feed --client delta-sharing``: a profile file for a customer's share, and the end of its tokens."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path

from fairlead.cli.commands.context import require_writable
from fairlead.cli.console import Consent, emit, errors, output
from fairlead.errors import OptionError
from fairlead.local.files import write_file
from shore.report.wording import count
from topologies.context import Context


@dataclass(frozen=True, slots=True)
class ShareOptions:
    """What the command says about a token.

    Args:
        board: The address of the board, as the customer's machines reach it.
        days: For how long the token is good.
        overlap: For how many hours the tokens before it stay good.
    """

    board: str | None
    days: int
    overlap: int


def end_tokens(context: Context, customer: str, consent: Consent, *, as_json: bool) -> None:
    """End all tokens of a customer."""
    from board.sharing.service import shared_names
    from board.sharing.tokens import Tokens

    tokens = Tokens(context.folder)
    good = tokens.known(customer)
    if customer not in context.topology.customers and not good:
        shared_names(context.topology, customer)  # says which names there are
    if good and not consent.agreed([f"end the tokens of {customer} that are good: {len(good)}"]):
        return
    ended = tokens.revoke(customer) if good else 0
    body = {"customer": customer, "revoked": ended}
    emit(
        body,
        as_json=as_json,
        render=lambda: output.write(f"{customer}: {count(ended, 'token')} ended; none is valid now\n"),
    )


def share(context: Context, customer: str, options: ShareOptions, out: Path | None, *, as_json: bool) -> None:
    """Give a customer a new token in a profile file."""
    # Imported here: these take a second, and reading a feed does not need them.
    from board.sharing.profile import endpoint, profile
    from board.sharing.service import shared_names
    from board.sharing.tokens import Tokens

    tokens = Tokens(context.folder)
    names = shared_names(context.topology, customer)
    if options.board is None:
        raise OptionError(
            "a profile file needs the board's address",
            hint="add --board https://…, as the customer's machines reach it",
        )
    at = endpoint(options.board)
    file = out / f"{customer}.share" if out is not None else None
    if file is not None:
        require_writable(file)
    issued = tokens.issue(
        customer, lifetime=dt.timedelta(days=options.days), overlap=dt.timedelta(hours=options.overlap)
    )
    text = profile(at, issued)
    body = {
        "customer": customer,
        "client": "delta-sharing",
        "endpoint": at,
        "tables": [f"{customer}.default.{name}" for name in names],
        "expires": issued.expires.isoformat(),
    }
    if file is None:
        emit(body | {"profile": text}, as_json=as_json, render=lambda: output.write(text))
    else:
        write_file(file, text)
        emit(body | {"files": [str(file)]}, as_json=as_json, render=lambda: output.write(f"{file}\n"))
    if not as_json:
        errors.print(
            f"good until {issued.expires:%Y-%m-%d %H:%M} UTC, for {', '.join(names)}; the token is not shown again",
            style="dim",
        )
