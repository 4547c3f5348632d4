"""A page of the board as one file: the same template and drawings, with styles, scripts and land inside, and no server.

The file may be opened from a disk or an e-mail. Its own Content-Security-Policy lets it run the scripts that it brings,
which it knows by their digests, and reach nothing else.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import re
from functools import cache
from importlib import resources
from typing import Any, Final

from board.service import templates

_STYLE: Final = re.compile(r'<link rel="stylesheet" href="/static/([\w./-]+)">')
_SCRIPT: Final = re.compile(r'<script src="/static/([\w./-]+)" defer></script>')
_ICON: Final = re.compile(r'<link rel="icon" [^>]*>\n?')
_LINK: Final = re.compile(r'<a (?:class="[^"]*" )?href="/[^"]*"[^>]*>(.*?)</a>', re.DOTALL)
_LAND: Final = "vendor/land/land.json"


def document(template: str, topology: str, **values: Any) -> str:
    """Return a page as one file.

    Args:
        template: A file of ``board/templates`` that extends ``base.html.j2``.
        topology: The title of the topology.
        values: What the template needs beside what every page gets. ``warnings``: sentences, what the page does not
            know.
    """
    shared = {
        "viewer": None,
        "csrf": "",
        "topology": topology,
        "path": "",
        "written": dt.datetime.now(dt.UTC),
        "exported": True,
        "warnings": (),
    }
    return self_contained(templates().get_template(template).render({**shared, **values}))


def self_contained(html: str) -> str:
    """Return a page of the board with everything that it needs inside. Links to other pages become text."""
    names = _SCRIPT.findall(html)
    scripts = [_static(name) for name in names]
    styles = [_static(name) for name in _STYLE.findall(html)]
    html = _LINK.sub(r"\1", _ICON.sub("", _SCRIPT.sub("", _STYLE.sub("", html))))
    policy = (
        f"default-src 'none'; img-src data:; script-src {_digests(scripts)}; style-src {_digests(styles)}; "
        "base-uri 'none'; form-action 'none'"
    )
    head = [f'<meta http-equiv="Content-Security-Policy" content="{policy}">']
    head += [f"<style>{each}</style>" for each in styles]
    # Scripts stand behind what they draw, as "defer" has it; the land's JSON is data, and is not run.
    mapped = any("leaflet" in name for name in names)
    foot = [f'<script type="application/json" id="land">{_static(_LAND)}</script>'] if mapped else []
    foot += [f"<script>{each}</script>" for each in scripts]
    html = html.replace('<meta charset="utf-8">', '<meta charset="utf-8">\n' + "\n".join(head), 1)
    before, end, after = html.rpartition("</body>")
    return before + "\n".join(foot) + "\n" + end + after


@cache
def _static(name: str) -> str:
    """Return a file of ``board/static``. No text in it ends the element that it stands in.

    Raises:
        ValueError: it would; then its digest would be another.
    """
    text = (resources.files("board") / "static" / name).read_text(encoding="utf-8")
    if re.search(r"</(script|style)", text, re.IGNORECASE):
        raise ValueError(f"{name} ends an element, and cannot stand inside a page")
    return text


def _digests(texts: list[str]) -> str:
    found = (base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in texts)
    return " ".join(f"'sha256-{each}'" for each in found) or "'none'"
