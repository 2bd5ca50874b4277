"""docs/OPERATIONS.md knows every state and kind of error, and every line of the log that it quotes is written."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from rebalance.partition import PartitionState
from rebalance.zookeeper.machine import GroupState

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "OPERATIONS.md").read_text(encoding="utf-8")
SOURCES = [
    path for package in ("rebalance", "zkconsumer", "simpleconsumer") for path in ROOT.glob(f"{package}/**/*.py")
    if not {"cli", "spark", "testing"} & set(path.parts)
]  # fmt: skip


def first_column(heading: str) -> list[str]:
    """What stands in backticks in the first column of the table below a heading."""
    section = TEXT.split(f"### {heading}\n", 1)[1].split("\n##", 1)[0]
    rows = re.findall(r"^\| (`[^|]+) \|", section, re.MULTILINE)
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row)]


def strings() -> str:
    """All string constants of the product, one after the other; pieces that stand together are one."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES]
    constants = [node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return "\n".join(each for each in constants if isinstance(each, str))


def test_each_state_of_a_member_is_there() -> None:
    of_the_connector = {"created", "busy", "closed"}
    assert set(first_column("States of a member")) == {state.value for state in GroupState} | of_the_connector


def test_each_state_of_a_partition_is_there() -> None:
    assert set(first_column("States of a partition")) == {state.value for state in PartitionState}


def test_each_quoted_line_is_written() -> None:
    written, quoted = strings(), first_column("Lines in the log")
    assert len(quoted) > 25
    assert [line for line in quoted if line not in written] == []


def test_each_kind_of_error_is_there() -> None:
    sources = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES)
    counted = set(re.findall(r'(?:add\("errors", |count_error\()"(\w+)"', sources))
    of_the_port = {"zookeeper_connection", "zookeeper_session"}
    assert set(first_column("Errors that are counted")) == counted | of_the_port | {"commit", "listener", "message"}
