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


def complete_in_bash(*words: str) -> list[str]:
    """What bash offers for the last word."""
    script = """
    eval "$(zkconsumer completion bash)"
    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
    _zkconsumer_completion zkconsumer
    printf '%s\\n' "${COMPREPLY[@]}"
    """
    ran = subprocess.run(
        ["bash", "-c", script, "bash", *words], env={"PATH": f"{BIN}:/usr/bin:/bin"}, capture_output=True, text=True,
        timeout=TIMEOUT_S, check=True,
    )  # fmt: skip
    return ran.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.skipif(not (BIN / "zkconsumer").exists(), reason="the command is not installed beside this Python")
def test_bash_completes_commands_subcommands_options_and_values() -> None:
    assert complete_in_bash("zkconsumer", "offs") == ["offsets"]
    assert set(complete_in_bash("zkconsumer", "")) == set(program.commands)
    assert complete_in_bash("zkconsumer", "offsets", "im") == ["import"]
    assert complete_in_bash("zkconsumer", "offsets", "import", "--dry") == ["--dry-run"]
    assert complete_in_bash("zkconsumer", "produce", "--codec", "s") == ["snappy"]


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
