from __future__ import annotations

from typing import Final

PAGES: Final = ()
