"""The documentation as a site: it builds without a warning, links lead somewhere, nothing is loaded from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from html.parser import HTMLParser
from pathlib import Path

import pytest

from handbook.commands import commands

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
WRITTEN = [f"{name}.md" for name in "book getting-started index install kubernetes runbook runbook-reference".split()]


def build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--config-file",
        str(config),
        "--site-dir",
        str(site),
    ]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=200, env=environment, check=False)  # noqa: S603


class Page(HTMLParser):
    """Ids, links and loaded files of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if "id" in found:
            self.ids.add(found["id"])
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag == "link" and found.get("rel") != "canonical":
            self.loaded.append(found["href"])
        if "src" in found:
            self.loaded.append(found["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Page]:
    """The pages of the built site by their file."""
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", folder)
    assert done.returncode == 0, done.stderr
    return {file.relative_to(folder): Page(file.read_text(encoding="utf-8")) for file in folder.rglob("*.html")}


def test_every_page_is_built(site: dict[Path, Page]) -> None:
    assert {file.relative_to(DOCS).with_suffix(".html") for file in DOCS.rglob("*.md")} <= site.keys()


def test_links_within_the_site_lead_somewhere(site: dict[Path, Page]) -> None:
    lost = []
    for file, page in site.items():
        for link in page.links:
            path, _, anchor = link.partition("#")
            target = Path(os.path.normpath(file.parent / path)) if path else file
            if re.match(r"[a-z]+:", link) or target not in site or not anchor:
                continue
            if anchor not in site[target].ids:
                lost.append((str(file), link))
    assert not lost


def test_nothing_is_loaded_from_elsewhere(site: dict[Path, Page]) -> None:
    for file, page in site.items():
        assert page.loaded, file
        assert not [each for each in page.loaded if re.match(r"([a-z]+:)?//", each)], file


def test_no_page_needs_a_program_to_draw_its_pictures() -> None:
    """The site's theme would load one from elsewhere: what GitHub draws would be source text here."""
    assert not [file.name for file in DOCS.rglob("*.md") if "```mermaid" in file.read_text(encoding="utf-8")]


@pytest.mark.parametrize("name", ["README.md"])
def test_links_of_the_readme_lead_somewhere(site: dict[Path, Page], name: str) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", (ROOT / name).read_text(encoding="utf-8"))
    assert links
    for link in links:
        path, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        assert (ROOT / path).exists(), link
        if anchor and path.startswith("docs/"):
            assert anchor in site[Path(path).relative_to("docs").with_suffix(".html")].ids, link


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[there](nowhere.md)", "nowhere.md"),
        ("[there](index.md#no-such-heading)", "no-such-heading"),
        ("[there](/etc/passwd)", "absolute link"),
    ],
    ids=["page", "anchor", "absolute"],
)
def test_a_broken_link_fails_the_build(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# Here\n\n{text}\n", encoding="utf-8")
    config = f"""
        INHERIT: {ROOT}/mkdocs.yml
        docs_dir: {tmp_path}/docs
        nav: [index.md]
        theme: {{name: null, custom_dir: .}}
    """
    (tmp_path / "mkdocs.yml").write_text(textwrap.dedent(config), encoding="utf-8")
    (tmp_path / "main.html").write_text("{{ page.content }}", encoding="utf-8")
    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode != 0 and said in done.stderr


@pytest.mark.parametrize("name", WRITTEN)
def test_commands_in_the_text_are_commands(name: str) -> None:
    """Every ``fairlead ...`` of these pages is a command, with options that it has."""
    known = {each.name: {"--help"} | {n for option in each.options for n in option.names} for each in commands()}
    text = (DOCS / name).read_text(encoding="utf-8")
    found = re.findall(r"(?:^    |`)fairlead ([^`\n#|]+)", text, re.MULTILINE)
    for line in found:
        words = line.split()
        command = next((each for each in (" ".join(words[:2]), words[0]) if each in known), None)
        if words[0] == "COMMAND" or words[0].startswith("--"):
            continue
        assert command is not None, line
        assert {word for word in words if word.startswith("--")} <= known[command], line


def test_the_check_of_commands_finds_some() -> None:
    text = (DOCS / "getting-started.md").read_text(encoding="utf-8")
    assert len(re.findall(r"^    fairlead ", text, re.MULTILINE)) > 20
