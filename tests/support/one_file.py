"""What tests look at in a page that is one file: its text, and what it would fetch or run."""

from __future__ import annotations

import html
import re


def plain(page: str) -> str:
    """Return a page's text, with single blanks."""
    bare = re.sub(r"<(script|style)\b.*?</\1>|<[^>]+>", " ", page, flags=re.DOTALL)
    return " ".join(html.unescape(bare).split())


def reaches(page: str) -> list[str]:
    """Return the elements by which a page would fetch anything, send anything, or lead elsewhere."""
    markup = re.sub(r"<(script|style)\b([^>]*)>.*?</\1>", r"<\1\2>", page, flags=re.DOTALL)
    return re.findall(r'<link\b[^>]*>|<(?:form|img|iframe)\b[^>]*>|<\w+[^>]*\s(?:src|href)="(?!#)[^"]*"[^>]*>', markup)
