"""Write the tables of docs/ARCHITECTURE.md, REBALANCE.md and SPARK_READING.md from the code: `python docs/tables.py`.

They stand between markers: the pure modules (from `setup.cfg`), the file map (first sentence of each module), the two
machines, and the options of the Spark source. Of a machine the events and states are read from its transition table,
and what a step may do from the source of the step.
"""

from __future__ import annotations

import ast
import configparser
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from rebalance import machine, partition
from zkconsumer.spark.option_table import OPTIONS

ROOT = Path(__file__).resolve().parents[1]
ARCHITECTURE = ROOT / "docs" / "ARCHITECTURE.md"
REBALANCE = ROOT / "docs" / "REBALANCE.md"
SPARK = ROOT / "docs" / "SPARK_READING.md"
PACKAGES = (
    "simpleconsumer",
    "simpleconsumer/kafka08",
    "rebalance",
    "zkconsumer",
    "zkconsumer/config",
    "zkconsumer/cluster",
    "zkconsumer/fetching",
    "zkconsumer/streams",
    "zkconsumer/offsets",
    "zkconsumer/member",
    "zkconsumer/cli",
    "zkconsumer/cli/demo",
    "zkconsumer/spark",
    "zkconsumer/spark/load",
    "zkconsumer/testing",
    "zkconsumer/testing/history",
    "zkconsumer/testing/members",
    "zkconsumer/testing/zookeeper",
    "zkconsumer/testing/kafka",
    "zkconsumer/testing/embedded",
    "zkconsumer/testing/proxy",
    "zkconsumer/testing/java",
    "tests/simulator",
)
IGNORED = "·"

Table = Mapping[tuple[Any, type], Callable[..., Any]]


def file_map() -> str:
    """Return one table a package: file, and the first sentence of its docstring."""
    parts = []
    for package in PACKAGES:
        rows = [
            f"| `{path.name}` | {_cell(_first_sentence(path))} |"
            for path in sorted(ROOT.joinpath(package).glob("*.py"))
            if path.stat().st_size
        ]
        parts.append("\n".join([f"**{package}/**", "", "| file | |", "|---|---|", *rows]))
    return "\n\n".join(parts)


def pure_modules() -> str:
    """Return one table: the modules that the import linter holds to be pure, by their package."""
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg", encoding="utf-8")
    by_package: dict[str, list[str]] = {}
    for name in sorted(settings["importlinter:contract:pure"]["source_modules"].split()):
        package, _, module = name.rpartition(".")
        whole = ROOT.joinpath(*name.split(".")).is_dir()
        by_package.setdefault(package, []).append(f"all of `{module}`" if whole else f"`{module}`")
    rows = [f"| `{package}` | {', '.join(modules)} |" for package, modules in sorted(by_package.items())]
    return "\n".join(["| package | pure modules |", "|---|---|", *rows])


def _first_sentence(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(docstring.split("\n\n")[0].split())


def machine_tables(module: ModuleType, owner: type, table: Table) -> str:
    """Return two tables: which step an event takes in each state, and what each step may come to."""
    states = list(dict.fromkeys(state for state, _ in table))
    events = [event for event in module.Event.__args__ if any(event is each for _, each in table)]
    lines = [
        "| event | " + " | ".join(state.value for state in states) + " |",
        "|---" * (len(states) + 1) + "|",
    ]
    for event in events:
        steps = [_name(table[state, event]) if (state, event) in table else "" for state in states]
        lines.append(f"| `{event.__name__}` | " + " | ".join(steps) + " |")
    actions = {each.__name__ for each in module.Action.__args__}
    lines += ["", "| step | next state | actions |", "|---|---|---|"]
    for step in sorted({_name(step) for step in table.values()} - {IGNORED}):
        reached, done = _outcome(owner, "_" + step.replace(" ", "_"), actions)
        lines.append(f"| {step} | {', '.join(reached) or '-'} | {', '.join(f'`{each}`' for each in done) or '-'} |")
    return "\n".join(lines)


def _name(step: Callable[..., Any]) -> str:
    name = step.__name__.strip("_").replace("_", " ")
    return IGNORED if name == "ignore" else name


def _outcome(owner: type, method: str, actions: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the states a step may go to and the actions it may ask for, those of the steps it calls included."""
    reached: dict[str, None] = {}
    done: dict[str, None] = {}
    seen: set[str] = set()
    waiting = [method]
    while waiting:
        name = waiting.pop(0)
        if name in seen or name == "_go":
            continue
        seen.add(name)
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(getattr(owner, name))))):
            for state in _states_gone_to(node):
                reached[state.lower()] = None
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in actions:
                done[node.func.id] = None
            elif isinstance(node, ast.Attribute) and _is_own_step(owner, node):
                waiting.append(node.attr)
    return list(reached), list(done)


def _states_gone_to(node: ast.AST) -> list[str]:
    """Return `X` of `self._go(State.X, ...)` and of `self.state = State.X`."""
    target: ast.expr | None = None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "_go":
        target = node.args[0]
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
        target = node.value if node.targets[0].attr == "state" else None
    return [target.attr] if isinstance(target, ast.Attribute) else []


def _is_own_step(owner: type, node: ast.Attribute) -> bool:
    is_self = isinstance(node.value, ast.Name) and node.value.id == "self"
    return is_self and inspect.isfunction(getattr(owner, node.attr, None))


def option_table() -> str:
    """Return the options of the Spark source, and the settings of the consumer that are options, too."""
    lines = ["| option | in a | default | |", "|---|---|---|---|"]
    lines += [
        f"| `{option.name}` | {option.where} | {_cell(option.default) or '-'} | {_cell(option.meaning)} |"
        for option in OPTIONS
        if not option.is_setting
    ]
    settings = ", ".join(f"`{option.name}`" for option in OPTIONS if option.is_setting)
    return "\n".join(lines) + f"\n\nSettings of the consumer:\n{textwrap.fill(settings, 118)}"


def sections() -> dict[Path, dict[str, str]]:
    """Return what stands between the markers of each section of each document."""
    return {
        ARCHITECTURE: {"pure": pure_modules(), "files": file_map()},
        REBALANCE: {
            "group machine": machine_tables(machine, machine.RebalanceMachine, machine._TABLE),
            "partition machine": machine_tables(partition, partition.PartitionMachine, partition._TABLE),
        },
        SPARK: {"options": option_table()},
    }


def with_tables(document: str, tables: Mapping[str, str]) -> str:
    """Return the document with what stands between its markers replaced.

    Raises:
        ValueError: A marker is missing.
    """
    for name, table in tables.items():
        begin, end = f"<!-- {name}: written by python docs/tables.py -->", f"<!-- {name}: end -->"
        before, found_begin, rest = document.partition(begin)
        _, found_end, after = rest.partition(end)
        if not found_begin or not found_end:
            raise ValueError(f"the markers {begin} and {end} are not both there")
        document = f"{before}{begin}\n\n{table}\n\n{end}{after}"
    return document


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> int:
    """Rewrite the tables of all documents."""
    for path, tables in sections().items():
        path.write_text(with_tables(path.read_text(encoding="utf-8"), tables), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
