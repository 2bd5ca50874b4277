"""Reads mutmut's results: how many mutants the tests noticed, and what the others changed."""

from __future__ import annotations

import ast
import difflib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["Change", "changes_of"]

_SURVIVED = 0
_WITHOUT_TESTS = (5, 33)
_NOT_RUN = None


class Change(NamedTuple):
    """One mutant: the function, and the lines that it takes out and puts in, as `ast.unparse` writes them."""

    function: str
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([f"    {self.function}", *(f"        {line}" for line in self.lines)])


def changes_of(copy: Path, module: str) -> tuple[int, Sequence[Change]]:
    """Return how many mutants of a module were noticed, and the changes of the others.

    Raises:
        SystemExit: mutmut has left mutants without a result.
    """
    results = json.loads((copy / "mutants" / f"{module}.meta").read_text())["exit_code_by_key"]
    if not_run := [name for name, status in results.items() if status is _NOT_RUN]:
        raise SystemExit(f"{module}: mutmut has not run {len(not_run)} mutants, {not_run[0]} among them")
    unnoticed = [name for name, status in results.items() if status == _SURVIVED or status in _WITHOUT_TESTS]
    bodies = _bodies((copy / "mutants" / module).read_text())
    return len(results) - len(unnoticed), [_change(name.rsplit(".", 1)[1], bodies) for name in unnoticed]


def _bodies(source: str) -> dict[str, list[str]]:
    """Return the lines of each function of a file by its name, its own name in them made equal."""
    bodies = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            name, node.name = node.name, "changed"
            bodies[name] = ast.unparse(node).splitlines()
    return bodies


def _change(name: str, bodies: dict[str, list[str]]) -> Change:
    """Return the lines by which a mutant differs from its function."""
    function = name.rsplit("__mutmut_", 1)[0]
    lines = difflib.unified_diff(bodies[f"{function}__mutmut_orig"], bodies[name], n=0, lineterm="")
    changed = tuple(f"{line[0]} {line[1:].strip()}" for line in lines if line[:2] not in ("--", "++", "@@"))
    return Change(function.removeprefix("x_").removeprefix("xǁ").replace("ǁ", "."), changed)
