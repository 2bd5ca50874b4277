"""Completion, as a shell asks for it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command_line import TIMEOUT_S, run
from zkconsumer.cli.program import program

BIN = Path(sys.executable).parent


def complete_in_bash(*lines: str) -> list[list[str]]:
    """What bash offers for the last word of each line, to which a trailing space belongs as an empty word."""
    script = """
    eval "$(zkconsumer completion bash)"
    for line in "$@"; do
        IFS=' ' read -r -a COMP_WORDS <<< "$line"
        [[ $line == *' ' ]] && COMP_WORDS+=("")
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=()
        _zkconsumer_completion zkconsumer
        echo "${COMPREPLY[@]}"
    done
    """
    ran = subprocess.run(
        ["bash", "-c", script, "bash", *lines], env={"PATH": f"{BIN}:/usr/bin:/bin"}, capture_output=True, text=True,
        timeout=2 * TIMEOUT_S, check=True,
    )  # fmt: skip
    return [line.split() for line in ran.stdout.splitlines()]


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.skipif(not (BIN / "zkconsumer").exists(), reason="the command is not installed beside this Python")
def test_bash_completes_commands_subcommands_options_and_values() -> None:
    group, every, subcommand, option, value = complete_in_bash(
        "zkconsumer offs", "zkconsumer ", "zkconsumer offsets im", "zkconsumer offsets import --dry",
        "zkconsumer produce --codec s",
    )  # fmt: skip
    assert group == ["offsets"]
    assert set(every) == set(program.commands)
    assert subcommand == ["import"]
    assert option == ["--dry-run"]
    assert value == ["snappy"]


@pytest.mark.parametrize(
    ("shell", "sign"), [("bash", "complete -o"), ("zsh", "#compdef"), ("fish", "complete --no-files")]
)
def test_each_shell_gets_a_script_of_its_own(shell: str, sign: str) -> None:
    got = run("completion", shell)
    assert got.returncode == 0
    assert sign in got.stdout.decode()
    assert f"_ZKCONSUMER_COMPLETE={shell}_complete" in got.stdout.decode()


def test_another_shell_is_wrong_usage() -> None:
    assert run("completion", "tcsh").returncode == 2
