"""MkDocs hook: add ``cli-reference.md``, the help of every command as typer writes it, to the site."""

from __future__ import annotations

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from typer.cli import get_docs_for_click
from typer.main import get_group

from fairlead.cli import app as cli
from fairlead.cli.lazy import load


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page to the files of the site; MkDocs calls this."""
    files.append(File.generated(config, "cli-reference.md", content=page()))
    return files


def page() -> str:
    """Return the page as Markdown."""
    group = get_group(cli.app)
    for name, entry in cli.COMMANDS.items():
        group.add_command(load(name, entry), name)
    context = typer.Context(group, info_name="fairlead", obj={"TYPER_RICH_MARKUP_MODE": "rich"})
    return get_docs_for_click(obj=group, ctx=context, name="fairlead", title="Command reference")
