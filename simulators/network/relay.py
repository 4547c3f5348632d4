"""``python -m simulators.network.relay SOCKET``: leads lines by hand, or from outside their container.

Orders are read from standard input, a line each, and answers written to standard output. The lines are led until the
input ends.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from simulators.network.orders import Order
from simulators.network.remote import RemoteLines


def relay(at: Path) -> None:
    """Until the input ends."""
    with RemoteLines(at) as lines:
        for order in sys.stdin.buffer:
            answer = lines.give(msgspec.json.decode(order, type=Order))
            sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    relay(Path(sys.argv[1]))
