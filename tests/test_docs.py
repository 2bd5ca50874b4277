"""The documents agree with the code: tables, links, files, tests, settings."""

from __future__ import annotations

import ast
import importlib.util
import re
import runpy
from pathlib import Path
from types import ModuleType

import pytest

from tests.mutants.modules import TESTS
from zkconsumer.config.tables.kafka_consumer_keys import KAFKA_CONSUMER_SETTINGS
from zkconsumer.config.tables.keys import find_key
from zkconsumer.config.tables.producer_keys import PRODUCER_SETTINGS
from zkconsumer.spark.writing.sink_options import find_sink_option

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("tests/**/*.md")])
DECISIONS = sorted(ROOT.glob("docs/decisions/*.md"))

UNFINISHED = r"\b(TODO|FIXME|XXX|TBD|lorem ipsum)\b"
BOASTING = r"\b(blazing\w*|seamless\w*|effortless\w*|cutting-edge|state-of-the-art|world-class|simply|magic(al)?ly)\b"
OF_ONE_MACHINE = r"(?<![\w.~])/(home|root|tmp|work|Users)/"


def each_document(document: Path) -> str:
    return document.relative_to(ROOT).as_posix()


@pytest.fixture
def tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tables", ROOT / "docs" / "tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_are_up_to_date(tables: ModuleType) -> None:
    for path, written in tables.sections().items():
        text = path.read_text(encoding="utf-8")
        assert tables.with_tables(text, written) == text, "run: python docs/tables.py"


def test_the_tables_name_every_state_event_and_module(tables: ModuleType) -> None:
    sections = {name: table for written in tables.sections().values() for name, table in written.items()}
    assert "| `SnapshotRead` |  |  | read done |  |  |  |" in sections["group machine"]
    assert re.search(r"^\| claim \| claiming \| `Claim` \|$", sections["partition machine"], re.MULTILINE)
    for package in tables.packages():
        assert f"| `{package.as_posix()}/` | " in sections["folders"]
    assert "| |\n" not in sections["folders"].replace("| folder | |\n", ""), "a package has no docstring"


def test_every_module_says_in_its_first_line_what_it_is(tables: ModuleType) -> None:
    for package in tables.packages():
        for path in (ROOT / package).glob("*.py"):
            if path.stat().st_size:
                assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), f"{path} has no docstring"


def test_the_pictures_have_the_way_of_a_message_and_the_states(tables: ModuleType) -> None:
    sections = {name: table for written in tables.sections().values() for name, table in written.items()}
    assert "flowchart TB\n    subgraph lane0[" in sections["message"]
    assert "    s1 --> s2 --> " in sections["message"]
    arrows = {"group": "reading --> settling: SnapshotRead", "partition": "draining --> releasing: Drained"}
    for name, arrow in arrows.items():
        picture = sections[f"{name} picture"]
        assert picture.startswith("```mermaid\nstateDiagram-v2\n    [*] --> ")
        assert f"\n    {arrow}\n" in picture
    position = sections["position picture"]
    assert '\n    state "awaiting reset" as awaiting_reset\n' in position
    assert "\n    awaiting_reset --> fetching: Seek, ResetAnswered\n" in position
    assert "- `SessionOver` leads to *free* from claiming, blocked, owned," in sections["partition picture"]


def test_a_marker_of_an_unknown_fault_and_a_fault_without_a_test_are_refused(
    tables: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_tests_by_fault", lambda: {"Z9": ["`a::b`"]})
    with pytest.raises(ValueError, match=r"not in the catalogue: \['Z9'\]; .* without a test: \['A1', "):
        tables.fault_tables()


def test_what_the_catalogue_of_faults_names_exists() -> None:
    catalogue = runpy.run_path(str(ROOT / "tests" / "fault_catalogue.py"))["CATALOGUE"]
    processes, simulator = ROOT / "tests" / "processes", ROOT / "tests" / "simulator"
    scenarios = "\n".join(path.read_text(encoding="utf-8") for path in processes.glob("fault_scenarios_*.py"))
    kinds = "\n".join((simulator / name).read_text(encoding="utf-8") for name in ("faults.py", "profiles.py"))
    planted = (ROOT / "tests" / "simulation").glob("seeded_bugs*.py")
    bugs = "\n".join(path.read_text(encoding="utf-8") for path in planted)
    for fault, entry in catalogue.items():
        assert [each for each in entry.suite if f'Scenario("{each}' not in scenarios] == [], fault
        assert [each for each in entry.bugs if f'    "{each}": ' not in bugs] == [], fault
        assert [each for each in entry.simulation if not re.search(rf'"{each}": (_|\w+\.|Profile)', kinds)] == [], fault


def test_a_document_without_markers_is_refused(tables: ModuleType) -> None:
    with pytest.raises(ValueError, match="markers"):
        tables.with_tables("nothing", {"files": ""})


def slug(heading: str) -> str:
    """The anchor that a heading gets."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("document", DOCUMENTS, ids=each_document)
def test_links_resolve(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        if re.match(r"https?://", target):
            continue
        name, _, anchor = target.partition("#")
        page = (document.parent / name).resolve() if name else document
        assert page.exists(), f"{target} leads nowhere"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in map(slug, headings), f"{target}: no such heading"


def test_pages_and_sections_that_the_code_names_exist() -> None:
    folders = ("simpleconsumer", "rebalance", "zkconsumer", "examples", "tests")
    for source in (path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        for page, section in re.findall(r'(docs/[A-Z_]+\.md)(?:, "([^"\n]+)")?', source.read_text(encoding="utf-8")):
            assert (ROOT / page).exists(), f"{source} names {page}"
            headings = re.findall(r"^#+ (.*)$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
            assert not section or section in headings, f'{source} names "{section}" of {page}'


SITE = sorted(ROOT.glob("docs/**/*.md"))


def test_every_page_is_on_the_site() -> None:
    listed = re.findall(r"^ +- (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(page.relative_to(ROOT / "docs").as_posix() for page in SITE)


@pytest.mark.parametrize("page", SITE, ids=each_document)
def test_pages_of_the_site_link_to_pages_of_the_site(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s#]+)", text):
        if not re.match(r"https?://", target):
            found = (page.parent / target).resolve()
            assert found in SITE or found.suffix == ".svg", f"{target}: mkdocs build --strict fails"


@pytest.mark.parametrize("document", DOCUMENTS, ids=each_document)
def test_files_and_tests_that_are_named_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    for name, test in re.findall(r"`((?:simpleconsumer|rebalance|zkconsumer|tests|docs)/[^`:\s]*)(?:::(\w+))?`", text):
        path = ROOT / name
        assert path.exists(), f"{name} is not there"
        if test:
            assert re.search(rf"^ *def {test}\b", path.read_text(encoding="utf-8"), re.MULTILINE), f"{name}::{test}"


def test_modules_that_are_mutated_and_their_tests_exist() -> None:
    named = {name for module, tests in TESTS.items() for name in (module, *tests)}
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []


def test_tests_that_are_named_without_their_file_exist() -> None:
    defined = {
        name for path in ROOT.glob("tests/**/*.py") for name in re.findall(r"def (test_\w+)", path.read_text("utf-8"))
    }
    named = {
        name for path in DOCUMENTS for name in re.findall(r"(?:`|::)(test_\w+)`", path.read_text(encoding="utf-8"))
    }
    assert len(named) > 30
    assert named - defined == set()


OF_BROKERS = {"max.message.bytes", "producer.id.expiration.ms", "unstable.api.versions.enable"}
"""Settings of Kafka's brokers that the documents name, beside ours."""


@pytest.mark.parametrize("document", DOCUMENTS, ids=each_document)
def test_settings_that_are_named_exist(document: Path) -> None:
    text = re.sub(
        r"<!-- foreign options: written.*?<!-- foreign options: end", "", document.read_text("utf-8"), flags=re.DOTALL
    )
    for name in re.findall(r"`([a-z]+(?:\.[a-z]+)+\.(?:ms|bytes|retries|chunks|enable|reset|enabled))\b", text):
        known = find_key(name) or PRODUCER_SETTINGS.find(name) or KAFKA_CONSUMER_SETTINGS.find(name)
        assert known or find_sink_option(name) or name in OF_BROKERS, f"{name} is no setting"


@pytest.mark.parametrize("document", DOCUMENTS, ids=each_document)
@pytest.mark.parametrize("words", [UNFINISHED, BOASTING, OF_ONE_MACHINE], ids=["unfinished", "boasting", "machine"])
def test_words_that_do_not_belong(document: Path, words: str) -> None:
    found = re.search(words, document.read_text(encoding="utf-8"), re.IGNORECASE)
    assert found is None, found


@pytest.mark.parametrize("document", DOCUMENTS, ids=each_document)
def test_programs_compile_and_lines_are_short(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    for program in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        compile(program, str(document), "exec")
    prose = [line for line in re.sub(r"```.*?```", "", text, flags=re.DOTALL).splitlines() if not line.startswith("|")]
    assert [line for line in prose if len(line) > 130 and "<!--" not in line] == []


@pytest.mark.parametrize("decision", DECISIONS, ids=each_document)
def test_a_decision_is_short_and_says_what_would_change_it(decision: Path) -> None:
    text = decision.read_text(encoding="utf-8")
    assert text.startswith(f"# {decision.name[:4]} ")
    for part in ("**Context.**", "**Choice.**", "**Price.**", "**What would change our mind.**"):
        assert part in text
    assert len(text.splitlines()) <= 40


def test_decisions_are_numbered_without_gaps() -> None:
    assert [int(path.name[:4]) for path in DECISIONS] == list(range(1, len(DECISIONS) + 1))
