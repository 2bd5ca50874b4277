"""The recorded durations of files of tests: what is about right stays, and what is gone goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import durations


@pytest.fixture(autouse=True)
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(durations, "ROOT", tmp_path)
    monkeypatch.setattr(durations, "RECORDED", tmp_path / "durations.txt")
    for name in ("a.py", "b.py", "c.py"):
        (tmp_path / name).write_text("")
    return tmp_path


def test_the_longest_file_comes_first_and_short_ones_have_no_line() -> None:
    assert durations.recorded() == {}
    durations.record({"a.py": 4.4, "b.py": 130.0, "c.py": 0.5})
    assert durations.RECORDED.read_text() == " 130 b.py\n   4 a.py\n"
    assert list(durations.recorded().items()) == [("b.py", 130), ("a.py", 4)]


@pytest.mark.parametrize(("measured", "kept"), [(70.0, 100), (150.0, 100), (50.0, 50), (180.0, 180), (1.0, None)])
def test_a_line_stays_while_it_is_about_right(measured: float, kept: int | None) -> None:
    durations.record({"a.py": 100.0})
    durations.record({"a.py": measured})
    assert durations.recorded().get("a.py") == kept


def test_files_that_did_not_run_keep_their_lines_unless_they_are_gone(tree: Path) -> None:
    durations.record({"a.py": 10.0, "b.py": 20.0})
    (tree / "b.py").unlink()
    durations.record({"c.py": 30.0})
    assert durations.recorded() == {"c.py": 30, "a.py": 10}


def test_a_run_that_is_like_the_last_one_does_not_touch_the_file(tree: Path) -> None:
    durations.record({"a.py": 10.0, "b.py": 3.4})
    before = durations.RECORDED.stat().st_mtime_ns
    durations.record({"a.py": 12.0, "b.py": 2.5})
    assert durations.RECORDED.stat().st_mtime_ns == before
