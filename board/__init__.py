"""The board: web pages about fleets, ports and containers, live, for staff and for customers.

In: a browser's requests, Delta tables, status files, and the logs ``alerts`` and ``ships``. Out: pages and streams of
events. ``templates/base.html.j2`` is the frame of every page, with ``templates/macros.html.j2`` for its parts;
``static/board.js`` keeps a page live, ``static/map.js`` and ``static/chart.js`` draw. ``static/vendor`` is the work of
others (``tools/vendor.sh``). No page has anything from another server. Open ``app.py`` first.
"""

from __future__ import annotations

from typing import Final

from fairlead.errors import UnavailableError

PORT: Final = 8470
"""Where the board listens, unless another port is chosen."""


class ForEveryoneError(UnavailableError):
    """What was asked for is not there now, in words for whoever asks. Other errors are told to the staff alone."""
