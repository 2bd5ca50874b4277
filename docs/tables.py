"""Write the tables of several documents, such as ARCHITECTURE and PRODUCING: `python docs/tables.py`.

They stand between markers: the way of a message, the folders (first sentence
of each package), the state machines, the catalogue of faults (from the markers of the tests), the options of the Spark
source, the error codes of Produce, and the versions of requests (from what real brokers of each version have answered).
The events and states of a machine are read from its transition table, and what a step may do from the source of the
step. Pictures are written in the language of Mermaid, which GitHub and the documentation site draw.
"""

from __future__ import annotations

import ast
import inspect
import re
import runpy
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from rebalance import partition
from rebalance.brokers import machine as member_machine
from rebalance.zookeeper import machine
from simpleconsumer.dialect import KAFKA011
from simpleconsumer.errors import broker_error
from simpleconsumer.messages.apis import APIS
from zkconsumer.config.tables.keys import KEYS
from zkconsumer.polling import partition_position
from zkconsumer.producer.sending.produce_codes import PRODUCE_CODES
from zkconsumer.spark.options.foreign_options import READING, WRITING, Foreign
from zkconsumer.spark.options.option_table import OPTIONS, Option
from zkconsumer.spark.writing.sink_options import SINK_OPTIONS

ROOT = Path(__file__).resolve().parents[1]
ARCHITECTURE = ROOT / "docs" / "ARCHITECTURE.md"
REBALANCE = ROOT / "docs" / "REBALANCE.md"
COMPATIBILITY = ROOT / "docs" / "COMPATIBILITY.md"
PRODUCING = ROOT / "docs" / "PRODUCING.md"
FAULTS = ROOT / "docs" / "FAULTS.md"
SPARK = ROOT / "docs" / "SPARK_READING.md"
SPARK_SINK = ROOT / "docs" / "SPARK_WRITING.md"
ROOTS = ("simpleconsumer", "rebalance", "zkconsumer", "tests/simulator")
IGNORED = "·"
MANY_STATES = 4
"""An event that leads from so many states to one other is not drawn as arrows, but said below the picture."""

MESSAGE_WAY = {
    "coordinator": (
        ("rebalance/subscription.py", "assigns the partition to a stream"),
        ("rebalance/zookeeper/claims.py", "creates the owner node"),
        ("zkconsumer/offsets/zookeeper_offsets.py", "reads the stored offset"),
        ("zkconsumer/member/delivery.py", "gives the partition to a fetcher"),
    ),
    "leader finder": (("zkconsumer/cluster/leaders.py", "looks up the leader"),),
    "fetcher": (
        ("zkconsumer/fetching/fetcher.py", "asks the leader for messages, within the byte budget"),
        ("simpleconsumer/connection.py", "sends the request and receives the answer"),
        ("simpleconsumer/kafka08/requests.py", "splits the answer into partitions"),
        ("zkconsumer/fetching/partition_queue.py", "keeps the chunk until the stream reads it"),
    ),
    "application": (
        ("zkconsumer/streams/cursor.py", "takes the chunk and keeps the place in it"),
        ("simpleconsumer/kafka08/message_set.py", "decodes the messages and compares checksums"),
        ("zkconsumer/streams/stream.py", "checks the lease and hands over the message"),
        ("the loop", "handles the message; asking for the next one makes it done"),
    ),
    "coordinator, later": (
        ("zkconsumer/offsets/commits.py", "decides which positions are committed, and when"),
        ("zkconsumer/offsets/commit_batch.py", "writes the offset, if the registration is still the same"),
    ),
}
"""The way of a message from the broker to the loop of the application: files and what they do, by thread."""

Table = Mapping[tuple[Any, type], Callable[..., Any]]


def packages() -> list[Path]:
    """Return the folders that hold the code, relative to the root."""
    found = {path.parent.relative_to(ROOT) for root in ROOTS for path in ROOT.joinpath(root).rglob("*.py")}
    return sorted(found)


def folder_map() -> str:
    """Return one table: each folder, and the first sentence of its package's docstring."""
    rows = [f"| `{path.as_posix()}/` | {_cell(_first_sentence(ROOT / path / '__init__.py'))} |" for path in packages()]
    return "\n".join(["| folder | |", "|---|---|", *rows])


def _first_sentence(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(docstring.split("\n\n")[0].split())


def machine_tables(module: ModuleType, owner: type, table: Table) -> str:
    """Return two tables: which step an event takes in each state, and what each step may come to.

    Args:
        module: The machine's module. It names all events as `Event` and, if its steps ask for any, actions as `Action`.
        owner: The class that has the steps.
        table: The transition table.
    """
    states = list(dict.fromkeys(state for state, _ in table))
    events = [event for event in module.Event.__args__ if any(event is each for _, each in table)]
    lines = [
        "| event | " + " | ".join(state.value for state in states) + " |",
        "|---" * (len(states) + 1) + "|",
    ]
    for event in events:
        steps = [_name(table[state, event]) if (state, event) in table else "" for state in states]
        lines.append(f"| `{event.__name__}` | " + " | ".join(steps) + " |")
    actions = {each.__name__ for each in module.Action.__args__} if hasattr(module, "Action") else set()
    lines += ["", "| step | next state | actions |" if actions else "| step | next state |"]
    lines.append("|---|---|---|" if actions else "|---|---|")
    for step in sorted({_name(step) for step in table.values()} - {IGNORED}):
        reached, done = _outcome(owner, "_" + step.replace(" ", "_"), actions)
        line = f"| {step} | {', '.join(reached) or '-'} |"
        lines.append(f"{line} {', '.join(f'`{each}`' for each in done) or '-'} |" if actions else line)
    return "\n".join(lines)


def message_way() -> str:
    """Return a picture and a table: which file handles a message, in which thread, on its way to the application.

    Raises:
        FileNotFoundError: A file of the way is not there any more.
    """
    picture, rows, number = ["flowchart TB"], [], 0
    for lane, (thread, stops) in enumerate(MESSAGE_WAY.items()):
        picture.append(f'    subgraph lane{lane}["{thread}"]')
        for path, does in stops:
            if "/" in path and not (ROOT / path).exists():
                raise FileNotFoundError(f"{path} of MESSAGE_WAY")
            number += 1
            picture.append(f'        s{number}["{number}. {does}<br>{path}"]')
            rows.append(f"| {number} | {thread} | {does} | {f'`{path}`' if '/' in path else path} |")
        picture.append("    end")
    picture.append("    " + " --> ".join(f"s{each + 1}" for each in range(number)))
    return _mermaid(picture) + "\n\n" + "\n".join(["| | thread | does | file |", "|---|---|---|---|", *rows])


def _mermaid(lines: Iterable[str]) -> str:
    return "\n".join(["```mermaid", *lines, "```"])


def machine_picture(module: ModuleType, owner: type, table: Table) -> str:
    """Return a state diagram of a machine: an arrow for each event that may lead from one state to another one.

    An event that leads from most states to the same one is a sentence below the picture.
    """
    sources: dict[tuple[str, str], list[str]] = {}
    for (state, event), step in table.items():
        if _name(step) != IGNORED:
            for target in _outcome(owner, step.__name__, ())[0]:
                if target != state.value:
                    sources.setdefault((event.__name__, target), []).append(state.value)
    many = {key: states for key, states in sources.items() if len(states) >= MANY_STATES}
    arrows: dict[tuple[str, str], list[str]] = {}
    for (name, target), states in sources.items():
        if (name, target) not in many:
            for state in states:
                arrows.setdefault((state, target), []).append(name)
    states = list(dict.fromkeys(state.value for state, _ in table))
    lines = ["stateDiagram-v2", *(f'    state "{name}" as {_drawn(name)}' for name in states if " " in name)]
    lines.append(f"    [*] --> {_drawn(states[0])}")
    lines += [
        f"    {_drawn(source)} --> {_drawn(target)}: {', '.join(names)}" for (source, target), names in arrows.items()
    ]
    said = [f"- `{name}` leads to *{target}* from {', '.join(states)}." for (name, target), states in many.items()]
    return _mermaid(lines) + ("\n\n" + "\n".join(said) if said else "")


def _drawn(state: str) -> str:
    """Return the name of a state in a picture, where names are single words."""
    return state.replace(" ", "_")


def _tests_by_fault() -> dict[str, list[str]]:
    """Return the tests of each fault of the catalogue, from their markers `@pytest.mark.catalogue(...)`."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "mark.catalogue(" not in text:
            continue
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef):
                for fault in _marks(node):
                    found.setdefault(fault, []).append(f"`{path.relative_to(ROOT).as_posix()}::{node.name}`")
    return found


def _marks(test: ast.FunctionDef) -> list[str]:
    calls = [each for each in test.decorator_list if isinstance(each, ast.Call)]
    marks = [call for call in calls if ast.unparse(call.func) == "pytest.mark.catalogue"]
    return [str(ast.literal_eval(argument)) for mark in marks for argument in mark.args]


def fault_tables() -> tuple[str, str]:
    """Return two tables: the faults of the catalogue in short, and each of them with its tests.

    Raises:
        ValueError: A fault without tests and without a note, or a marker of a fault that the catalogue does not have.
    """
    written = runpy.run_path(str(ROOT / "tests" / "fault_catalogue.py"))
    catalogue, groups, tests = written["CATALOGUE"], written["GROUPS"], _tests_by_fault()
    unknown = sorted(set(tests) - set(catalogue))
    bare = [fault for fault, entry in catalogue.items() if fault not in tests and not entry.note]
    if unknown or bare:
        raise ValueError(f"marked, but not in the catalogue: {unknown}; in the catalogue, but without a test: {bare}")
    rows = ["| fault | what goes wrong | tests | also |", "|---|---|---|---|"]
    for fault, entry in catalogue.items():
        also = [f"{word}: {', '.join(each)}" for word, each in _shown_by(entry).items() if each]
        also += [entry.note] if entry.note else []
        rows.append(f"| {fault} | {entry.title} | {', '.join(tests.get(fault, [])) or '-'} | {'; '.join(also)} |")
    short = ["| | faults | tests | scenarios of the suite | planted bugs |", "|---|---|---|---|---|"]
    for letter, about in {**groups, "": "all"}.items():
        of_group = {fault: entry for fault, entry in catalogue.items() if re.match(letter, fault)}
        short.append(
            f"| {f'{letter}: ' if letter else ''}{about} | {len(of_group)} "
            f"| {len({test for fault in of_group for test in tests.get(fault, [])})} "
            f"| {len({each for entry in of_group.values() for each in entry.suite})} "
            f"| {len({each for entry in of_group.values() for each in entry.bugs})} |"
        )
    return "\n".join(short), "\n".join(rows)


def _shown_by(entry: Any) -> dict[str, tuple[str, ...]]:
    return {"suite": entry.suite, "simulation": entry.simulation, "bugs": entry.bugs}


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
                reached[state.lower().replace("_", " ")] = None
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


def option_table(options: Iterable[Option], settings_of: str) -> str:
    """Return the options of the Spark source or sink, and the settings of a client that are options, too."""
    options = list(options)
    lines = ["| option | in a | default | |", "|---|---|---|---|"]
    lines += [
        f"| `{option.name}` | {option.where} | {_cell(option.default) or '-'} | {_cell(option.meaning)} |"
        for option in options
        if not option.is_setting
    ]
    secrets = {key.name for key in KEYS if key.secret}
    named = [[f"`{option.name}`" for option in options if option.is_setting and (option.name in secrets) == is_secret]
             for is_secret in (False, True)]  # fmt: skip
    settings = textwrap.fill(", ".join(named[0]), 118)
    told = "In a file that `config` or `profile` names, and refused as options:"
    hidden = textwrap.fill(f"{told} {', '.join(named[1])}", 118)
    return "\n".join(lines) + f"\n\nSettings of the {settings_of}:\n{settings}\n\n{hidden}"


def foreign_options(rows: Iterable[Foreign], of_spark: str) -> str:
    """Return the options to set here instead of those of Spark's source or sink, and of settings of Kafka's clients."""
    lines = [f"| {of_spark} | here |", "|---|---|"]
    lines += [f"| {', '.join(f'`{name}`' + ('...' if name.endswith('.') else '') for name in row.names)} | "
              f"{_cell(row.hint)} |" for row in rows]  # fmt: skip
    return "\n".join(lines)


def request_versions() -> str:
    """Return one table: the version in which each request is sent, to brokers that listed theirs in a recording."""
    brokers: dict[str, Mapping[int, range]] = {}
    for path in (ROOT / "tests" / "golden" / "apis").glob("kafka-*/hand-ApiVersions-v0-response.hex"):
        frame = bytes.fromhex("".join(path.read_text(encoding="utf-8").splitlines()[1:]))
        brokers[path.parent.name.removeprefix("kafka-")] = KAFKA011.api_versions().decode(memoryview(frame)[8:])[1]
    names = sorted(brokers, key=lambda name: [int(part) for part in name.split(".")])
    rows = []
    for key, api in APIS.items():
        common = [[each for each in api.versions if each in brokers[name].get(key, ())] for name in names]
        rows.append(f"| {api.name} | {' | '.join(str(max(each, default='-')) for each in common)} |")
    return "\n".join([f"| request | {' | '.join(names)} |", "|---|" + "---|" * len(names), *rows])


def produce_codes() -> str:
    """Return one table: what each error code of Produce means for a batch and its numbers."""
    rows = [
        f"| {row.code} | `{broker_error(row.code).name}` | {row.stored.value} | {row.numbers.value} | {row.reason} |"
        for row in PRODUCE_CODES.values()
    ]
    rows.append("| any other | | maybe | kept for a repeat; a new producer id when the tries run out | not known |")
    head = ["| code | error | stored | sequence numbers | why |", "|---|---|---|---|---|"]
    return "\n".join([*head, *rows])


def sections() -> dict[Path, dict[str, str]]:
    """Return what stands between the markers of each section of each document."""
    return {
        ARCHITECTURE: {
            "message": message_way(),
            "folders": folder_map(),
        },
        COMPATIBILITY: {"versions of requests": request_versions()},
        PRODUCING: {"produce codes": produce_codes()},
        FAULTS: dict(zip(("summary", "catalogue"), fault_tables(), strict=True)),
        REBALANCE: {
            "group picture": machine_picture(machine, machine.RebalanceMachine, machine._TABLE),
            "member picture": machine_picture(member_machine, member_machine.MemberMachine, member_machine._TABLE),
            "partition picture": machine_picture(partition, partition.PartitionMachine, partition._TABLE),
            "position picture": machine_picture(
                partition_position, partition_position.PartitionPosition, partition_position._TABLE
            ),
            "group machine": machine_tables(machine, machine.RebalanceMachine, machine._TABLE),
            "partition machine": machine_tables(partition, partition.PartitionMachine, partition._TABLE),
            "member machine": machine_tables(member_machine, member_machine.MemberMachine, member_machine._TABLE),
            "position machine": machine_tables(
                partition_position, partition_position.PartitionPosition, partition_position._TABLE
            ),
        },
        SPARK: {
            "options": option_table(OPTIONS, "consumer"),
            "foreign options": foreign_options(READING, 'option of `format("kafka")`'),
        },
        SPARK_SINK: {
            "options": option_table(SINK_OPTIONS, "producer"),
            "foreign options": foreign_options(WRITING, 'option of `format("kafka")`'),
        },
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
