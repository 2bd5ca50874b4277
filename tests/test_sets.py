"""Sets of tests that the default suite leaves out: they exist, and any change of their files brings them back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import sets
from tests.sets import SETS, SetOfTests


@pytest.fixture
def kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SetOfTests:
    """A set with two files, in a tree of its own, that has passed."""
    monkeypatch.setattr(sets, "ROOT", tmp_path)
    monkeypatch.setattr(sets, "PASSED", tmp_path / "sets.passed")
    for name in ("tests/test_it.py", "kit/it.py"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("x = 1\n")
    found = SetOfTests(("tests",), ("kit/it.py",))
    monkeypatch.setattr(sets, "SETS", {"kit": found})
    assert sets.unchanged() == []
    sets.record(["kit"])
    assert sets.unchanged() == ["kit"]
    return found


@pytest.mark.parametrize("name", ["tests/test_it.py", "kit/it.py"])
def test_a_set_runs_again_after_any_change_of_what_it_tests(kit: SetOfTests, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("x = 2\n")
    assert sets.unchanged() == []
    (tmp_path / name).write_text("x = 1\n")
    assert sets.unchanged() == ["kit"]


def test_a_set_runs_again_after_a_file_was_added_renamed_or_deleted(kit: SetOfTests, tmp_path: Path) -> None:
    file = tmp_path / "tests" / "test_more.py"
    file.write_text("")
    assert sets.unchanged() == []
    file.unlink()
    assert sets.unchanged() == ["kit"]
    (tmp_path / "tests" / "test_it.py").rename(file)
    assert sets.unchanged() == []


def test_what_python_and_the_compiler_write_does_not_count(kit: SetOfTests, tmp_path: Path) -> None:
    (tmp_path / "tests" / "it.cpython-311.pyc").write_bytes(b"")
    assert sets.unchanged() == ["kit"]


def test_a_set_has_its_tests_and_no_others(kit: SetOfTests, tmp_path: Path) -> None:
    assert kit.has(tmp_path / "tests" / "deep" / "test_it.py")
    assert not kit.has(tmp_path / "kit" / "it.py")


@pytest.mark.parametrize("name", SETS)
def test_all_that_a_set_names_exists(name: str) -> None:
    assert [each for each in (*SETS[name].tests, *SETS[name].tested) if not (sets.ROOT / each).exists()] == []
    assert len(list(SETS[name].files())) > 10
