"""The ``fairlead`` command.

In: a command line. Out: text or JSON, and an exit code. Open ``app`` first: the table of commands, each imported at its
first use. ``commands`` are thin: they parse, call one function of another package, and print on the ``console``.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the installed ``fairlead`` script. Ctrl-C during the imports, which take a quarter of a second,
    ends it with 130, without a word."""
    try:
        from fairlead.cli.app import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()
