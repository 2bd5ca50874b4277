"""The examples say how they are run, and their list is complete."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.examples.example_process import FOLDER, shown_command
from zkconsumer.cli.program import program

NAMES = sorted(path.name for path in FOLDER.glob("*.py"))
README = (FOLDER / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_listed_with_its_command_and_run_by_a_test(name: str) -> None:
    assert f"| [{name}]({name}) | " in README
    assert shown_command(name) in README.splitlines()
    test = Path(__file__).with_name(f"test_example_{name}")
    assert f'"{name}"' in test.read_text(encoding="utf-8")


def test_nothing_else_is_listed() -> None:
    assert sorted(re.findall(r"\]\((.*?)\)", README)) == NAMES
    assert len(re.findall(r"^python ", README, re.MULTILINE)) == len(NAMES)


def test_the_commands_of_zkconsumer_are_there_with_their_options() -> None:
    texts = [README, *((FOLDER / name).read_text(encoding="utf-8") for name in NAMES)]
    shown = re.compile(r"^[^`\n#]*\bzkconsumer ((?:cluster|produce) .*)$", re.MULTILINE)
    lines = {line for text in texts for line in shown.findall(text)}
    assert len(lines) >= 3
    for line in lines:
        words = shlex.split(line, comments=True)
        command = program
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        command.make_context(command.name, words)  # parses, and runs nothing
