"""Pure modules take the time as an argument, and know no socket, thread, clock, environment or ZooKeeper client.

A module is pure if its docstring, or that of its package, has the sentence "Pure."
"""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[1]
FORBIDDEN: Final = {"asyncio", "kazoo", "os", "socket", "ssl", "subprocess", "threading", "time"}


@functools.cache
def says_pure(path: Path) -> bool:
    """Whether the docstring of a file has the sentence; a file without the word is not parsed, which takes long."""
    text = path.read_text(encoding="utf-8")
    return "Pure" in text and re.search(r"\bPure[.:]", ast.get_docstring(ast.parse(text)) or "") is not None


def pure_modules() -> list[Path]:
    roots = [ROOT / root for root in ("simpleconsumer", "rebalance", "zkconsumer")]
    every = [path for root in roots for path in sorted(root.rglob("*.py"))]
    return [path for path in every if says_pure(path) or says_pure(path.parent / "__init__.py")]


def imports_of(source: str) -> set[str]:
    """The first parts of the names of all modules that a file imports, also within its functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


@pytest.mark.parametrize("path", pure_modules(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_pure_module_imports_nothing_that_acts(path: Path) -> None:
    assert imports_of(path.read_text(encoding="utf-8")) & FORBIDDEN == set()


def test_the_machines_the_formats_and_the_simulated_groups_are_pure() -> None:
    modules = {path.relative_to(ROOT).as_posix() for path in pure_modules()}
    assert modules >= {
        "rebalance/zookeeper/machine.py", "rebalance/brokers/machine.py", "rebalance/partition.py",
        "simpleconsumer/kafka07/message_set.py", "simpleconsumer/kafka08/message_set.py",
        "simpleconsumer/kafka011/records.py", "simpleconsumer/kafka011/whole_batches.py",
        "simpleconsumer/messages/schema.py", "zkconsumer/mirror/lanes/lane.py",
        "zkconsumer/fetching/fetch_state.py", "zkconsumer/testing/embedded/group.py",
    }  # fmt: skip
    assert len(modules) > 140


def test_an_import_within_a_function_counts() -> None:
    assert imports_of("def f():\n    import time\n    from os import path\n") == {"time", "os"}
