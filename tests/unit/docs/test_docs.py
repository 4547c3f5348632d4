"""The documentation builds, its commands exist, and its tables name what the code has."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import get_args, get_type_hints

import duckdb
import pytest
import yaml
from pydantic import TypeAdapter

import acl.audit
import replication.groups.rules
import shore.jobs.status
from edge.alerts.engine import default_rules
from edge.alerts.site_alerts import KIND, KINDS
from edge.holdings import CustodyState
from edge.messages import RejectReason
from edge.status import ALARMS
from replication.states import LinkState, LogState
from shore.tables.catalogue import TABLES
from simulators.fleet.scenario_file import shipped as shipped_scenarios
from tests.support.commands import commands, options
from tests.support.operators_day import rows_of_the_book
from topologies import model
from topologies.loader.load import load
from topologies.loader.load import shipped as shipped_topologies

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PAGES = {
    str(file.relative_to(ROOT)): file.read_text(encoding="utf-8")
    for file in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md"))
}
FOLDERS = "acl|benchmarks|board|compose|docs|edge|fairlead|notify|replication|shore|simulators|tests|tools|topologies"
NEW_FILES = {"edge/alerts/rules/cargo.py", "shore/alerts/heat.py"}  # which a reader makes in an example
MODELS = {
    name: kind
    for name, kind in vars(model).items()
    if isinstance(kind, type) and issubclass(kind, model.Model) and kind is not model.Model
}


@pytest.mark.long
def test_the_site_builds_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    """``--strict`` fails for links and anchors that lead nowhere."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stderr
    built = {str(file.relative_to(tmp_path)): file.read_text(encoding="utf-8") for file in tmp_path.rglob("*.html")}
    assert {file.relative_to(DOCS).with_suffix(".html").as_posix() for file in DOCS.rglob("*.md")} <= built.keys()
    assert "fairlead custody seize" in built["cli-reference.html"]
    for name, text in built.items():
        assert not re.findall(r"<(?:script|img|link|iframe)\b[^>]*?\b(?:src|href)=[\"']?(?:[a-z]+:)?//[^>]*", text), (
            name
        )


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_links_of_pages_outside_the_site_lead_somewhere(name: str) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", PAGES[name])
    assert links
    assert [link for link in links if ":" not in link and not (ROOT / link).exists()] == []


@pytest.mark.parametrize("name", PAGES)
def test_files_that_a_page_names_exist(name: str) -> None:
    named = set(re.findall(rf"`((?:{FOLDERS})/(?!v1/)[\w./-]*)`", PAGES[name])) - NEW_FILES
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("name", [name for name, text in PAGES.items() if "```python" in text])
def test_what_a_page_imports_exists(name: str) -> None:
    for code in re.findall(r"^```python.*?\n(.*?)^```", PAGES[name], re.DOTALL | re.MULTILINE):
        for module, names in re.findall(rf"^from ((?:{FOLDERS})[\w.]*) import (.+)", code, re.MULTILINE):
            for each in names.split(", "):
                assert hasattr(import_module(module), each), f"{module}.{each}"


@pytest.mark.parametrize("name", PAGES)
def test_commands_of_a_page_are_commands(name: str) -> None:
    """Every ``fairlead ...`` in code is a command, with options that it has."""
    known = {command: set(options(each)) | {"--help"} for command, each in commands()}
    for line in re.findall(r"(?:^    |`)fairlead ([^`\n#|]+)", PAGES[name], re.MULTILINE):
        words = line.split()
        if words[0] == "COMMAND" or words[0].startswith("-"):
            continue
        command = next((each for each in (" ".join(words[:2]), words[0]) if each in known), None)
        assert command is not None, line
        used = {word.strip("[](),.;").partition("=")[0] for word in words if word.startswith("--")}
        assert used <= known[command], line


def test_every_row_of_the_book_is_shown_by_a_command_or_a_test_that_exists() -> None:
    """The last cell of each row has one; tests, topologies, scenarios, links, customers and tables in it are real."""
    rows = rows_of_the_book()
    assert len(rows) > 30
    big_blue = load("big-blue")
    known: dict[str, set[str]] = {
        r"topology show ([\w-]+)": set(shipped_topologies()),
        r"--topology ([\w-]+)": set(shipped_topologies()),
        r"--scenario ([\w-]+)": set(shipped_scenarios()),
        r"--site ([a-z][\w-]*)": set(big_blue.sites),
        r"link describe '([^']+)'": {link.name for link in big_blue.directed_links()},
        r"feed ([\w-]+)": set(big_blue.customers),
        r"acl explain ([\w-]+)": {*big_blue.customers, *big_blue.users},
        r"\bfrom (\w+)": set(TABLES),
    }
    used: set[str] = set()
    for asked, shown in rows.items():
        assert all(shown), f"no command shows: {asked}"
        for line in shown:
            if line.startswith("pytest "):
                file, _, test = line.removeprefix("pytest ").partition("::")
                assert f"def {test or 'test_'}" in (ROOT / file).read_text(encoding="utf-8"), line
                continue
            for pattern, names in known.items():
                for name in re.findall(pattern, line):
                    used.add(pattern)
                    assert name in names, f"{line}: {name} is none of {sorted(names)}"
    assert used == known.keys()


def test_the_sql_of_every_page_suits_the_tables() -> None:
    """Each query that a page gives to ``fairlead sql`` runs on tables without rows."""
    queries = {query for page in PAGES.values() for query in re.findall(r'fairlead sql "([^"]+)"', page)}
    queries -= {"SELECT ..."}
    assert len(queries) > 10
    with duckdb.connect(":memory:") as connection:
        for name, table in TABLES.items():
            connection.register(name, table.plain_schema.empty_table())
        for query in queries:
            connection.execute(query)


def test_the_runbook_names_everything_that_an_operator_may_see() -> None:
    rules = yaml.safe_load((ROOT / "compose/monitoring/rules.yaml").read_text(encoding="utf-8"))["groups"]
    runbook = PAGES["docs/runbook.md"] + PAGES["docs/runbook-reference.md"]
    wanted = {
        *(*LogState, *LinkState, "stopped", *replication.groups.rules.GroupLogState, *CustodyState),
        *(*get_args(shore.jobs.status.State), *acl.audit.ReadVerdict, *RejectReason),
        *(*(rule.kind for rule in default_rules()), *KINDS, KIND),
        *("overtaken", *(alarm.name for alarm in ALARMS)),
        *(rule["alert"] for group in rules for rule in group["rules"]),
    }
    assert sorted(name for name in wanted if f"`{name}`" not in runbook) == []


@pytest.mark.parametrize("name", MODELS)
def test_every_field_of_a_topology_is_in_its_page_with_an_example_that_is_taken(name: str) -> None:
    reference = "".join(PAGES[f"docs/{page}.md"] for page in ("topology", "topology-shore", "topology-access"))
    section = reference.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    rows = [re.split(r" \| ", row.strip("| ")) for row in re.findall(r"^\| `.*", section, re.MULTILINE)]
    kinds = get_type_hints(MODELS[name], include_extras=True)
    fields = {info.alias or field: (kinds[field], info) for field, info in MODELS[name].model_fields.items()}
    assert {row[0].strip("`") for row in rows} == set(fields)
    for field, _, default, _, example in rows:
        kind, info = fields[field.strip("`")]
        assert (default == "required") == info.is_required()
        (value,) = yaml.safe_load(example.strip("`").replace("\\|", "|")).values()
        TypeAdapter(kind).validate_python(value)
