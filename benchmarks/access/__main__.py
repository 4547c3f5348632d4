"""Measure access, print, and write ``build/bench/access.json``.

    python -m benchmarks.access [--only plan,sites,apply,growth] [--customers N] [--containers N] ...

``plan``: planning for 200 customers at six sites with 50,000 containers, rules in memory. ``sites``: the same at six
real brokers. ``apply``: 2,000 changed rules at one site, a real broker. ``growth``: how many rules worlds of several
sizes have.

Wants a machine that does nothing else; the numbers make it smaller, for trying out. A part that fails has an ``error``
in the file, the others go on, and the exit code is 1. With ``--only`` the other parts keep what the file has of them.
"""

from __future__ import annotations

from typing import Final

from benchmarks import _suite

NAMES: Final = ("plan", "sites", "apply", "growth")

if __name__ == "__main__":
    _suite.main("access", NAMES, __doc__)
