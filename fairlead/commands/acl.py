"""``fairlead acl``: what the access rules of each site are, should be, and why. One module for each command."""

from __future__ import annotations

import typer

from fairlead.commands.aclapply import apply
from fairlead.commands.aclaudit import audit
from fairlead.commands.aclexplain import explain
from fairlead.commands.aclhistory import history
from fairlead.commands.acloffboard import offboard
from fairlead.commands.aclplan import drift, plan
from fairlead.commands.aclrotate import rotate

app = typer.Typer(
    help="Who may do what with which topic: plan, apply, explain, and find what someone else changed.",
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
