"""``python -m handbook``: write every generated page of ``docs/`` anew."""

from __future__ import annotations

from handbook.pages import DOCS, pages


def main() -> None:
    """Write each page; those that are as they should be are left alone."""
    for name, text in pages().items():
        file = DOCS / name
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
