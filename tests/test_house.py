"""The house does not grow: no figure of `tests/house.py` is above its bound, and no bound is far above its figure."""

from __future__ import annotations

import ast

import pytest

from tests.house import MOST, Figure, code_lines, import_lines, measure


@pytest.fixture(scope="module")
def figures() -> dict[str, Figure]:
    """Takes seconds: when this file is collected, which each process of pytest-xdist does, there is no time for it."""
    return measure()


@pytest.mark.parametrize("what", MOST)
def test_a_figure_is_within_its_bound(what: str, figures: dict[str, Figure]) -> None:
    figure = figures[what]
    assert figure.value <= figure.bound, figure.names


@pytest.mark.parametrize("what", MOST)
def test_a_bound_is_lowered_with_its_figure(what: str, figures: dict[str, Figure]) -> None:
    figure = figures[what]
    assert figure.value >= 0.98 * figure.bound - 1, f"set the bound of {what!r} to {figure.value}"


def test_code_is_what_is_neither_blank_nor_comment_nor_docstring() -> None:
    text = '"""Doc.\n\nMore.\n"""\n\nimport os  # why\n\n# a comment\n__all__ = [\n    "x",\n]\nx = """a\nb"""\n'
    tree = ast.parse(text)
    assert sorted(code_lines(text, tree)) == [6, 9, 10, 11, 12, 13]
    assert sorted(import_lines(tree)) == [6, 9, 10, 11]
