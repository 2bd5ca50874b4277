"""What README.md, docs/USAGE.md and docs/COMMAND_LINE.md show works: programs run, commands and files are there."""

from __future__ import annotations

import configparser
import os
import re
import runpy
import shlex
import signal
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from zkconsumer.admin.broker_groups import BrokerAdmin
from zkconsumer.cli.demo.scene import outcome_of
from zkconsumer.cli.option_types import ListingGroup
from zkconsumer.cli.program import program
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.loads import load
from zkconsumer.testing.processes import ChildProcess
from zkconsumer.testing.waiting import wait_until

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
USAGE = (ROOT / "docs" / "USAGE.md").read_text(encoding="utf-8")
PAGES = "\n".join(
    [README, USAGE]
    + [(ROOT / name).read_text(encoding="utf-8") for name in ("docs/COMMAND_LINE.md", "CONTRIBUTING.md")]
)
SHOWN = [code for code in re.findall(r"```python\n(.*?)```", README + USAGE, re.DOTALL) if "ConsumerConnector" in code]
PROGRAMS = list(dict.fromkeys(SHOWN))
SHELL_LINES = [line for block in re.findall(r"```sh\n(.*?)```", PAGES, re.DOTALL) for line in block.splitlines()]
INLINE = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", PAGES, flags=re.DOTALL))
COMMANDS = [code for code in INLINE if code.startswith("zkconsumer ")]
PARTITIONS, EACH = 3, 4


def stored(cluster: KafkaCluster, group: str, topic: str) -> list[int]:
    """Committed offsets of a group, the sum over which is what it has done."""
    folder = f"/consumers/{group}/offsets/{topic}"
    if cluster.client.exists(folder) is None:
        return []
    return [int(cluster.client.get(f"{folder}/{name}")[0]) for name in cluster.client.get_children(folder)]


def members(cluster: KafkaCluster, group: str) -> list[str]:
    folder = f"/consumers/{group}/ids"
    return cluster.client.get_children(folder) if cluster.client.exists(folder) else []


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_the_programs_consume_and_commit_a_topic(
    number: int, kafka_0822: KafkaCluster, fresh_topic: Callable[[], str], tmp_path: Path
) -> None:
    topic, group = fresh_topic(), f"readme-{uuid.uuid4().hex[:8]}"
    kafka_0822.create_topic(topic, partitions=PARTITIONS)
    values = [event.id for event in load(kafka_0822, topic, EACH)]
    text = PROGRAMS[number]
    for shown, real in (("zk1:2181,zk2:2181/kafka", kafka_0822.zookeeper_connect), ("billing", group)):
        assert shown in text
        text = text.replace(shown, real)
    assert re.search(r"\bclicks\b", text)
    script = tmp_path / "program.py"
    script.write_text(re.sub(r"\bclicks\b", topic, text))
    output = tmp_path / "output"
    child = ChildProcess("program", [sys.executable, str(script)], tmp_path / "log", output_path=output, stdin=True)
    try:
        wait_until(
            lambda: all(f"b'{value}'" in output.read_text() for value in values), 60, "all messages",
            state=lambda: (output.read_text(), (tmp_path / "log").read_text()),
        )  # fmt: skip
        if "auto_commit_enable=False" in text:
            wait_until(lambda: sum(stored(kafka_0822, group, topic)) == len(values), 30, "a commit while idle")
        child.signal(signal.SIGINT)
        child.wait(30)
    finally:
        child.kill()
    assert stored(kafka_0822, group, topic) == [EACH] * PARTITIONS
    assert members(kafka_0822, group) == []
    printed = output.read_text()
    assert all(printed.count(f"b'{value}'") == 1 for value in values)


ON_BROKERS = [code for code in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "bootstrap_servers" in code]
"""The line that is another one for a group of brokers, and the program of `KafkaConsumer`."""


@pytest.mark.real
@pytest.mark.parametrize("number", range(2))
def test_the_programs_run_on_groups_of_brokers(
    number: int, kafka_clusters: Callable[[str, int], KafkaCluster], tmp_path: Path
) -> None:
    """The first program of the README by changing one setting, and the one of `KafkaConsumer`."""
    cluster, topic, group = kafka_clusters("4.3.1", 1), f"t-{uuid.uuid4().hex[:8]}", f"readme-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(topic, partitions=PARTITIONS)
    values = [event.id for event in load(cluster, topic, EACH)]
    line, program_of_kafka_consumer = ON_BROKERS
    first = re.sub(r"(?m)^config = .*$", line.strip(), PROGRAMS[0])
    text = (first, program_of_kafka_consumer)[number]
    brokers = f"127.0.0.1:{cluster.port(0)}"
    text = re.sub(r'bootstrap_servers="[^"]*"', f'bootstrap_servers="{brokers}"', text).replace("billing", group)
    script = tmp_path / "program.py"
    script.write_text(re.sub(r"\bclicks\b", topic, text).replace("record.value)", "record.value, flush=True)"))
    output = tmp_path / "output"
    child = ChildProcess("program", [sys.executable, str(script)], tmp_path / "log", output_path=output, stdin=True)
    try:
        wait_until(
            lambda: all(f"b'{value}'" in output.read_text() for value in values), 60, "all messages",
            state=lambda: (output.read_text(), (tmp_path / "log").read_text()),
        )  # fmt: skip
        child.signal(signal.SIGINT)
        child.wait(30)
    finally:
        child.kill()
    assert all(output.read_text().count(f"b'{value}'") == 1 for value in values)
    with BrokerAdmin(brokers) as admin:
        shown = admin.describe(group)
    assert (shown.state, len(shown.members)) == ("Empty", 0), "it has left at once"


def test_there_are_programs_to_run() -> None:
    assert len(ON_BROKERS) == 2
    assert len(PROGRAMS) == 4
    assert len(SHOWN) == 5, "the program of the README is the first of docs/USAGE.md, too"
    assert "create_message_streams(" in PROGRAMS[0]
    assert len(PROGRAMS[0].strip().splitlines()) <= 10


def test_the_readme_is_short() -> None:
    assert len(README.split()) <= 900


def test_a_package_index_gets_no_link_that_leads_nowhere() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("setuptools.setup", lambda **_: None)
        for_a_package_index = runpy.run_path(str(ROOT / "setup.py"))["for_a_package_index"]
    text = for_a_package_index(README)
    targets = re.findall(r"\]\(([^)]*)\)", text)
    assert [target for target in targets if not target.startswith("https://")] == []
    assert "`docs/SEMANTICS.md` lists every promise" in text
    assert "![" not in text
    assert for_a_package_index("[a](https://example.org/a), [b](#b)") == "[a](https://example.org/a), [b](#b)"


@pytest.mark.parametrize("line", [*COMMANDS, *(each for each in SHELL_LINES if "bin/zkconsumer" in each)])
def test_the_commands_are_there_with_their_options(line: str) -> None:
    words = shlex.split(line.rpartition("&&")[2].partition(" | ")[0])[1:]
    command: click.Command = program
    while isinstance(command, click.Group):
        if isinstance(command, ListingGroup) and (not words or words[0] not in command.commands):
            words.insert(0, "list")
        assert words, f"{line}: a command is missing"
        command = command.commands[words.pop(0)]
    command.make_context(command.name, list(words))  # parses, and runs nothing


def test_every_command_of_the_program_is_named() -> None:
    assert {command.split()[1] for command in COMMANDS} >= set(program.commands)


def test_the_files_are_there() -> None:
    words = {word for code in [*INLINE, *SHELL_LINES] for word in re.split(r"[\s'\"=]+", code)}
    named = {word for word in words if re.fullmatch(r"\.?[a-z]+(/[A-Za-z0-9_.]+)+/?", word)}
    assert {"tests/run", "docs/tables.py", ".ci/run"} <= named
    made_by_the_commands = {word for word in named if word.startswith(".venv")}
    missing = [name for name in sorted(named - made_by_the_commands) if not (ROOT / name).exists()]
    assert missing == []
    assert all(os.access(ROOT / name, os.X_OK) for name in ("tests/run", ".ci/run"))


def test_the_extras_are_there() -> None:
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    wanted = set(re.findall(r"'(?:\.|zkconsumer)\[(\w+)\]'", PAGES))
    assert wanted <= set(settings["options.extras_require"])


def test_the_output_shown_ends_as_that_of_the_program_does() -> None:
    shown = README.partition("It ends with lines like these")[2].partition("```\n")[2].partition("```")[0]
    assert re.sub(r"\d+", "0", shown.splitlines()[-1]) == outcome_of([], 1.0).last_line
